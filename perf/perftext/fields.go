// SPDX-License-Identifier: Apache-2.0

package perftext

import (
	"encoding/hex"
	"math"
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/perf"
)

// fields walks the fields of a line once for both directions: with parse it
// takes them from toks, otherwise it prints them to b. One walk per kind of
// line means that what is printed is what is read.
type fields struct {
	parse bool
	all   bool // print zeros as well
	b     []byte
	toks  []token
	end   int // column behind the line
	err   error
}

func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// has reports whether the line to be parsed has the field.
func (f *fields) has(key string) bool {
	for i := range f.toks {
		if t := &f.toks[i]; t.key == key && !t.used {
			return true
		}
	}
	return false
}

// take gives the field when parsing, nil if it is not there. Only strings
// have no key, and only they may be quoted.
func (f *fields) take(key string) *token {
	for i := range f.toks {
		t := &f.toks[i]
		if t.key != key || t.used || t.quoted != (key == "") {
			continue
		}
		t.used = true
		return t
	}
	return nil
}

// done checks that nothing of the line is left over.
func (f *fields) done() error {
	for i := range f.toks {
		if t := &f.toks[i]; !t.used && f.err == nil {
			switch {
			case t.key == "":
				f.err = syntaxError(t.col, "%q does not belong here", t.val)
			case t.quoted:
				f.err = syntaxError(t.col, "%s is not a string", t.key)
			default:
				f.err = syntaxError(t.col-len(t.key)-1,
					"%s is given twice, or is no field of this line or of its event", t.key)
			}
		}
	}
	return f.err
}

func (f *fields) key(key string) {
	f.b = append(append(append(f.b, ' '), key...), '=')
}

// integer is any type of number in a record.
type integer interface {
	~int32 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// num is a number that reads best in decimal.
func num[T integer](f *fields, key string, v *T) { number(f, key, v, 10) }

// hexa is a number that reads best in hexadecimal.
func hexa[T integer](f *fields, key string, v *T) { number(f, key, v, 16) }

func number[T integer](f *fields, key string, v *T, base int) {
	signed := ^T(0) < 0
	if !f.parse {
		if *v == 0 && !f.all {
			return
		}
		f.key(key)
		if signed {
			f.b = strconv.AppendInt(f.b, int64(*v), 10)
		} else {
			f.b = appendNumber(f.b, uint64(*v), base)
		}
		return
	}
	t := f.take(key)
	if t == nil {
		return
	}
	if signed {
		n, err := strconv.ParseInt(t.val, 0, 32)
		if err != nil {
			f.fail(syntaxError(t.col, "%s=%s is not a number of 32 bits", key, t.val))
		}
		*v = T(n)
		return
	}
	n, err := strconv.ParseUint(t.val, 0, 64)
	if err != nil || uint64(T(n)) != n {
		f.fail(syntaxError(t.col, "%s=%s is not a number, or too large", key, t.val))
	}
	*v = T(n)
}

func appendNumber(b []byte, v uint64, base int) []byte {
	if base == 16 {
		b = append(b, "0x"...)
	}
	return strconv.AppendUint(b, v, base)
}

// float is a number with a fraction, printed so that it reads back as it was.
func (f *fields) float(key string, v *float64) {
	if !f.parse {
		f.key(key)
		f.b = strconv.AppendFloat(f.b, *v, 'g', -1, 64)
	} else if t := f.take(key); t != nil {
		x, err := strconv.ParseFloat(t.val, 64)
		if err != nil {
			f.fail(syntaxError(t.col, "%s=%s is not a number", key, t.val))
		}
		*v = x
		if math.IsNaN(x) {
			*v = math.NaN() // one of the many
		}
	}
}

// boolean is a flag that is one field: key=1.
func (f *fields) boolean(key string, v *bool) {
	n := uint8(0)
	if *v {
		n = 1
	}
	num(f, key, &n)
	*v = n != 0
}

// str is the next string without a key. It is always printed.
func (f *fields) str(v *string) {
	if !f.parse {
		f.b = strconv.AppendQuote(append(f.b, ' '), *v)
	} else if t := f.take(""); t != nil {
		*v = t.val
	}
}

// strs are all strings without a key.
func (f *fields) strs(v *[]string) {
	for i := range *v {
		f.b = strconv.AppendQuote(append(f.b, ' '), (*v)[i])
	}
	for i := range f.toks {
		if t := &f.toks[i]; t.key == "" && t.quoted && !t.used {
			t.used = true
			*v = append(*v, t.val)
		}
	}
}

// bytes is a field of bytes in hexadecimal.
func (f *fields) bytes(key string, v *[]byte) {
	if !f.parse {
		if len(*v) > 0 || f.all {
			f.key(key)
			f.b = hex.AppendEncode(f.b, *v)
		}
		return
	}
	t := f.take(key)
	if t == nil || t.val == "" {
		return
	}
	p, err := hex.DecodeString(t.val)
	if err != nil {
		f.fail(syntaxError(t.col, "%s: %v", key, err))
	}
	*v = p
}

// tuples is a list of entries, each of the numbers that parts points to:
// 1/2/3,4/5/6.
func tuples[T any](f *fields, key string, base int, list *[]T, parts func(*T) []*uint64) {
	if !f.parse {
		if len(*list) == 0 {
			return
		}
		f.key(key)
		for i := range *list {
			for j, p := range parts(&(*list)[i]) {
				if i+j > 0 {
					f.b = append(f.b, "/,"[b2i(j == 0)])
				}
				f.b = appendNumber(f.b, *p, base)
			}
		}
		return
	}
	t := f.take(key)
	if t == nil || t.val == "" {
		return
	}
	for entry := range strings.SplitSeq(t.val, ",") {
		var v T
		into := parts(&v)
		words := strings.Split(entry, "/")
		if len(words) != len(into) {
			f.fail(syntaxError(t.col, "%s: %q does not have %d parts", key, entry, len(into)))
			return
		}
		for j, w := range words {
			n, err := strconv.ParseUint(w, 0, 64)
			if err != nil {
				f.fail(syntaxError(t.col, "%s: %q is not a number", key, w))
				return
			}
			*into[j] = n
		}
		*list = append(*list, v)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// words is a list of numbers.
func (f *fields) words(key string, base int, list *[]uint64) {
	tuples(f, key, base, list, func(v *uint64) []*uint64 { return []*uint64{v} })
}

// name is one bit, or several, of a set of flags.
type name struct {
	bits uint64
	name string
}

// flags is a set of flags: names, and what has none as a number.
func flags[T integer](f *fields, key string, v *T, names []name) {
	if !f.parse {
		if *v != 0 {
			f.key(key)
			f.b = appendFlags(f.b, uint64(*v), names)
		}
		return
	}
	t := f.take(key)
	if t == nil {
		return
	}
	for word := range strings.SplitSeq(t.val, "|") {
		n, ok := valueOf(word, names)
		if !ok || uint64(T(n)) != n {
			f.fail(syntaxError(t.col, "%s: no flag is called %q", key, word))
			return
		}
		*v |= T(n)
	}
}

func appendFlags(b []byte, v uint64, names []name) []byte {
	sep := false
	put := func() {
		if sep {
			b = append(b, '|')
		}
		sep = true
	}
	for _, n := range names {
		if n.bits != 0 && v&n.bits == n.bits {
			put()
			b = append(b, n.name...)
			v &^= n.bits
		}
	}
	if v != 0 {
		put()
		b = appendNumber(b, v, 16)
	}
	return b
}

func valueOf(word string, names []name) (uint64, bool) {
	for _, n := range names {
		if n.name == word {
			return n.bits, true
		}
	}
	n, err := strconv.ParseUint(word, 0, 64)
	return n, err == nil
}

// enum is one of several names, or a number.
func enum[T integer](f *fields, key string, v *T, names []name) {
	if !f.parse {
		for _, n := range names {
			if n.bits == uint64(*v) {
				f.key(key)
				f.b = append(f.b, n.name...)
				return
			}
		}
		hexa(f, key, v)
		return
	}
	if t := f.take(key); t != nil {
		n, ok := valueOf(t.val, names)
		if !ok || uint64(T(n)) != n {
			f.fail(syntaxError(t.col, "no %s is called %q", key, t.val))
		}
		*v = T(n)
	}
}

// misc is the misc field of a record, whose upper bits mean something else in
// each type.
func (f *fields) misc(typ perf.RecordType, m *perf.Misc) {
	mode := m.CPUMode()
	if !f.parse {
		if *m == 0 {
			return
		}
		rest := uint64(*m)
		f.key("misc")
		if s := cpuMode(mode); s != "" {
			f.b = append(f.b, s...)
			if rest &^= uint64(mode); rest == 0 {
				return
			}
			f.b = append(f.b, '|')
		}
		f.b = appendFlags(f.b, rest, miscNames(typ))
		return
	}
	names := append(cpuModes(), miscNames(typ)...)
	flags(f, "misc", m, names)
}
