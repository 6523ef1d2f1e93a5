// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"errors"
	"fmt"
	"strings"
)

// What is wrong with a spec, for errors.Is.
var (
	ErrSyntax          = errors.New("syntax error")
	ErrUnknownEvent    = errors.New("unknown event")
	ErrUnknownPMU      = errors.New("unknown event device")
	ErrUnknownTerm     = errors.New("unknown term")
	ErrTermValue       = errors.New("wrong value of a term")
	ErrUnknownModifier = errors.New("unknown modifier")
	// ErrUnsupported: perf can do it, gantry says so instead of guessing.
	ErrUnsupported = errors.New("not supported by gantry")
)

// ParseError says what is wrong with a spec, and where.
type ParseError struct {
	Kind error // one of the sentinels above
	Spec string
	// Offset of the place in Spec, in bytes.
	Offset int
	// Reason is the sentence for the user, without the place.
	Reason string
	// Suggest are known names like the one that is wrong, the nearest first.
	Suggest []string
	// Cause is an error below, or nil: tracefs that cannot be read.
	Cause error
}

func (e *ParseError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "event %q, column %d: %s", e.Spec, e.Offset+1, e.Reason)
	if len(e.Suggest) > 0 {
		fmt.Fprintf(&b, "; did you mean %s?", strings.Join(e.Suggest, " or "))
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, ": %v", e.Cause)
	}
	return b.String()
}

// Unwrap makes errors.Is find the kind and the cause.
func (e *ParseError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// located completes a ParseError with the spec it is about.
func located(err error, spec string) error {
	var p *ParseError
	if errors.As(err, &p) {
		p.Spec = spec
	}
	return err
}

// failAt is a ParseError at w.
func failAt(w word, kind error, reason string, suggest ...string) error {
	return &ParseError{Kind: kind, Offset: w.pos, Reason: reason, Suggest: suggest}
}
