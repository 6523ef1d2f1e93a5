// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/perf"
)

// generalTerms are the terms that every event takes.
func generalTerms() []string {
	return []string{"config", "config1", "config2", "config3", "name", "period", "freq", "time",
		"call-graph", "stack-size", "max-stack", "inherit", "no-inherit"}
}

// refusedTerms are perf's terms that gantry does not do.
func refusedTerms() []string {
	return []string{"overwrite", "no-overwrite", "percore", "driver-config", "branch_type", "aux-output",
		"aux-sample-size", "metric-id", "max-nr"}
}

// applyTerm applies a term that every event takes; false means that it is
// none of them.
func applyTerm(s *EventSpec, t termSyntax) (bool, error) {
	if slices.Contains(refusedTerms(), t.key.text) {
		return true, failAt(t.key, ErrUnsupported, "term "+t.key.text+" is not supported by gantry")
	}
	if !slices.Contains(generalTerms(), t.key.text) {
		return false, nil
	}
	switch t.key.text {
	case "name", "call-graph":
		return true, applyTextTerm(s, t)
	}
	n := uint64(1)
	if t.hasValue {
		var err error
		if n, err = number(t.value); err != nil {
			return true, err
		}
	} else if !strings.HasSuffix(t.key.text, "inherit") && t.key.text != "time" {
		return true, failAt(t.key, ErrTermValue, "term "+t.key.text+" needs a value")
	}
	if limit := termLimit(t.key.text); n > limit {
		return true, failAt(t.value, ErrTermValue, fmt.Sprintf("%s is at most %d", t.key.text, limit))
	}
	applyNumber(s, t.key.text, n)
	return true, nil
}

func termLimit(key string) uint64 {
	switch key {
	case "stack-size":
		return 65528 // a record's size has 16 bits, and stacks come in words
	case "max-stack":
		return math.MaxUint16
	case "time", "inherit", "no-inherit":
		return 1
	}
	return math.MaxUint64
}

func applyNumber(s *EventSpec, key string, n uint64) {
	switch key {
	case "config":
		s.Attr.Config = n
	case "config1":
		s.Attr.Config1 = n
	case "config2":
		s.Attr.Config2 = n
	case "config3":
		s.Attr.Config3 = n
	case "period":
		s.Attr.SampleCount, s.Terms.Period, s.Terms.Freq = n, true, false
		s.Attr.Flags &^= perf.AttrFreq
	case "freq":
		s.Attr.SampleCount, s.Terms.Freq, s.Terms.Period = n, true, false
		s.Attr.Flags |= perf.AttrFreq
	case "time":
		s.Terms.NoTime = n == 0
	case "stack-size":
		s.Terms.StackSize = uint32(n)
	case "max-stack":
		s.Terms.MaxStack = uint16(n)
	case "inherit":
		s.Terms.Inherit, s.Terms.NoInherit = n == 1, n == 0
	case "no-inherit":
		s.Terms.Inherit, s.Terms.NoInherit = n == 0, n == 1
	}
}

func applyTextTerm(s *EventSpec, t termSyntax) error {
	if !t.hasValue {
		return failAt(t.key, ErrTermValue, "term "+t.key.text+" needs a value")
	}
	if t.key.text == "name" {
		s.Name, s.Terms.Named = t.value.text, true
		return nil
	}
	switch t.value.text {
	case "fp", "dwarf", "no":
		s.Terms.CallGraph = t.value.text
		return nil
	case "lbr":
		return failAt(t.value, ErrUnsupported, "call-graph=lbr is not supported by gantry")
	}
	return failAt(t.value, ErrTermValue, "call-graph is fp, dwarf or no")
}

// unknownTerm says which terms there are.
func unknownTerm(t termSyntax, own []string) error {
	known := append(slices.Clone(own), generalTerms()...)
	near := suggest(t.key.text, known)
	reason := "unknown term " + strconv.Quote(t.key.text)
	if len(near) == 0 && len(own) > 0 {
		reason += ", the device knows " + strings.Join(own[:min(len(own), 12)], " ")
	}
	return failAt(t.key, ErrUnknownTerm, reason, near...)
}

// apply applies the terms of an event of this device.
func (u *pmu) apply(s *EventSpec, terms []termSyntax) error {
	for _, t := range terms {
		if err := u.applyOne(s, t); err != nil {
			return err
		}
	}
	if (u.name == "kprobe" || u.name == "uprobe") && s.Probe == nil {
		want := map[string]string{"kprobe": "func=NAME", "uprobe": `path="FILE"`}[u.name]
		return &ParseError{Kind: ErrTermValue, Reason: u.name + " needs the term " + want}
	}
	return nil
}

func (u *pmu) applyOne(s *EventSpec, t termSyntax) error {
	if known, err := applyTerm(s, t); known || err != nil {
		return err
	}
	if known, err := u.applyProbe(s, t); known || err != nil {
		return err
	}
	text, err := u.read("format/" + t.key.text)
	if err == nil {
		return applyField(s, t, text)
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrInvalid) {
		return &ParseError{Kind: ErrUnknownTerm, Offset: t.key.pos, Reason: "cannot read the format of " + t.key.text,
			Cause: err}
	}
	a, err := u.alias(t.key.text)
	switch {
	case err == nil:
		return u.applyAlias(s, t, a)
	case !errors.Is(err, fs.ErrNotExist):
		return &ParseError{Kind: ErrUnknownEvent, Offset: t.key.pos, Reason: "cannot read event " + t.key.text,
			Cause: err}
	}
	// The core's and the kernel's own events go by their generic names too.
	if g, ok := genericEvent(t.key.text); ok && !t.hasValue && u.takes(g.typ) {
		s.Attr.Type, s.Attr.Config = g.typ, g.config
		if g.typ != perf.TypeSoftware && u.cpus != nil {
			s.Attr.Config |= uint64(u.typ) << 32
		}
		return nil
	}
	return unknownTerm(t, append(u.terms(), u.aliases()...))
}

// takes: generic events of this type may be written with this device.
func (u *pmu) takes(typ perf.EventType) bool {
	switch u.name {
	case "software":
		return typ == perf.TypeSoftware
	case "cpu", "cpu_core", "cpu_atom", "cpu_lowpower":
		return typ == perf.TypeHardware || typ == perf.TypeHWCache
	}
	return false
}

func applyField(s *EventSpec, t termSyntax, text string) error {
	f, err := parseField(text)
	if err != nil {
		return &ParseError{Kind: ErrUnknownTerm, Offset: t.key.pos, Reason: "cannot use term " + t.key.text, Cause: err}
	}
	v := uint64(1)
	if t.hasValue {
		if v, err = number(t.value); err != nil {
			return err
		}
	}
	if v > f.max() {
		return failAt(t.value, ErrTermValue, fmt.Sprintf("%s is at most %#x", t.key.text, f.max()))
	}
	f.set(&s.Attr, v)
	return nil
}

// applyAlias applies the terms that a named event stands for.
func (u *pmu) applyAlias(s *EventSpec, t termSyntax, a *alias) error {
	if t.hasValue {
		return failAt(t.value, ErrTermValue, "event "+t.key.text+" takes no value")
	}
	for _, at := range a.terms {
		// A value of ? must be given by the user as a term of its own.
		if at.value.text == "?" {
			continue
		}
		text, err := u.read("format/" + at.key.text)
		if err == nil {
			err = applyField(s, at, text)
		} else if known, termErr := applyTerm(s, at); known {
			err = termErr
		}
		if err != nil {
			return &ParseError{Kind: ErrUnknownTerm, Offset: t.key.pos,
				Reason: "cannot use event " + t.key.text + " of " + u.name, Cause: err}
		}
	}
	s.Scale, s.Unit = a.scale, a.unit
	return nil
}

// applyProbe takes the terms that the kprobe and uprobe devices need beside
// their format: the kernel wants them as pointers.
func (u *pmu) applyProbe(s *EventSpec, t termSyntax) (bool, error) {
	name := map[string]string{"kprobe": "func", "uprobe": "path"}[u.name]
	if name == "" || t.key.text != name && t.key.text != "offset" {
		return false, nil
	}
	if !t.hasValue {
		return true, failAt(t.key, ErrTermValue, "term "+t.key.text+" needs a value")
	}
	p := Probe{}
	if s.Probe != nil {
		p = *s.Probe
	}
	if t.key.text == name {
		p.Name = t.value.text
	} else {
		n, err := number(t.value)
		if err != nil {
			return true, err
		}
		p.Offset = n
	}
	s.Probe = &p
	return true, nil
}
