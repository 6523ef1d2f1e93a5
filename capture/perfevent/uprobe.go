// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/perf"
)

// uprobe adds uprobe:PATH:PLACE or uretprobe:PATH:PLACE: a probe of this event
// alone, which the kernel's uprobe device makes (Linux 4.17).
func (r *resolver) uprobe() error {
	kind, path, place := r.ev.parts[0], r.ev.parts[1], r.ev.parts[2]
	u, err := r.pmus.find("uprobe")
	if err != nil {
		return &ParseError{Kind: ErrUnsupported, Offset: kind.pos, Reason: "this kernel has no probes of single events",
			Cause: err}
	}
	s := EventSpec{Name: r.text(), Scale: 1, PMU: u.name, Attr: perf.Attr{Type: u.typ}}
	if kind.text == "uretprobe" {
		text, err := u.read("format/retprobe")
		if err == nil {
			err = applyField(&s, termSyntax{key: kind}, text)
		}
		if err != nil {
			return &ParseError{Kind: ErrUnsupported, Offset: kind.pos,
				Reason: "this kernel has no return probes of single events", Cause: err}
		}
	}
	name, err := filepath.Abs(path.text)
	if err != nil {
		return &ParseError{Kind: ErrTermValue, Offset: path.pos, Reason: "cannot find " + path.text, Cause: err}
	}
	off, err := probeOffset(name, path, place)
	if err != nil {
		return err
	}
	s.Probe = &Probe{Name: name, Offset: off}
	return r.add(s, word{})
}

// probeOffset is where in the file called name a place is: an offset into the
// file, a function, or a function and an offset from its start.
func probeOffset(name string, path, place word) (uint64, error) {
	bin, err := openBinary(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, failAt(path, ErrTermValue, "there is no file "+name)
	case err != nil:
		return 0, &ParseError{Kind: ErrTermValue, Offset: path.pos, Reason: "cannot probe " + name, Cause: err}
	}
	defer bin.close()
	off, reason := uint64(0), "is not in the code of "+name
	if c := place.text[0]; c >= '0' && c <= '9' {
		if off, err = number(place); err != nil {
			return 0, err
		}
		if !bin.executable(off) {
			return 0, failAt(place, ErrTermValue, place.text+" "+reason)
		}
		return off, nil
	}
	funcs, err := bin.functions()
	if err != nil {
		return 0, &ParseError{Kind: ErrTermValue, Offset: place.pos, Reason: "cannot read the symbols of " + name,
			Cause: err}
	}
	addr, err := findOffset(funcs, name, place)
	if err != nil {
		return 0, err
	}
	off, ok := bin.offset(addr)
	if !ok {
		return 0, failAt(place, ErrTermValue, place.text+" "+reason)
	}
	return off, nil
}

// findOffset is the address of FUNCTION or FUNCTION+OFFSET.
func findOffset(funcs map[string]function, name string, place word) (uint64, error) {
	want := place
	f, ok := funcs[want.text]
	add := uint64(0)
	if i := strings.LastIndexByte(place.text, '+'); !ok && i > 0 {
		want.text = place.text[:i]
		f, ok = funcs[want.text]
		n := word{text: place.text[i+1:], pos: place.pos + i + 1}
		var err error
		if add, err = number(n); err != nil {
			return 0, err
		}
		if ok && (f.size != 0 && add >= f.size || f.addr+add < f.addr) {
			return 0, failAt(n, ErrTermValue, fmt.Sprintf("%s has only %#x bytes", want.text, f.size))
		}
	}
	switch {
	case len(funcs) == 0:
		return 0, failAt(place, ErrTermValue, name+" has no symbols: write an offset in the file, 0xOFFSET")
	case !ok:
		near := suggest(want.text, slices.Collect(maps.Keys(funcs)))
		return 0, failAt(place, ErrTermValue, "no function "+strconv.Quote(want.text)+" in "+name, near...)
	case len(f.more) > 0:
		return 0, failAt(place, ErrTermValue,
			fmt.Sprintf("%d functions of %s are called %s: write the offset in the file of one, 0xOFFSET",
				len(f.more)+1, name, want.text))
	}
	return f.addr + add, nil
}
