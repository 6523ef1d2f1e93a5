// SPDX-License-Identifier: Apache-2.0

//go:build linux

package loads

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/perf/perfdata"
)

// record makes a record of the program 7.
func record(kind, index, offset, whole uint32, data []byte) []byte {
	var b []byte
	for _, v := range []uint32{kind, 7, index, offset, uint32(len(data)), whole} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	b = binary.LittleEndian.AppendUint64(b, 0xffffffffc0000000+uint64(index))
	b = append(b, 1, 2, 3, 4, 5, 6, 7, byte(index))
	return append(b, data...)
}

func loadRecord(subs uint32) []byte {
	b := make([]byte, loadSize)
	binary.LittleEndian.PutUint64(b, 99)
	binary.LittleEndian.PutUint64(b[8:], 5)
	for i, v := range []uint32{17, 1000, 1, 20, 3, subs, 41, 42, 4026531833} {
		binary.LittleEndian.PutUint32(b[16+4*i:], v)
	}
	copy(b[80:], "a name of 16 by\x00")
	copy(b[96:], "com")
	for i, v := range []uint32{2, 2, 1, 1, 2, 0, 3} { // what whole has
		binary.LittleEndian.PutUint32(b[112+4*i:], v)
	}
	return record(kindLoad, 0, 0, 0, b)
}

func words(v ...uint32) (b []byte) {
	for _, w := range v {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

// whole is all records of a program of two subprograms.
func whole() [][]byte {
	return [][]byte{
		loadRecord(2),
		record(kindCode, 0, 0, 3, []byte{1, 2}), record(kindCode, 0, 2, 3, []byte{3}),
		record(kindCode, 1, 0, 1, []byte{4}),
		record(kindMaps, 0, 0, 64, append(mapRecord(8, 0xffff888000001000, 0), mapRecord(9, 0xffff888000002000, 0xffff888000002100)...)),
		record(kindFuncs, 0, 0, 16, words(0, 1, 2, 3)),
		record(kindLines, 0, 0, 16, words(0, 1, 2, 3)),
		record(kindJITedLines, 0, 0, 8, words(4, 5)),
		record(kindBTF, 0, 0, 2, []byte{6, 7}),
		record(kindInsns, 0, 0, 24, insns(ld(0xffff888000002104), []uint64{0x95})),
		record(kindEnd, 0, 0, 0, nil),
	}
}

func TestParse(t *testing.T) {
	want := &Program{
		BPFProgram: perfdata.BPFProgram{
			Type: 17, ID: 7, Tag: [8]byte{1, 2, 3, 4, 5, 6, 7, 0}, LoadTime: 99, UID: 1000, Name: "a name of 16 by", GPL: true, BTFID: 3, Verified: 20,
			JITed: []byte{1, 2, 3, 4}, MapIDs: []uint32{8, 9}, KSyms: []uint64{0xffffffffc0000000, 0xffffffffc0000001}, FuncLens: []uint32{3, 1},
			Funcs: []perfdata.BPFFunc{{Insn: 0, Type: 1}, {Insn: 2, Type: 3}}, Tags: [][8]byte{{1, 2, 3, 4, 5, 6, 7, 0}, {1, 2, 3, 4, 5, 6, 7, 1}},
			Lines: []perfdata.BPFLine{{Insn: 0, File: 1, Text: 2, LineCol: 3}}, JITedLines: []uint64{5<<32 | 4},
			Xlated: append(words(0x2018, 9, 0, 4), words(0x95, 0)...),
		},
		BTF:    []byte{6, 7},
		Loader: perfdata.BPFLoader{PID: 41, TID: 42, Comm: "com", Cgroup: 5, Namespaces: map[string]uint64{"net": 4026531833}},
	}
	var p parser
	for i, b := range whole() {
		got, err := p.parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if i < len(whole())-1 {
			if got != nil {
				t.Fatalf("whole after record %d", i)
			}
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if len(p.parts) != 0 {
		t.Errorf("%d programs are kept", len(p.parts))
	}
}

// A program with all its code and another record missing is incomplete.
func TestParseIncomplete(t *testing.T) {
	all := whole()
	for lost := 4; lost < len(all)-1; lost++ {
		var p parser
		var got *Program
		for i, b := range all {
			if i == lost {
				continue
			}
			var err error
			if got, err = p.parse(b); err != nil {
				t.Fatal(err)
			}
		}
		if got == nil || !got.Incomplete {
			t.Errorf("without record %d: %+v", lost, got)
		}
	}
}

// A program with a record of its code missing is not told of.
func TestParseLost(t *testing.T) {
	for lost := range 4 {
		var p parser
		for i, b := range whole() {
			if i == lost {
				continue
			}
			got, err := p.parse(b)
			if got != nil || err != nil && !errors.Is(err, ErrRecord) {
				t.Errorf("without record %d: %v, %v", lost, got, err)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, b := range whole() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var p parser
		for _, r := range [][]byte{loadRecord(1), b, b, record(kindEnd, 0, 0, 0, nil)} {
			if _, err := p.parse(r); err != nil && !errors.Is(err, ErrRecord) {
				t.Fatal(err)
			}
		}
	})
}
