// SPDX-License-Identifier: Apache-2.0

// Package hint attaches to an error the sentence that tells the user what to
// do about it. Libraries wrap, commands print: the text of the error itself
// stays one line, and errors.Is and errors.As see through the wrapper.
package hint

import "errors"

// Error is an error with its hint.
type Error struct {
	err  error
	hint string
}

// Wrap attaches the hint to err. It returns nil if err is nil.
func Wrap(err error, text string) error {
	if err == nil {
		return nil
	}
	return &Error{err: err, hint: text}
}

// Error is the text of the wrapped error, without the hint.
func (e *Error) Error() string { return e.err.Error() }

// Unwrap is the wrapped error.
func (e *Error) Unwrap() error { return e.err }

// Of is the outermost hint attached to err, or "".
func Of(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.hint
	}
	return ""
}
