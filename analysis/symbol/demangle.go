// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"strconv"
	"strings"
	"sync"

	"github.com/ianlancetaylor/demangle"
)

// maxDemangled bounds a demangled name to 2^n characters. Hostile names grow
// without limit.
const maxDemangled = 14

// Some names take time by the square of their length. maxMangled bounds those
// that are demangled at all, freeMangled those that are not counted, and
// maxDemangling the squares of the others of one file, added up: about a second.
//
// To choose among the symbols at one address, all of a file may have to be
// demangled: freeAliases bounds the squares of two names that are not counted,
// and maxAliases what others exceed it by.
const (
	maxMangled    = 1 << 14
	freeMangled   = 1 << 9
	maxDemangling = 1 << 29
	freeAliases   = 1 << 15
	maxAliases    = 1 << 30
)

// demangling demangles the names of one file, in bounded time. Its zero value is
// ready.
type demangling struct {
	work    int // squares of the lengths of long names
	aliases int // squares of the lengths of aliases
}

// name is like Demangle, but returns a long name as it is after too many.
func (d *demangling) name(raw string) string {
	if n := len(raw); n > freeMangled && mangled(raw) {
		if n*n > maxDemangling-d.work {
			return raw
		}
		d.work += n * n
	}
	return Demangle(raw)
}

// pair demangles the names of two symbols at one address, both or neither.
func (d *demangling) pair(a, b string) (string, string) {
	work := -freeAliases
	for _, name := range []string{a, b} {
		if mangled(name) {
			work += len(name) * len(name)
		}
	}
	if work > 0 {
		if work > maxAliases-d.aliases {
			return a, b
		}
		d.aliases += work
	}
	return Demangle(a), Demangle(b)
}

// names remembers demangled names by symbol. Its zero value is ready.
type names struct {
	mu   sync.Mutex
	text map[int32]string
	demangling
}

// Demangled is the name of a symbol as people write it: C++ and Rust names are
// demangled, without parameters, as perf does unless told to be verbose. Others are returned as
// they are, and so are very long ones, of which only so many are demangled. A name is demangled
// once.
func (o *Object) Demangled(sym int32) string {
	raw := o.Name(sym)
	if !mangled(raw) {
		return raw
	}
	o.demangled.mu.Lock()
	defer o.demangled.mu.Unlock()
	if text, ok := o.demangled.text[sym]; ok {
		return text
	}
	text := o.demangled.name(raw)
	if o.demangled.text == nil {
		o.demangled.text = make(map[int32]string)
	}
	o.demangled.text[sym] = text
	return text
}

// mangled reports whether a name may be a C++ or Rust one.
func mangled(name string) bool {
	if len(name) <= 2 || len(name) > maxMangled {
		return false
	}
	return name[0] == '_' && (name[1] == 'Z' || name[1] == 'R')
}

// Demangle is the form of a symbol's name that people read. Names that are not
// mangled are returned as they are. A suffix that begins with "@", a version or
// "plt", is kept.
func Demangle(name string) string {
	if !mangled(name) {
		return name
	}
	base, suffix := name, ""
	if at := strings.IndexByte(name, '@'); at >= 0 {
		base, suffix = name[:at], name[at:]
	}
	return demangle.Filter(keepUnderscores(base), demangle.NoParams, demangle.MaxLength(maxDemangled)) + suffix
}

// rustHash is the last part of a Rust name in the older of its two forms, after
// which only "E" follows.
const rustHash = "17h0123456789abcdef"

// keepUnderscores doubles the first underscore of the parts of a Rust name like
// "_ZN3std28__rust_begin_short_backtrace17h0123456789abcdefE". The demangler
// takes it for an escape, which it is only before a "$".
func keepUnderscores(name string) string {
	end := len(name) - len(rustHash) - 1
	if !strings.HasPrefix(name, "_ZN") || end < 0 || name[len(name)-1] != 'E' ||
		!strings.HasPrefix(name[end:], "17h") {
		return name
	}
	var b strings.Builder
	b.WriteString("_ZN")
	for rest := name[len("_ZN"):end]; rest != ""; {
		digits := 0
		for digits < len(rest) && '0' <= rest[digits] && rest[digits] <= '9' {
			digits++
		}
		n, err := strconv.Atoi(rest[:digits])
		if err != nil || n > len(rest)-digits {
			return name
		}
		part := rest[digits : digits+n]
		if strings.HasPrefix(part, "_") && !strings.HasPrefix(part, "_$") {
			part = "_" + part
		}
		b.WriteString(strconv.Itoa(len(part)))
		b.WriteString(part)
		rest = rest[digits+n:]
	}
	b.WriteString(name[end:])
	return b.String()
}
