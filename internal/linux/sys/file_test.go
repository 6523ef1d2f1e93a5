// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// parts cuts n bytes into slices of 0 to 6 bytes, more than one writev takes.
func parts(n int) (bufs [][]byte, whole []byte) {
	for i := range n {
		whole = append(whole, byte(i))
	}
	for at, size := 0, 0; at < n; size = (size + 1) % 7 {
		end := min(at+size, n)
		bufs = append(bufs, whole[at:end])
		at = end
	}
	return bufs, whole
}

func TestWritev(t *testing.T) {
	for _, brief := range []bool{false, true} {
		for _, n := range []int{0, 1, 100, 20_000, 3 * noSchedPiece} {
			f, err := os.Create(filepath.Join(t.TempDir(), "out"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			bufs, whole := parts(n)
			out := VectorFile{f, brief}
			wrote, err := out.Writev(bufs)
			if err != nil || wrote != int64(n) {
				t.Errorf("brief=%v: wrote %d of %d: %v", brief, wrote, n, err)
			}
			head := whole[:min(n, 10)]
			copy(head, "0123456789")
			if wrote, err := out.WriteAt(head, 0); err != nil || wrote != len(head) {
				t.Errorf("brief=%v: wrote %d of %d at 0: %v", brief, wrote, len(head), err)
			}
			got, err := os.ReadFile(f.Name())
			if err != nil || !bytes.Equal(got, whole) {
				t.Errorf("brief=%v: file of %d bytes differs: %v", brief, n, err)
			}
		}
	}
}

// A pipe takes 64 kB at once: the rest must follow when there is room again.
func TestWritevToSlowPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	bufs, whole := parts(300_000)
	var wg sync.WaitGroup
	var got bytes.Buffer
	wg.Go(func() { got.ReadFrom(r) })
	n, err := (VectorFile{File: w}).Writev(bufs)
	w.Close()
	wg.Wait()
	if err != nil || n != int64(len(whole)) {
		t.Errorf("wrote %d of %d: %v", n, len(whole), err)
	}
	if !bytes.Equal(got.Bytes(), whole) {
		t.Error("what came out of the pipe differs")
	}
}

func TestWritevError(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, brief := range []bool{false, true} {
		out := VectorFile{f, brief}
		if n, err := out.Writev([][]byte{[]byte("x")}); n != 0 || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("brief=%v: got %d, %v, want ENOSPC", brief, n, err)
		}
		if n, err := out.WriteAt([]byte("x"), 0); n != 0 || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("brief=%v: at 0: got %d, %v, want ENOSPC", brief, n, err)
		}
	}
}

func TestDropWritten(t *testing.T) {
	bufs, whole := parts(50)
	for n := range len(whole) {
		rest, skip := dropWritten(bufs, int64(n))
		got := bytes.Join(rest, nil)[skip:]
		if !bytes.Equal(got, whole[n:]) {
			t.Errorf("after %d bytes: %v", n, got)
		}
		if len(rest[0]) == skip {
			t.Errorf("after %d bytes the first slice is used up", n)
		}
	}
}
