// SPDX-License-Identifier: Apache-2.0

package jit

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestReadMap(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []Function
		bad        int
	}{
		{"empty", "", nil, 0},
		{"plain", "1000 20 f\n1020 10 LazyCompile:*g /app/x.js:3\n", []Function{{"f", 0x1000, 0x1020}, {"LazyCompile:*g /app/x.js:3", 0x1020, 0x1030}}, 0},
		{"prefix, tabs, CR", "0x1000\t0x20  f\r\n", []Function{{"f", 0x1000, 0x1020}}, 0},
		{"being written", "1000 20 f\n1020 10 LazyCo", []Function{{"f", 0x1000, 0x1020}}, 0},
		{"no sense", "hello\n1000\n1000 20\n1000 20 \n1000 0 f\nffffffffffffffff 20 f\n11111111111111111 1 f\n\n1000 20 f\n", []Function{{"f", 0x1000, 0x1020}}, 7},
		{"too long a line", strings.Repeat("x", 1<<18) + "\n1000 20 f\n", []Function{{"f", 0x1000, 0x1020}}, 1},
		{"again at one place", "1000 20 f\n1000 20 g\n", []Function{{"g", 0x1000, 0x1020}}, 0},
		{"the end replaced", "1000 20 f\n1010 20 g\n", []Function{{"f", 0x1000, 0x1010}, {"g", 0x1010, 0x1030}}, 0},
		{"the begin replaced", "1010 20 g\n1000 20 f\n", []Function{{"f", 0x1000, 0x1020}, {"g", 0x1020, 0x1030}}, 0},
		{"the middle replaced", "1000 30 f\n1010 10 g\n", []Function{{"f", 0x1000, 0x1010}, {"g", 0x1010, 0x1020}, {"f", 0x1020, 0x1030}}, 0},
		{"all replaced", "1010 10 g\n1000 30 f\n", []Function{{"f", 0x1000, 0x1030}}, 0},
		{"the last address", "fffffffffffffff0 f f\n", []Function{{"f", 0xfffffffffffffff0, 0xffffffffffffffff}}, 0},
	} {
		c, err := ReadMap(strings.NewReader(tt.text))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Functions(); !slices.Equal(got, tt.want) || c.Bad != tt.bad {
			t.Errorf("%s: %v, %d bad, want %v, %d bad", tt.name, got, c.Bad, tt.want, tt.bad)
		}
	}
}

// dumpWriter writes a jitdump.
type dumpWriter struct {
	binary.ByteOrder
	b []byte
}

func newDump(o binary.ByteOrder) *dumpWriter {
	w := &dumpWriter{ByteOrder: o}
	w.u32(dumpMagic, dumpVersion, headerSize+8, 62, 0, 42)
	w.u64(1, 0, 0) // timestamp, flags, and a field of a later version
	return w
}

func (w *dumpWriter) u32(list ...uint32) {
	for _, v := range list {
		b := make([]byte, 4)
		w.PutUint32(b, v)
		w.b = append(w.b, b...)
	}
}

func (w *dumpWriter) u64(list ...uint64) {
	for _, v := range list {
		b := make([]byte, 8)
		w.PutUint64(b, v)
		w.b = append(w.b, b...)
	}
}

func (w *dumpWriter) load(name string, addr, size, index uint64) {
	w.u32(recordLoad, uint32(prefixSize+loadSize+len(name)+1+int(size)))
	w.u64(1)
	w.u32(42, 42)
	w.u64(addr, addr, size, index)
	w.b = append(append(w.b, name...), 0)
	w.b = append(w.b, make([]byte, size)...)
}

func (w *dumpWriter) move(from, to, size, index uint64) {
	w.u32(recordMove, prefixSize+moveSize)
	w.u64(2)
	w.u32(42, 42)
	w.u64(to, from, to, size, index)
}

// other is a record that is skipped.
func (w *dumpWriter) other(kind uint32, n int) {
	w.u32(kind, uint32(prefixSize+n))
	w.u64(1)
	w.b = append(w.b, make([]byte, n)...)
}

func sampleDump(o binary.ByteOrder) []byte {
	w := newDump(o)
	w.other(2, 100) // debug info
	w.load("main", 0x1000, 0x20, 1)
	w.other(4, 33) // unwinding info
	w.load("helper", 0x2000, 0x10, 2)
	w.move(0x2000, 0x3000, 0x10, 2)
	w.other(77, 5)
	w.load("last", 0x4000, 0x10, 3)
	return w.b
}

func TestReadDump(t *testing.T) {
	for _, o := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		b := sampleDump(o)
		c, err := ReadDump(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		want := []Function{{"main", 0x1000, 0x1020}, {"helper", 0x2000, 0x2010}, {"helper", 0x3000, 0x3010}, {"last", 0x4000, 0x4010}}
		if got := c.Functions(); !slices.Equal(got, want) || c.Bad != 0 {
			t.Errorf("%v, %d bad; want %v", got, c.Bad, want)
		}
		for n := range len(b) {
			c, err := ReadDump(bytes.NewReader(b[:n]))
			if (err == nil) != (n >= headerSize+8) || err == nil && (c.Bad > 0 || !isPrefix(c.Functions(), want)) {
				t.Fatalf("%d of %d bytes: %v", n, len(b), err)
			}
		}
	}
}

func isPrefix(a, b []Function) bool { return len(a) <= len(b) && slices.Equal(a, b[:len(a)]) }

func TestReadDumpHostile(t *testing.T) {
	w := newDump(binary.LittleEndian)
	w.move(1, 2, 3, 99) // of nothing
	w.u32(recordLoad, prefixSize+8)
	w.u64(1, 0)                 // too short
	w.load("", 0x1000, 0x10, 1) // without a name
	w.load("f", 0x1000, 0x10, 1)
	w.u32(recordLoad, 3) // shorter than its prefix
	w.u64(1)
	w.load("lost", 0x2000, 0x10, 1)
	c, err := ReadDump(bytes.NewReader(w.b))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Functions(); !slices.Equal(got, []Function{{"f", 0x1000, 0x1010}}) || c.Bad != 4 {
		t.Errorf("%v, %d bad", got, c.Bad)
	}
	for _, text := range []string{"", "hello", strings.Repeat("x", 100)} {
		if _, err := ReadDump(strings.NewReader(text)); !errors.Is(err, ErrNotDump) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// disjoint checks that functions ascend and do not overlap.
func disjoint(t *testing.T, c *Code) {
	t.Helper()
	last := uint64(0)
	for _, f := range c.Functions() {
		if f.End <= f.Start || f.Start < last || f.Name == "" || len(f.Name) > maxName {
			t.Fatalf("%+v behind %#x", f, last)
		}
		last = f.End
	}
}

// What is beyond a limit is counted, and takes no memory.
func TestLimits(t *testing.T) {
	whole := &Code{}
	whole.add([]byte("name"), 0x1000, 1)
	whole.names = maxNames - 6
	more := &Code{}
	more.add([]byte("four"), 0x2000, 1)
	more.add([]byte("five5"), 0x3000, 1)
	if whole.Append(more); whole.Len() != 2 || whole.Cut != 1 || whole.names != maxNames-2 {
		t.Errorf("%d functions, %d left out, %d bytes of names", whole.Len(), whole.Cut, whole.names)
	}
	for size, want := range map[int64]int{maxBytes: 0, maxBytes + 1: 1} {
		c, err := ReadMap(io.MultiReader(strings.NewReader("1000 10 first\n"), io.LimitReader(zeros{}, size-14)))
		if err != nil || c.Len() != 1 || c.Cut != want {
			t.Errorf("%d bytes: %v, %v", size, c, err)
		}
	}
}

// zeros has any number of zero bytes.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func FuzzMap(f *testing.F) {
	f.Add([]byte("1000 20 f\n0x1010 10 a b\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ReadMap(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if c.Len() > bytes.Count(b, []byte("\n")) {
			t.Fatalf("%d functions", c.Len())
		}
		disjoint(t, c)
	})
}

func FuzzDump(f *testing.F) {
	f.Add(sampleDump(binary.LittleEndian))
	f.Add(sampleDump(binary.BigEndian))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ReadDump(bytes.NewReader(b))
		if (c == nil) == (err == nil) {
			t.Fatalf("%v and %v", c, err)
		}
		if err == nil {
			disjoint(t, c)
		}
	})
}
