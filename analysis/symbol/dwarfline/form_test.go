// SPDX-License-Identifier: Apache-2.0

package dwarfline

import (
	"fmt"
	"slices"
	"testing"
)

// Values of each form, in little endian, of a unit of version 5 with 8-byte addresses
// and 4-byte offsets.
var formCases = []struct {
	form  uint16
	bytes []byte
	n     uint64
	text  string
}{
	{formAddr, []byte{1, 2, 0, 0, 0, 0, 0, 0x80}, 0x8000000000000201, ""},
	{formData1, []byte{0xff}, 0xff, ""},
	{formFlag, []byte{1}, 1, ""},
	{formStrx1, []byte{3}, 3, ""},
	{formAddrx1, []byte{3}, 3, ""},
	{formData2, []byte{1, 2}, 0x201, ""},
	{formRef2, []byte{1, 2}, 0x201, ""},
	{formStrx2, []byte{1, 2}, 0x201, ""},
	{formStrx3, []byte{1, 2, 3}, 0x30201, ""},
	{formAddrx3, []byte{1, 2, 3}, 0x30201, ""},
	{formData4, []byte{1, 2, 3, 4}, 0x4030201, ""},
	{formRef4, []byte{1, 2, 3, 4}, 0x4030201, ""},
	{formData8, []byte{1, 0, 0, 0, 0, 0, 0, 2}, 0x200000000000001, ""},
	{formSdata, []byte{0x7f}, ^uint64(0), ""},
	{formSdata, []byte{0x80, 0x7f}, ^uint64(127), ""},
	{formUdata, []byte{0x80, 0x01}, 128, ""},
	{formRnglistx, []byte{5}, 5, ""},
	{formGNUStrIndex, []byte{0xe5, 0x8e, 0x26}, 624485, ""},
	{formStrp, []byte{9, 0, 0, 0}, 9, ""},
	{formLineStrp, []byte{9, 0, 0, 0}, 9, ""},
	{formSecOffset, []byte{9, 0, 0, 0}, 9, ""},
	{formRefAddr, []byte{9, 0, 0, 0}, 9, ""},
	{formFlagPresent, nil, 1, ""},
	{formString, []byte("abc\x00"), 0, "abc"},
}

// skippedForms are those whose values are of no use: only their length counts.
var skippedForms = []struct {
	form  uint16
	bytes []byte
}{
	{formBlock1, []byte{2, 0xaa, 0xbb}},
	{formBlock2, []byte{2, 0, 0xaa, 0xbb}},
	{formBlock4, []byte{2, 0, 0, 0, 0xaa, 0xbb}},
	{formBlock, []byte{2, 0xaa, 0xbb}},
	{formExprloc, []byte{2, 0xaa, 0xbb}},
	{formData16, make([]byte, 16)},
	{formIndirect, []byte{formData2, 0xaa, 0xbb}},
	{formIndirect, []byte{formBlock1, 1, 0xaa}},
}

func formUnit() *unit {
	f := &file{d: &Data{fuel: 1 << 20}, src: &Source{}}
	u := &unit{file: f, enc: encoding{version: 5, addressSize: 8, offsetSize: 4}}
	u.base.addrFile = f
	return u
}

// A value is read, or stepped over, by the same number of bytes; one that is cut
// makes the buffer bad.
func TestForms(t *testing.T) {
	u := formUnit()
	for _, c := range formCases {
		t.Run(fmt.Sprintf("%#x", c.form), func(t *testing.T) {
			checkLength(t, u, c.form, c.bytes)
			v := u.value(&buf{b: c.bytes}, &attr{form: c.form})
			if v.form != c.form || v.n != c.n || string(v.text) != c.text {
				t.Errorf("%+v, want %#x %q", v, c.n, c.text)
			}
			// The same behind its form.
			indirect := append([]byte{byte(c.form)}, c.bytes...)
			if c.form < 0x80 {
				if v := u.value(&buf{b: indirect}, &attr{form: formIndirect}); v.form != c.form || v.n != c.n {
					t.Errorf("indirect: %+v", v)
				}
			}
		})
	}
	for _, c := range skippedForms {
		checkLength(t, u, c.form, c.bytes)
	}
	if v := u.value(&buf{}, &attr{form: formImplicitConst, value: -3}); v.n != ^uint64(2) {
		t.Errorf("implicit constant: %+v", v)
	}
	for _, bad := range [][]byte{{formIndirect}, {formImplicitConst}, {0x7e}, {}} {
		r := &buf{b: bad}
		if v := u.value(r, &attr{form: formIndirect}); v.ok() || !r.bad {
			t.Errorf("indirect % x: %+v, bad %v", bad, v, r.bad)
		}
	}
}

func checkLength(t *testing.T, u *unit, form uint16, b []byte) {
	t.Helper()
	op, ok := skipOf(form, u.enc)
	if !ok {
		t.Errorf("form %#x is not known", form)
		return
	}
	tail := append(slices.Clone(b), 0x55, 0x55)
	read, stepped := &buf{b: tail}, &buf{b: tail}
	u.value(read, &attr{form: form})
	stepped.step(op, u.enc)
	if n := uint64(len(b)); read.off != n || stepped.off != n || read.bad || stepped.bad {
		t.Errorf("form %#x: read %d and stepped over %d of %d bytes", form, read.off, stepped.off, n)
	}
	if len(b) == 0 {
		return
	}
	read, stepped = &buf{b: b[:len(b)-1]}, &buf{b: b[:len(b)-1]}
	u.value(read, &attr{form: form})
	stepped.step(op, u.enc)
	if !read.bad || !stepped.bad {
		t.Errorf("form %#x, a byte less: not bad (%v, %v)", form, read.bad, stepped.bad)
	}
}

// Numbers in both byte orders, and beyond the end.
func TestBufOrders(t *testing.T) {
	b := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	for size, want := range map[uint8][2]uint64{
		1: {1, 1}, 2: {0x201, 0x102}, 4: {0x4030201, 0x1020304}, 8: {0x807060504030201, 0x102030405060708},
	} {
		for i, big := range []bool{false, true} {
			r := &buf{b: b, big: big}
			if got := r.uint(size); got != want[i] || r.off != uint64(size) || r.bad {
				t.Errorf("%d bytes, big %v: %#x, want %#x", size, big, got, want[i])
			}
			short := &buf{b: b[:size-1], big: big}
			if got := short.uint(size); got != 0 || !short.bad || short.more() {
				t.Errorf("%d of %d bytes: %#x, bad %v", size-1, size, got, short.bad)
			}
		}
	}
	if r := (&buf{b: b, big: true}); r.u24() != 0x10203 {
		t.Error("three bytes, the highest first")
	}
	if r := (&buf{b: b}); r.uint(3) != 0 || !r.bad {
		t.Error("a number of three bytes is none of uint's")
	}
	for _, off := range []uint64{9, ^uint64(0)} {
		r := &buf{b: b, off: 4}
		if r.seek(off); !r.bad {
			t.Errorf("seek %d is not bad", off)
		}
		r = &buf{b: b, off: 4}
		if r.skip(off); !r.bad {
			t.Errorf("skip %d is not bad", off)
		}
	}
}

// Each kind of entry of .debug_rnglists.
func TestNewRanges(t *testing.T) {
	address := func(n byte) []byte { return []byte{n, 0, 0, 0, 0, 0, 0, 0} }
	for _, c := range []struct {
		name string
		list [][]byte
		want string
		bad  bool
	}{
		{"empty", [][]byte{{rleEndOfList}}, "[]", false},
		{"offsets from the unit", [][]byte{{rleOffsetPair, 1, 2}, {rleEndOfList}}, "[[101 102]]", false},
		{"offsets from a base", [][]byte{{rleBaseAddress}, address(50), {rleOffsetPair, 1, 2}, {rleEndOfList}}, "[[51 52]]", false},
		{"offsets from an address by number", [][]byte{{rleBaseAddressx, 1, rleOffsetPair, 1, 2, rleEndOfList}}, "[[21 22]]", false},
		{"addresses", [][]byte{{rleStartEnd}, address(7), address(9), {rleEndOfList}}, "[[7 9]]", false},
		{"address and length", [][]byte{{rleStartLength}, address(7), {9, rleEndOfList}}, "[[7 16]]", false},
		{"addresses by number", [][]byte{{rleStartxEndx, 0, 1, rleEndOfList}}, "[[10 20]]", false},
		{"address by number and length", [][]byte{{rleStartxLength, 1, 5, rleEndOfList}}, "[[20 25]]", false},
		{"numbers that do not exist", [][]byte{{rleStartxEndx, 0, 9, rleStartxLength, 9, 5, rleEndOfList}}, "[]", false},
		{"an entry that is cut", [][]byte{{rleStartEnd}, address(7), {1, 2}}, "[]", true},
		{"no end", [][]byte{{rleOffsetPair, 1, 2}}, "[[101 102]]", true},
		{"an unknown kind", [][]byte{{0x7f, 1, 2}}, "[]", true},
	} {
		u := formUnit()
		u.base.low = 100
		u.file.src.Addr = append(address(10), address(20)...)
		r := &buf{b: slices.Concat(c.list...)}
		got := [][2]uint64{}
		u.newRanges(r, func(start, end uint64) { got = append(got, [2]uint64{start, end}) })
		if fmt.Sprint(got) != c.want || r.bad != c.bad {
			t.Errorf("%s: %v, bad %v, want %s, %v", c.name, got, r.bad, c.want, c.bad)
		}
	}
}

// Texts by offset and by number.
func TestFormTexts(t *testing.T) {
	u := formUnit()
	u.base.strOffsets = 8
	u.file.src.Str, u.file.src.LineStr = []byte("zero\x00one\x00"), []byte("line\x00")
	u.file.src.StrOffsets = []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0}
	for _, c := range []struct {
		v    value
		want string
	}{
		{value{form: formString, text: []byte("own")}, "own"},
		{value{form: formStrp, n: 5}, "one"},
		{value{form: formStrp, n: 99}, ""},
		{value{form: formLineStrp}, "line"},
		{value{form: formStrx, n: 0}, "zero"},
		{value{form: formStrx1, n: 1}, "one"},
		{value{form: formGNUStrIndex, n: 2}, ""},
		{value{form: formStrx4, n: ^uint64(0)}, ""},
		{value{form: formData1, n: 1}, ""},
	} {
		if got := u.text(c.v); string(got) != c.want {
			t.Errorf("%+v: %q, want %q", c.v, got, c.want)
		}
	}
}
