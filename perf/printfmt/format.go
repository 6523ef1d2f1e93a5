// SPDX-License-Identifier: Apache-2.0

package printfmt

import (
	"fmt"
	"strings"

	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// Options tell what a recording knows of its kernel. nil means nothing.
type Options struct {
	// LongSize is the size of a long in bytes; 0 is 8.
	LongSize int
	// Symbol names a kernel address, for %ps and %pS.
	Symbol func(addr uint64) (name string, offset uint64, ok bool)
	// String is the string at a kernel address, for %s of a pointer.
	String func(addr uint64) (string, bool)
}

// Format is a compiled print fmt line. It may be used by several goroutines.
type Format struct {
	o     Options
	parts []part
}

// part is text and the verb behind it, if any.
type part struct {
	literal string
	verb    *verb
}

// verb is one % of the format string and its arguments.
type verb struct {
	minus, zero, alt, plus, space bool
	width, prec                   int // -1 is none
	starWidth, starPrec           node
	size                          int  // of the number in bytes
	conv                          byte // d, u, x, X, o, s, c, p
	ext                           string
	arg                           node
}

// maxLine bounds what is compiled; the kernel's longest is below 16 kB.
const maxLine = 1 << 20

// Compile reads the print fmt line of f.
func Compile(f *perfdata.EventFormat, o *Options) (*Format, error) {
	out := new(Format)
	if o != nil {
		out.o = *o
	}
	if out.o.LongSize != 4 {
		out.o.LongSize = 8
	}
	if len(f.Print) > maxLine {
		return nil, fmt.Errorf("%w: %d bytes", ErrUnsupported, len(f.Print))
	}
	p := &parser{lexer: lexer{s: f.Print}, f: f, long: out.o.LongSize}
	p.next()
	if p.err == nil && p.tok.kind != text {
		p.fail(ErrSyntax, "a format string expected")
	}
	format := p.strings()
	var args []node
	for p.accept(",") {
		args = append(args, p.argument())
	}
	if p.err == nil && p.tok.kind != end {
		p.fail(ErrSyntax, "%q behind the last argument", p.tok.s)
	}
	if p.err != nil {
		return nil, p.err
	}
	if err := out.split(format, args); err != nil {
		return nil, err
	}
	return out, nil
}

// split cuts the format string into parts.
func (f *Format) split(s string, args []node) error {
	var lit strings.Builder
	for {
		i := strings.IndexByte(s, '%')
		if i < 0 {
			break
		}
		lit.WriteString(s[:i])
		s = s[i+1:]
		if strings.HasPrefix(s, "%") {
			lit.WriteByte('%')
			s = s[1:]
			continue
		}
		v, n, used, err := f.verb(s, args)
		if err != nil {
			return err
		}
		f.parts = append(f.parts, part{lit.String(), v})
		lit.Reset()
		s, args = s[n:], args[used:]
	}
	lit.WriteString(s)
	f.parts = append(f.parts, part{literal: lit.String()})
	if len(args) > 0 {
		return fmt.Errorf("%w: %d arguments too many", ErrSyntax, len(args))
	}
	return nil
}

// verb reads what follows a %, and says how long it is and how many arguments
// it takes.
func (f *Format) verb(s string, args []node) (v *verb, n, used int, err error) {
	v = &verb{width: -1, prec: -1}
	arg := func() node {
		if used < len(args) {
			used++
			return args[used-1]
		}
		err = fmt.Errorf("%w: an argument is missing", ErrSyntax)
		return constant{}
	}
	n = v.flags(s)
	number := func(star *node) int {
		if strings.HasPrefix(s[n:], "*") {
			n++
			*star = arg()
			return -1
		}
		digits := span(s[n:], isDigit)
		w := 0
		for _, c := range s[n : n+digits] {
			w = min(w*10+int(c-'0'), maxWidth)
		}
		n += digits
		if digits == 0 {
			return -1
		}
		return w
	}
	v.width = number(&v.starWidth)
	if strings.HasPrefix(s[n:], ".") {
		n++
		if v.prec = number(&v.starPrec); v.prec < 0 && v.starPrec == nil {
			v.prec = 0
		}
	}
	n += v.length(s[n:], f.o.LongSize)
	if n == len(s) {
		return nil, 0, 0, fmt.Errorf("%w: the format ends in a %%", ErrSyntax)
	}
	v.conv = s[n]
	n++
	if !strings.Contains("diuxXoscp", string(v.conv)) {
		return nil, 0, 0, fmt.Errorf("%w: %%%c", ErrUnsupported, v.conv)
	}
	if v.conv == 'p' {
		v.ext = pointerKind(s[n:])
		n += len(v.ext)
		v.size = 8
	}
	v.arg = arg()
	return v, n, used, err
}

// maxWidth bounds the width of a number.
const maxWidth = 256

func (v *verb) flags(s string) int {
	for n := range len(s) {
		switch s[n] {
		case '-':
			v.minus = true
		case '0':
			v.zero = true
		case '#':
			v.alt = true
		case '+':
			v.plus = true
		case ' ':
			v.space = true
		default:
			return n
		}
	}
	return len(s)
}

// length reads the size of the argument.
func (v *verb) length(s string, long int) int {
	v.size = 4
	for _, l := range []struct {
		s    string
		size int
	}{{"hh", 1}, {"h", 2}, {"ll", 8}, {"L", 8}, {"l", long}, {"z", long}, {"j", 8}, {"t", long}} {
		if strings.HasPrefix(s, l.s) {
			v.size = l.size
			return len(l.s)
		}
	}
	return 0
}

// pointerKind is what follows %p, as far as it belongs to it.
func pointerKind(s string) string {
	for _, k := range []string{"S", "s", "F", "f", "B", "M", "m", "I4", "i4", "I6c", "I6", "i6", "ISpc", "ISp", "IS",
		"Ub", "Ul", "UB", "UL", "U", "bl", "b", "K", "x", "h"} {
		if strings.HasPrefix(s, k) {
			return k
		}
	}
	return ""
}

// maxText bounds the text of a sample, whatever its format repeats.
const maxText = 1 << 16

// Append appends the text of a sample's raw data, cut at 64 kB.
func (f *Format) Append(dst, raw []byte, o perf.Order) []byte {
	c := call{raw: raw, order: o, o: &f.o}
	start := len(dst)
	for i := range f.parts {
		p := &f.parts[i]
		dst = append(dst, p.literal...)
		if p.verb != nil {
			dst = p.verb.append(&c, dst)
		}
		if len(dst)-start > maxText {
			return dst[:start+maxText]
		}
	}
	return dst
}
