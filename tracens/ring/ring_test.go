// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// memory is that of a new ring, at a word.
func memory(size int) []byte {
	words := make([]uint64, (Header+size)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), Header+size)
}

func open(t testing.TB, mem []byte) (*Reader, *Writer) {
	t.Helper()
	if err := Format(mem, Monotonic); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(mem)
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWriter(mem)
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

func TestRoundTrip(t *testing.T) {
	r, w := open(t, memory(MinData))
	sent, got := 0, 0
	data := func(n int) []byte { return bytes.Repeat([]byte{byte(n)}, n%300) }
	for round := range 500 {
		for range round % 7 {
			if err := w.Write(uint16(sent), uint64(sent)*3, uint32(sent)*5, data(sent)); err != nil {
				t.Fatal(err)
			}
			sent++
		}
		r.Read(false, func(rec *Record) {
			if rec.Index != uint16(got) || rec.Time != uint64(got)*3 || rec.TID != uint32(got)*5 ||
				!bytes.Equal(rec.Data, data(got)) {
				t.Fatalf("record %d: %+v", got, rec)
			}
			got++
		})
	}
	if got != sent || r.Lost() != 0 {
		t.Errorf("%d of %d records, %d lost", got, sent, r.Lost())
	}
}

func TestFull(t *testing.T) {
	r, w := open(t, memory(MinData))
	n := 0
	for w.Write(1, 0, 0, make([]byte, 12)) == nil {
		n++
	}
	if n != MinData/32 {
		t.Errorf("%d records in %d bytes", n, MinData)
	}
	if err := w.Write(1, 0, 0, make([]byte, MaxRecord)); !errors.Is(err, ErrNoRoom) {
		t.Errorf("a record that is too long: %v", err)
	}
	if got := r.Read(false, func(*Record) {}); got != n || r.Lost() != 2 {
		t.Errorf("%d records, %d lost", got, r.Lost())
	}
	if err := w.Write(1, 0, 0, nil); err != nil {
		t.Error(err)
	}
}

// TestDeadWriter: room that was taken, and nothing written; the others are read.
func TestDeadWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := open(t, memory(MinData))
		write := func(index uint16) {
			if err := w.Write(index, 0, 0, []byte("data")); err != nil {
				t.Fatal(err)
			}
		}
		var got []uint16
		read := func(last bool) { r.Read(last, func(rec *Record) { got = append(got, rec.Index) }) }
		write(1)
		w.head.Add(40)
		write(2)
		read(false)
		if len(got) != 1 || r.Lost() != 0 {
			t.Errorf("%v, %d lost: the writer may still write", got, r.Lost())
		}
		<-time.After(2 * patience)
		read(false)
		if len(got) != 2 || got[1] != 2 || r.Lost() != 1 {
			t.Errorf("%v, %d lost", got, r.Lost())
		}
		write(3)
		w.head.Add(16)
		read(true)
		if len(got) != 3 || r.Lost() != 2 {
			t.Errorf("%v, %d lost at the end", got, r.Lost())
		}
		write(4)
		read(false)
		if len(got) != 4 {
			t.Errorf("%v", got)
		}
	})
}

func TestAtOnce(t *testing.T) {
	r, w := open(t, memory(1<<16))
	const writers, each = 4, 20000
	var refused atomic.Int64
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() {
			data := make([]byte, 16)
			for i := range each {
				binary.NativeEndian.PutUint64(data, uint64(i))
				binary.NativeEndian.PutUint64(data[8:], uint64(i)*uint64(n+1))
				if w.Write(uint16(n), uint64(i), uint32(n), data) != nil {
					refused.Add(1)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	got, next := 0, make([]uint64, writers)
	read := func(last bool) {
		got += r.Read(last, func(rec *Record) {
			i := binary.NativeEndian.Uint64(rec.Data)
			if rec.Time != i || i < next[rec.Index] ||
				binary.NativeEndian.Uint64(rec.Data[8:]) != i*uint64(rec.Index+1) {
				t.Fatalf("%+v", rec)
			}
			next[rec.Index] = i + 1
		})
	}
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		read(false)
	}
	read(true)
	if int64(got)+refused.Load() != writers*each || r.Lost() != uint64(refused.Load()) {
		t.Errorf("%d read, %d refused, %d lost of %d", got, refused.Load(), r.Lost(), writers*each)
	}
}

func TestNotRings(t *testing.T) {
	for _, size := range []int{0, 8, Header, Header + 8, Header + MinData + 8} {
		mem := memory(size)[:size]
		if _, err := NewReader(mem); !errors.Is(err, ErrRing) {
			t.Errorf("read %d bytes: %v", size, err)
		}
		if _, err := NewWriter(mem); !errors.Is(err, ErrRing) {
			t.Errorf("write %d bytes: %v", size, err)
		}
		if err := Format(mem, Monotonic); !errors.Is(err, ErrRing) {
			t.Errorf("format %d bytes: %v", size, err)
		}
	}
}

// FuzzReader: any bytes, before and between reads. It ends, and a writer can go on.
func FuzzReader(f *testing.F) {
	f.Add([]byte{}, []byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 256), []byte{1, 0, 0, 0, 20, 0})
	f.Add(make([]byte, 64), bytes.Repeat([]byte{0, 0, 0, 0, 24, 0, 0, 0}, 9))
	f.Fuzz(func(t *testing.T, page, data []byte) {
		mem := memory(MinData)
		_, w := open(t, mem)
		copy(mem[headAt:Header], page)
		copy(mem[Header:], data)
		r, err := NewReader(mem)
		if err != nil {
			t.Fatal(err)
		}
		read := func() {
			n := r.Read(true, func(rec *Record) {
				if len(rec.Data) > MaxRecord-RecordHeader {
					t.Fatalf("%d bytes", len(rec.Data))
				}
			})
			if n > MinData/RecordHeader {
				t.Fatalf("%d records", n)
			}
		}
		read()
		copy(mem[headAt:], page)
		copy(mem[Header+len(data)%MinData:], data)
		read()
		read()
		lost := r.Lost()
		if err := w.Write(7, 8, 9, []byte("here")); err != nil {
			t.Fatalf("write behind it: %v", err)
		}
		got := 0
		r.Read(true, func(rec *Record) { got += int(rec.Index) })
		if got != 7 || r.Lost() != lost {
			t.Fatalf("%d, %d lost behind it", got, r.Lost()-lost)
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	r, w := open(b, memory(1<<20))
	data := make([]byte, 20)
	n := 0
	for b.Loop() {
		if n++; n%10000 == 0 {
			r.Read(false, func(*Record) {})
		}
		if err := w.Write(1, uint64(n), 7, data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	r, w := open(b, memory(1<<20))
	data := make([]byte, 20)
	for n := 0; n < b.N; {
		b.StopTimer()
		for range 20000 {
			if err := w.Write(1, uint64(n), 7, data); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		n += r.Read(false, func(*Record) {})
	}
}

// TestClock: times of the counter are those of the clock.
func TestClock(t *testing.T) {
	begin := time.Now()
	now := func() uint64 { return uint64(time.Since(begin)) + 1000 }
	c := NewClock(TSC, now)
	if c == nil {
		if hasTSC {
			t.Fatal("no clock")
		}
		if c.Kind() != Monotonic || c.Time(7) != 7 {
			t.Error("a nil clock is not that of the nanoseconds")
		}
		return
	}
	mem := memory(MinData)
	if err := Format(mem, c.Kind()); err != nil {
		t.Fatal(err)
	}
	w, err := NewWriter(mem)
	if err != nil || !w.TSC() {
		t.Fatal(err, w.TSC())
	}
	r, err := NewReader(mem)
	if err != nil {
		t.Fatal(err)
	}
	for now() < 20_000_000 { // the first pair is some time ago then
	}
	before := now()
	if err := w.Write(1, 0, 0, nil); err != nil {
		t.Fatal(err)
	}
	after := now()
	c.Update(now)
	r.Read(false, func(rec *Record) {
		// The pair may be read a little apart.
		if got := c.Time(rec.Time); got+10_000_000 < before || got > after+10_000_000 {
			t.Errorf("%d is not between %d and %d", got, before, after)
		}
	})
	for _, any := range []uint64{0, 1, 1 << 62, 1 << 63, ^uint64(0)} {
		c.Time(any)
	}
}
