// SPDX-License-Identifier: Apache-2.0

package pclntab

import (
	"encoding/binary"
	"slices"
	"testing"
)

// tiny is a table of one function at 0x1000, of 0x20 bytes, into which another is
// inlined from 0x1008 to 0x1010, and the data of the inlined call.
func tiny() (table, data []byte) {
	le := binary.LittleEndian
	names := []byte("main.main\x00main.add\x00")
	cus := le.AppendUint32(nil, 0)
	files := []byte("/src/main.go\x00")
	pcs := []byte{0, 2, 0x20, 0} // from 1 on: file 0 to the end
	lines := len(pcs)
	pcs = append(pcs, 22, 8, 20, 8, 19, 16, 0) // lines 10, 20, 10
	inline := len(pcs)
	pcs = append(pcs, 0, 8, 2, 8, 1, 16, 0) // -1, 0, -1
	u32 := func(b []byte, list ...uint32) []byte {
		for _, v := range list {
			b = le.AppendUint32(b, v)
		}
		return b
	}
	funcs := u32(nil, 0, 16, 0x20, 0) // functab
	funcs = u32(funcs, 0, 0, 0, 0, 0, 1, uint32(lines), 3, 0, 1)
	funcs = append(funcs, 0, 0, 0, 4)
	funcs = u32(funcs, 0, 0, uint32(inline), noFuncdata, noFuncdata, noFuncdata, 0)
	head := u32(nil, magic120)
	head = append(head, 0, 0, 1, 8)
	off := uint64(72)
	for _, v := range []uint64{1, 1, 0x1000} {
		head = le.AppendUint64(head, v)
	}
	var body []byte
	for _, part := range [][]byte{names, cus, files, pcs, funcs} {
		head = le.AppendUint64(head, off+uint64(len(body)))
		body = append(body, part...)
	}
	data = u32(nil, 0, 10, 4, 1)
	return append(head, body...), data
}

// FuzzTable checks that calls come out the same twice, with bounded names, and
// that functions are in the order of their numbers.
func FuzzTable(f *testing.F) {
	table, data := tiny()
	f.Add(table, data)
	f.Fuzz(func(t *testing.T, b, data []byte) {
		x := &Table{fuel: 1 << 20, data: data}
		if x.header(b) != nil {
			return
		}
		for i := range min(x.Len(), 64) {
			name, start, end := x.Func(i)
			if len(name) > maxName {
				t.Fatalf("a name of %d bytes", len(name))
			}
			for _, pc := range []uint64{start, start + 8, end - 1} {
				calls := x.Calls(nil, pc)
				if len(calls) > maxInlined+1 {
					t.Fatalf("%d calls", len(calls))
				}
				if again := x.Calls(nil, pc); x.fuel > 0 && !slices.Equal(calls, again) {
					t.Fatalf("%v, then %v", calls, again)
				}
			}
		}
	})
}

func TestTiny(t *testing.T) {
	b, data := tiny()
	x := &Table{fuel: maxWork, data: data}
	if err := x.header(b); err != nil {
		t.Fatal(err)
	}
	const file = "/src/main.go"
	for pc, want := range map[uint64][]Call{
		0x1000: {{"main.main", file, 10}},
		0x1009: {{"main.add", file, 20}, {"main.main", file, 10}},
		0x101f: {{"main.main", file, 10}},
		0x1020: nil, 0xfff: nil,
	} {
		if got := x.Calls(nil, pc); !slices.Equal(got, want) {
			t.Errorf("%#x: %v, want %v", pc, got, want)
		}
	}
	for n := range len(b) {
		x := &Table{fuel: maxWork, data: data}
		if x.header(b[:n]) == nil {
			x.Calls(nil, 0x1009)
		}
	}
}
