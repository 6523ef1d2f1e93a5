// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"errors"
	"testing"

	"github.com/gantry-tools/gantry/perf"
)

// testBTF has an int, a struct of one member, a function prototype and the
// functions "main" (type 4) and "f" (type 5).
func testBTF(o perf.Order) []byte {
	var types []byte
	add := func(words ...uint32) {
		for _, w := range words {
			types = o.AppendUint32(types, w)
		}
	}
	add(1, 1<<24, 4, 32)        // int
	add(0, 4<<24|1, 4, 1, 1, 0) // struct
	add(0, 13<<24, 1)           // prototype
	add(5, 12<<24, 3)           // main
	add(10, 12<<24|1, 3)        // f
	strs := "\x00int\x00main\x00f\x00/a/b.c\x00return 1;\x00"
	b := o.AppendUint32(nil, 0)
	copy(b, []byte{0x9f, 0xeb, 1, 0})
	if o == perf.BigEndian {
		copy(b, []byte{0xeb, 0x9f, 1, 0})
	}
	for _, w := range []uint32{24, 0, uint32(len(types)), uint32(len(types)), uint32(len(strs))} {
		b = o.AppendUint32(b, w)
	}
	return append(append(b, types...), strs...)
}

func TestBTF(t *testing.T) {
	for _, o := range orders {
		b := testBTF(o)
		f, err := ParseBTF(b, o)
		if err != nil {
			t.Fatal(err)
		}
		for id, want := range map[uint32]string{0: "", 1: "", 4: "main", 5: "f", 6: "", 1 << 31: ""} {
			if got := f.Func(id); got != want {
				t.Errorf("function %d is %q, want %q", id, got, want)
			}
		}
		if got := f.String(12); got != "/a/b.c" {
			t.Errorf("string %q", got)
		}
		if got := f.String(1 << 30); got != "" {
			t.Errorf("string beyond the end: %q", got)
		}
		for n := range b {
			if _, err := ParseBTF(b[:n], o); !errors.Is(err, ErrTruncated) {
				t.Fatalf("cut at %d: %v", n, err)
			}
		}
		if _, err := ParseBTF(make([]byte, 24), o); !errors.Is(err, ErrFormat) {
			t.Errorf("zeros: %v", err)
		}
	}
	var none *BTF
	if none.Func(1) != "" || none.String(1) != "" {
		t.Error("there is something in no BTF")
	}
}

func FuzzBTF(f *testing.F) {
	for _, o := range orders {
		f.Add(testBTF(o))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, o := range orders {
			p, err := ParseBTF(b, o)
			if (p == nil) == (err == nil) {
				t.Fatalf("%v and error %v", p, err)
			}
			for id := range uint32(20) {
				if s := p.Func(id) + p.String(id); len(s) > len(b)*2 {
					t.Fatalf("%d bytes out of %d", len(s), len(b))
				}
			}
		}
	})
}
