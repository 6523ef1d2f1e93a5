// SPDX-License-Identifier: Apache-2.0

package dwarfline

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

// unit4 is a unit of version 4 with these DIEs behind its first one, which
// covers the addresses from 0x1000 to 0x2000.
func unit4(dies ...byte) []byte {
	body := []byte{4, 0, 0, 0, 0, 0, 8, 1}
	body = binary.LittleEndian.AppendUint64(body, 0x1000)
	body = binary.LittleEndian.AppendUint64(body, 0x1000)
	body = append(append(body, dies...), 0)
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// abbrev4 has the unit (1), a function with low_pc, high_pc, abstract_origin and
// no children (2), the same with children (3), and a name that refers on (4).
func abbrev4() []byte {
	return []byte{
		1, 0x11, 1, atLowpc, formAddr, atHighpc, formData8, 0, 0,
		2, tagSubprogram, 0, atLowpc, formAddr, atHighpc, formData8, atAbstractOrigin, formRef4, 0, 0,
		3, tagInlinedSubroutine, 1, atLowpc, formAddr, atHighpc, formData8, atAbstractOrigin, formRef4, 0, 0,
		4, tagSubprogram, 0, atSpecification, formRef4, 0, 0,
		0,
	}
}

func die(code byte, low, size uint64, origin uint32) []byte {
	b := binary.LittleEndian.AppendUint64([]byte{code}, low)
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(b, size), origin)
}

// References that go round in a circle end.
func TestCycle(t *testing.T) {
	const self = 4 + 24 // the first DIE behind that of the unit
	for name, dies := range map[string][]byte{
		"itself":  die(2, 0x1100, 0x100, self-1),
		"two":     append(die(2, 0x1100, 0x100, self+20), 4, self+20, 0, 0, 0),
		"nowhere": die(2, 0x1100, 0x100, 0xffffff),
		"header":  die(2, 0x1100, 0x100, 1),
	} {
		d := New(&Source{Info: unit4(dies...), Abbrev: abbrev4()}, nil)
		if calls := d.Calls(nil, 0x1110); len(calls) != 1 || calls[0] != (Call{}) {
			t.Errorf("%s: %v", name, calls)
		}
	}
}

// An inlined call may have its name in the alternate file, as dwz leaves it; that
// file may refer on, but not to itself for ever.
func TestAlternate(t *testing.T) {
	abbrev := []byte{
		1, 0x11, 1, atLowpc, formAddr, atHighpc, formData8, 0, 0,
		2, tagSubprogram, 1, atLowpc, formAddr, atHighpc, formData8, atName, 0xa1, 0x3e, 0, 0, // GNU_strp_alt
		3, tagInlinedSubroutine, 0, atLowpc, formAddr, atHighpc, formData8, atAbstractOrigin, 0xa0, 0x3e, 0, 0, // GNU_ref_alt
		0,
	}
	altAbbrev := []byte{
		1, tagPartialUnit, 1, 0, 0,
		2, tagSubprogram, 0, atName, formString, 0, 0,
		3, tagSubprogram, 0, atSpecification, formRef4, 0, 0,
		0,
	}
	const first = 12 // the first DIE behind that of the partial unit
	altBody := append([]byte{4, 0, 0, 0, 0, 0, 8, 1, 2}, "shared\x00"...)
	altBody = append(altBody, 3, first, 0, 0, 0)              // refers to it
	altBody = append(altBody, 3, byte(first+8+5), 0, 0, 0, 0) // refers to itself
	alt := &Source{Info: append(binary.LittleEndian.AppendUint32(nil, uint32(len(altBody))), altBody...), Abbrev: altAbbrev, Str: []byte("\x00outer\x00")}
	for origin, want := range map[uint32]string{first: "shared", first + 8: "shared", first + 13: "", 7000: ""} {
		var dies []byte
		dies = append(dies, die(2, 0x1100, 0x100, 1)...)
		dies = append(dies, die(3, 0x1110, 0x10, origin)...)
		dies = append(dies, 0)
		d := New(&Source{Info: unit4(dies...), Abbrev: abbrev}, &Options{Alt: func() *Source { return alt }})
		calls := d.Calls(nil, 0x1118)
		if len(calls) != 2 || calls[0].Name != want || calls[1].Name != "outer" {
			t.Errorf("%d: %v, want %q in outer", origin, calls, want)
		}
		d = New(&Source{Info: unit4(dies...), Abbrev: abbrev}, nil)
		if calls := d.Calls(nil, 0x1118); len(calls) != 2 || calls[0].Name != "" {
			t.Errorf("%d without the file: %v", origin, calls)
		}
	}
}

// A tree that is too deep is left at a limit, and that is told.
func TestDeep(t *testing.T) {
	var dies []byte
	for range maxDepth + 10 {
		dies = append(dies, die(3, 0x1100, 0x100, 1)...)
	}
	d := New(&Source{Info: unit4(dies...), Abbrev: abbrev4()}, nil)
	if calls := d.Calls(nil, 0x1110); len(calls) < maxDepth/2 || len(calls) > maxDepth {
		t.Errorf("%d calls", len(calls))
	}
	if !errors.Is(d.Err(), ErrMalformed) {
		t.Error(d.Err())
	}
}

// Many functions that refer to one long list of ranges take no more than the
// size of the file allows for.
func TestSharedRanges(t *testing.T) {
	abbrev := []byte{
		1, 0x11, 1, atLowpc, formAddr, atHighpc, formData8, 0, 0,
		2, tagSubprogram, 0, atRanges, formSecOffset, 0, 0, 0,
	}
	var ranges []byte
	for i := range uint64(50_000) {
		ranges = binary.LittleEndian.AppendUint64(ranges, 0x100+i%64)
		ranges = binary.LittleEndian.AppendUint64(ranges, 0x200+i%64)
	}
	ranges = append(ranges, make([]byte, 16)...)
	info := unit4(bytes.Repeat([]byte{2, 0, 0, 0, 0}, 50_000)...)
	d := New(&Source{Info: info, Abbrev: abbrev, Ranges: ranges}, nil)
	d.Calls(nil, 0x1110)
	if !errors.Is(d.Err(), ErrTooMuch) {
		t.Error(d.Err())
	}
	if n := len(d.main.units[0].tree.starts); n > 2*maxRanges {
		t.Errorf("%d segments", n)
	}
}

// Any part of a file is as good as its whole, or is told to be broken.
func TestTruncated(t *testing.T) {
	whole := source(t)
	addrs := New(whole, nil)
	addrs.index()
	for n := 0; n < len(whole.Info); n += 7 {
		part := *whole
		part.Info, part.Line, part.Abbrev = whole.Info[:n], whole.Line[:min(n, len(whole.Line))], whole.Abbrev[:min(n, len(whole.Abbrev))]
		d := New(&part, nil)
		for _, r := range addrs.ranges {
			if calls := d.Calls(nil, r.start); len(calls) > 0 && n < len(whole.Info)/2 {
				t.Errorf("%d of %d bytes: %v", n, len(whole.Info), calls)
			}
		}
		if n > 0 && d.Err() == nil {
			t.Errorf("%d of %d bytes: no error", n, len(whole.Info))
		}
	}
}

// A table of directories or files whose entries take no bytes would have as many
// as it claims.
func TestEmptyEntries(t *testing.T) {
	for name, form := range map[string]byte{"flag": formFlagPresent, "constant": formImplicitConst} {
		tables := []byte{1, lnctPath, form}
		tables = binary.AppendUvarint(tables, maxFiles) // directories
		tables = append(tables, 1, lnctPath, form)
		tables = append(binary.AppendUvarint(tables, maxFiles), 0) // files
		head := append([]byte{1, 1, 1, 0, 1, 1}, tables...)
		body := append(binary.LittleEndian.AppendUint32([]byte{5, 0, 8, 0}, uint32(len(head))), head...)
		line := append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...)
		abbrev := []byte{1, 0x11, 1, atLowpc, formAddr, atHighpc, formData8, atStmtList, formSecOffset, 0, 0, 0}
		d := New(&Source{Info: unit4(0, 0, 0, 0), Abbrev: abbrev, Line: line}, nil)
		d.Calls(nil, 0x1110)
		if !errors.Is(d.Err(), ErrMalformed) {
			t.Errorf("%s: %v", name, d.Err())
		}
		if l := &d.main.units[0].lines; len(l.dirs)+len(l.files) > 0 {
			t.Errorf("%s: %d directories and %d files", name, len(l.dirs), len(l.files))
		}
	}
}

// Many functions may have one long name, and many files one long path. What is
// kept of them is bounded, and it is told that there was more.
func TestLongNames(t *testing.T) {
	const size, many = maxNameSize - 1, maxTexts/(maxNameSize-1) + 10
	abbrev := []byte{
		1, 0x11, 1, atLowpc, formAddr, atHighpc, formData8, 0, 0,
		2, tagSubprogram, 0, atLowpc, formAddr, atHighpc, formData1, atName, formStrp, 0, 0,
		0,
	}
	var dies []byte
	for i := range uint64(many) {
		dies = append(binary.LittleEndian.AppendUint64(append(dies, 2), 0x1000+i), 1, 0, 0, 0, 0)
	}
	info := unit4(dies...)
	binary.LittleEndian.PutUint64(info[4+8+8:], many)
	d := New(&Source{Info: info, Abbrev: abbrev, Str: append(bytes.Repeat([]byte{'x'}, size), 0)}, nil)
	d.texts = maxTexts - 3*size // as if most had been read
	named := 0
	for i := range uint64(many) {
		calls := d.Calls(nil, 0x1000+i)
		if len(calls) != 1 {
			t.Fatalf("%d: %v", i, calls)
		}
		if calls[0].Name != "" {
			named++
		}
	}
	if named != 3 || d.texts > maxTexts || !errors.Is(d.Err(), ErrTooMuch) {
		t.Errorf("%d names, %d bytes, %v", named, d.texts, d.Err())
	}
}
