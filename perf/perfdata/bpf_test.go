// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gantry-tools/gantry/perf"
)

func testBPFPrograms() []BPFProgram {
	return []BPFProgram{{
		Type: 5, ID: 7, Tag: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}, LoadTime: 1 << 40, UID: 1000, Name: "main_prog",
		IfIndex: 3, GPL: true, NetnsDev: 4, NetnsIno: 5, BTFID: 11, RunTimeNS: 12, RunCount: 13, Recursions: 14,
		Verified: 15, AttachBTFID: 16, AttachBTFObj: 17,
		JITed: []byte{0x55, 0xc3, 0x90}, Xlated: []byte{0x95, 0, 0, 0, 0, 0, 0, 0}, MapIDs: []uint32{1, 2, 3},
		KSyms: []uint64{0xffffffffc0000000, 0xffffffffc0001000}, FuncLens: []uint32{1, 2},
		Funcs: []BPFFunc{{0, 4}, {1, 9}}, Tags: [][8]byte{{1}, {2}},
		Lines: []BPFLine{{0, 1, 9, 12<<10 | 5}}, JITedLines: []uint64{0xffffffffc0000000},
	}, {ID: 8, Name: "all the 15 byte"}}
}

func TestBPFPrograms(t *testing.T) {
	for _, o := range orders {
		want := testBPFPrograms()
		b := AppendBPFPrograms(nil, o, want)
		got, err := DecodeBPFPrograms(b, o)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("decoded (-want +got):\n%s, error %v", diff, err)
		}
		for n := 1; n < len(b); n++ {
			got, err := DecodeBPFPrograms(b[:n], o)
			if !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrFormat) {
				t.Fatalf("cut at %d: %v", n, err)
			}
			if len(got) > 1 {
				t.Fatalf("cut at %d: %d programs", n, len(got))
			}
		}
	}
	if l := (BPFLine{LineCol: 12<<10 | 5}); l.Line() != 12 || l.Column() != 5 {
		t.Errorf("line %d, column %d", l.Line(), l.Column())
	}
}

// A program of a kernel that tells less, or more: each size is in the section.
func TestBPFProgramSizes(t *testing.T) {
	o := perf.LittleEndian
	head := func(infoLen, dataLen uint32, mask uint64) []byte {
		b := o.AppendUint32(nil, 1)
		return o.AppendUint64(o.AppendUint32(o.AppendUint32(b, infoLen), dataLen), mask)
	}
	info := AppendBPFPrograms(nil, o, []BPFProgram{{ID: 9, Name: "x"}})[4+bpfHeadSize:]
	old, err := DecodeBPFPrograms(append(head(80, 0, 0), info[:80]...), o)
	if err != nil || len(old) != 1 || old[0].ID != 9 || old[0].Name != "x" {
		t.Errorf("of Linux 4.15: %+v, %v", old, err)
	}
	// Line infos of 24 bytes in a struct of 240.
	info = append(slices.Clone(info), make([]byte, 8)...)
	copy(info[148:], o.AppendUint32(nil, 2))
	copy(info[172:], o.AppendUint32(nil, 24))
	b := append(head(240, 48, 1<<bpfLines), info...)
	data := make([]byte, 48)
	data[0], data[24] = 1, 2
	got, err := DecodeBPFPrograms(append(b, data...), o)
	if err != nil || !cmp.Equal(got[0].Lines, []BPFLine{{Insn: 1}, {Insn: 2}}) {
		t.Errorf("of a later kernel: %+v, %v", got, err)
	}
}

func TestBPFBTF(t *testing.T) {
	for _, o := range orders {
		want := []BPFBTF{{1, []byte("types")}, {2, nil}, {3, []byte{0}}}
		b := AppendBPFBTF(nil, o, want)
		got, err := DecodeBPFBTF(b, o)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Errorf("decoded (-want +got):\n%s, error %v", diff, err)
		}
		got, err = DecodeBPFBTF(b[:len(b)-1], o)
		if !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrFormat) || len(got) != 2 {
			t.Errorf("cut: %d of them, error %v", len(got), err)
		}
	}
}

func TestGantryBPF(t *testing.T) {
	want := []BPFProgramLife{{
		ID: 7, Tag: "0102030405060708", Name: "bad\ufffdname", Type: 5, UID: 3, Loaded: 10, Unloaded: 20, Before: true,
		Loader:   &BPFLoader{PID: 4, TID: 5, Comm: "loader", Cgroup: 99, Namespaces: map[string]uint64{"pid": 4026531836}},
		Attached: []BPFAttachment{{Kind: "cgroup", Link: 3, Target: "/x", Cgroup: 9}},
		Route:    BPFRouteKernel, Missed: "it was gone",
	}}
	b, err := json.Marshal(struct {
		Version int `json:"version"`
		GantryBPF
	}{1, GantryBPF{want}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeGantryBPF(b)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("decoded (-want +got):\n%s, error %v", diff, err)
	}
	if got, err := DecodeGantryBPF(nil); got != nil || err != nil {
		t.Errorf("of nothing: %v, %v", got, err)
	}
	if _, err := DecodeGantryBPF([]byte(`{"bpf":7}`)); !errors.Is(err, ErrFormat) {
		t.Errorf("of a number: %v", err)
	}
}

func FuzzBPF(f *testing.F) {
	for _, o := range orders {
		f.Add(AppendBPFPrograms(nil, o, testBPFPrograms()))
		f.Add(AppendBPFBTF(nil, o, []BPFBTF{{1, []byte("types")}}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, o := range orders {
			progs, err := DecodeBPFPrograms(b, o)
			if err == nil {
				again, err := DecodeBPFPrograms(AppendBPFPrograms(nil, o, progs), o)
				if diff := cmp.Diff(progs, again, cmpopts.EquateEmpty()); diff != "" || err != nil {
					t.Fatalf("encoded again (-want +got):\n%s, error %v", diff, err)
				}
			}
			btf, err := DecodeBPFBTF(b, o)
			if err == nil {
				again, err := DecodeBPFBTF(AppendBPFBTF(nil, o, btf), o)
				if diff := cmp.Diff(btf, again, cmpopts.EquateEmpty()); diff != "" || err != nil {
					t.Fatalf("encoded again (-want +got):\n%s, error %v", diff, err)
				}
			}
		}
	})
}
