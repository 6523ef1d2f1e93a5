// SPDX-License-Identifier: Apache-2.0

package perftext

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrSyntax: the text is not a recording. [Error] says where.
var ErrSyntax = errors.New("malformed text")

// Error is a mistake in a text and its place, counted from 1 in bytes.
type Error struct {
	Line, Column int
	Err          error
}

func (e *Error) Error() string { return fmt.Sprintf("%d:%d: %v", e.Line, e.Column, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// syntaxError is an Error of which the line is filled in by the parser.
func syntaxError(col int, format string, args ...any) error {
	return &Error{Column: col, Err: fmt.Errorf("%w: %s", ErrSyntax, fmt.Sprintf(format, args...))}
}

// token is one key=value of a line, or a string or word without a key.
type token struct {
	key, val string
	quoted   bool
	used     bool
	col      int // of the value
}

// scan splits a line. Comments are dropped.
func scan(line string) ([]token, error) {
	var toks []token
	for at := 0; ; {
		for at < len(line) && blank(line[at]) {
			at++
		}
		if at == len(line) || line[at] == '#' {
			return toks, nil
		}
		t, n, err := scanToken(line[at:], at+1)
		if err != nil {
			return nil, err
		}
		toks = append(toks, t)
		at += n
	}
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }

// scanToken reads the token that s starts with, and says how long it is.
func scanToken(s string, col int) (t token, n int, err error) {
	end := strings.IndexAny(s, " \t\r\"=")
	if end < 0 {
		end = len(s)
	}
	if end < len(s) && s[end] == '=' {
		if end == 0 {
			return t, 0, syntaxError(col, "a field without a name")
		}
		t.key = s[:end]
		n = end + 1
		s = s[n:]
	} else if end > 0 && end < len(s) && s[end] == '"' {
		return t, 0, syntaxError(col+end, "a space is missing before the quote")
	}
	t.col = col + n
	if strings.HasPrefix(s, `"`) {
		q, err := strconv.QuotedPrefix(s)
		if err != nil {
			return t, 0, syntaxError(t.col, "string without an end, or with a wrong escape")
		}
		t.quoted = true
		t.val, _ = strconv.Unquote(q)
		n += len(q)
		if rest := s[len(q):]; rest != "" && !blank(rest[0]) {
			return t, 0, syntaxError(col+n, "a space is missing behind the string")
		}
		return t, n, nil
	}
	end = strings.IndexAny(s, " \t\r")
	if end < 0 {
		end = len(s)
	}
	t.val = s[:end]
	return t, n + end, nil
}
