// SPDX-License-Identifier: Apache-2.0

package printfmt

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Errors of Compile.
var (
	// ErrSyntax: the line is not what the kernel writes.
	ErrSyntax = errors.New("malformed print fmt")
	// ErrUnsupported: the line needs more than this package does.
	ErrUnsupported = errors.New("unsupported print fmt")
)

type kind uint8

const (
	end kind = iota
	word
	number
	text // a string, unquoted
	punct
)

// token is one word of C.
type token struct {
	kind kind
	s    string
	n    uint64
	at   int
}

// lexer cuts a line into tokens.
type lexer struct {
	s   string
	at  int
	tok token // the current one
	err error
}

func (l *lexer) fail(err error, format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf("%w at byte %d: %s", err, l.tok.at, fmt.Sprintf(format, args...))
	}
	l.tok = token{kind: end, at: l.at}
}

// twoChars reports whether s starts with an operator of two characters.
func twoChars(s string) bool {
	if len(s) < 2 {
		return false
	}
	switch s[:2] {
	case "->", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||":
		return true
	}
	return false
}

// next moves to the next token.
func (l *lexer) next() {
	if l.err != nil {
		return
	}
	for l.at < len(l.s) && strings.IndexByte(" \t\n", l.s[l.at]) >= 0 {
		l.at++
	}
	l.tok = token{at: l.at}
	if l.at == len(l.s) {
		return
	}
	rest := l.s[l.at:]
	switch c := rest[0]; {
	case isLetter(c):
		l.take(word, span(rest, func(c byte) bool { return isLetter(c) || isDigit(c) }))
	case isDigit(c):
		l.number(rest)
	case c == '"':
		l.string(rest)
	case c == '\'':
		l.char(rest)
	case twoChars(rest):
		l.take(punct, 2)
	default:
		l.take(punct, 1)
	}
}

func (l *lexer) take(k kind, n int) {
	l.tok.kind, l.tok.s = k, l.s[l.at:l.at+n]
	l.at += n
}

func isLetter(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

func span(s string, in func(byte) bool) int {
	n := 0
	for n < len(s) && in(s[n]) {
		n++
	}
	return n
}

// number reads an integer of C with its suffix.
func (l *lexer) number(rest string) {
	n := span(rest, func(c byte) bool { return isLetter(c) || isDigit(c) })
	digits := strings.TrimRight(rest[:n], "uUlL")
	v, err := strconv.ParseUint(digits, 0, 64)
	if err != nil {
		l.fail(ErrSyntax, "number %q", rest[:n])
		return
	}
	l.take(number, n)
	l.tok.n = v
}

// string reads a string with its escapes.
func (l *lexer) string(rest string) {
	var b strings.Builder
	for i := 1; i < len(rest); i++ {
		switch c := rest[i]; c {
		case '"':
			l.take(text, i+1)
			l.tok.s = b.String()
			return
		case '\\':
			c, n := escape(rest[i:])
			b.WriteByte(c)
			i += n - 1
		default:
			b.WriteByte(c)
		}
	}
	l.fail(ErrSyntax, "a string without an end")
}

// escape reads the escape that s starts with, and says how long it is.
func escape(s string) (byte, int) {
	if len(s) < 2 {
		return '\\', 1
	}
	switch s[1] {
	case 'n':
		return '\n', 2
	case 't':
		return '\t', 2
	case 'r':
		return '\r', 2
	case '0':
		return 0, 2
	}
	return s[1], 2
}

func (l *lexer) char(rest string) {
	if len(rest) >= 3 && rest[1] != '\\' && rest[2] == '\'' {
		l.take(number, 3)
		l.tok.n = uint64(rest[1])
		return
	}
	if len(rest) >= 4 && rest[3] == '\'' {
		c, _ := escape(rest[1:])
		l.take(number, 4)
		l.tok.n = uint64(c)
		return
	}
	l.fail(ErrSyntax, "a character without an end")
}

// is reports whether the current token is that operator.
func (l *lexer) is(op string) bool { return l.tok.kind == punct && l.tok.s == op }

// accept moves over the operator, if it is there.
func (l *lexer) accept(op string) bool {
	if !l.is(op) {
		return false
	}
	l.next()
	return true
}

// expect moves over the operator, which must be there.
func (l *lexer) expect(op string) {
	if !l.accept(op) {
		l.fail(ErrSyntax, "%q expected before %q", op, l.tok.s)
	}
}
