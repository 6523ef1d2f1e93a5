// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"path"
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// frameKey is what makes two frames the same function to a reader.
type frameKey struct {
	name, dso string
	addr      uint64  // of a frame without a name
	source    *source // nil if it is not asked for; keyspace has one of each
	program   string  // the BPF program, and the container that loaded it
	loader    string
	kernel    bool
	inlined   bool
}

// source is what is asked for of a source line: itself, and its file.
type source struct{ line, file string }

// line is the source line, "" if it is not asked for, or of no function.
func (k *frameKey) line() string {
	if k.source == nil {
		return ""
	}
	return k.source.line
}

// file is the same for the source file.
func (k *frameKey) file() string {
	if k.source == nil {
		return ""
	}
	return k.source.file
}

func (k *frameKey) compareSource(o *frameKey) int {
	if k.source == o.source {
		return 0
	}
	return cmp.Or(strings.Compare(k.line(), o.line()), strings.Compare(k.file(), o.file()))
}

func (k frameKey) compare(o frameKey) int {
	kernel := 0
	if k.kernel != o.kernel {
		kernel = 1
		if o.kernel {
			kernel = -1
		}
	}
	return cmp.Or(strings.Compare(k.name, o.name), strings.Compare(k.dso, o.dso),
		cmp.Compare(k.addr, o.addr), kernel, k.compareSource(&o), k.compareInlined(o),
		strings.Compare(k.program, o.program), strings.Compare(k.loader, o.loader))
}

func (k frameKey) compareInlined(o frameKey) int {
	switch {
	case k.inlined == o.inlined:
		return 0
	case o.inlined:
		return -1
	}
	return 1
}

// plain is symbol without the mark of an inlined call.
func (k frameKey) plain() string {
	k.inlined = false
	return k.symbol()
}

// symbol is the function's name, with perf's way to show that there is none.
func (k frameKey) symbol() string {
	switch {
	case k.name != "" && k.inlined:
		return k.name + inlinedMark
	case k.name != "":
		return k.name
	case k.addr != 0:
		b := append(make([]byte, 0, len("0x0123456789abcdef")), "0x"...)
		return string(hex.AppendEncode(b, binary.BigEndian.AppendUint64(nil, k.addr)))
	}
	return unknown
}

const (
	unknown     = "[unknown]"
	inlinedMark = " (inlined)" // as perf has it
)

// level is perf's mark of the privilege level.
func (k frameKey) level() string {
	if k.kernel {
		return "[k] "
	}
	return "[.] "
}

func dsoText(f *profile.Frame) string { return cmp.Or(f.DSO, unknown) }

// sourceLine is FILE:LINE with the last part of the file's path, as perf has it;
// where no line is known the function, or the address.
func sourceLine(f *profile.Frame) string {
	if f.File == "" {
		return frameKey{name: f.Name, addr: f.Addr}.symbol()
	}
	return path.Base(f.File) + ":" + strconv.FormatUint(uint64(f.Line), 10)
}

func sourceFile(f *profile.Frame) string {
	if f.File == "" {
		return unknown
	}
	return path.Base(f.File)
}
