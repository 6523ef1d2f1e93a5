// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"strings"
	"testing"
)

func TestIDMap(t *testing.T) {
	m, err := ParseIDMap(strings.NewReader("         0     100000       1000\n      1000       1000          1\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		inside, outside uint32
	}{{0, 100000}, {999, 100999}, {1000, 1000}} {
		if got, ok := m.Inside(tt.outside); got != tt.inside || !ok {
			t.Errorf("%d inside: %d, %v", tt.outside, got, ok)
		}
		if got, ok := m.Outside(tt.inside); got != tt.outside || !ok {
			t.Errorf("%d outside: %d, %v", tt.inside, got, ok)
		}
	}
	for _, id := range []uint32{0, 999, 1001, 101000, 1<<32 - 1} {
		if got, ok := m.Inside(id); ok {
			t.Errorf("%d is %d inside", id, got)
		}
	}
	if got, ok := m.Outside(1001); ok {
		t.Errorf("1001 is %d outside", got)
	}
	if m, err := ParseIDMap(strings.NewReader("0 0 4294967295\n")); err != nil {
		t.Error(err)
	} else if got, ok := m.Inside(1<<32 - 2); !ok || got != 1<<32-2 {
		t.Errorf("the last of all is %d, %v", got, ok)
	}
	if _, err := ParseIDMap(strings.NewReader("0 0\n")); err == nil {
		t.Error("two numbers are a range")
	}
}

func FuzzParseIDMap(f *testing.F) {
	f.Add("0 100000 65536\n", uint32(100001))
	f.Fuzz(func(t *testing.T, text string, id uint32) {
		m, err := ParseIDMap(strings.NewReader(text))
		if err != nil || len(m) != 1 {
			return
		}
		if inside, ok := m.Inside(id); ok {
			if again, ok := m.Outside(inside); ok && again != id && uint64(m[0].Inside)+uint64(m[0].Count) < 1<<32 {
				t.Errorf("%d is %d inside, which is %d", id, inside, again)
			}
		}
	})
}
