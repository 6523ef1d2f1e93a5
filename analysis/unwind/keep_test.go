// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"io/fs"
	"testing"

	"github.com/gantry-tools/gantry/perf"
)

// keptTest is a program of two functions whose tables are kept in memory.
type keptTest struct {
	file  []byte
	saved []byte
	saves int
	opens int
}

func newKeptTest() *keptTest {
	c := newCFI(perf.AMD64, insn(opDefCFAOffset, uint64(16)), insn(opExpr, uint64(3), block(xLit0+8, xPlus)))
	c.functions = append(c.functions, function{start: 0x1200, size: 0x100, insns: [][]byte{insn(opDefCFAExpr, block(xBreg0+amd64RSP, 24))}})
	return &keptTest{file: makeELF(elf.EM_X86_64,
		testSection{name: ".text", addr: codeAt, data: make([]byte, codeSize), exec: true},
		testSection{name: ".eh_frame", addr: frameAt, data: c.bytes()},
		testSection{name: ".eh_frame_hdr", addr: hdrAt, data: c.hdr(hdrAt), ehHdr: true})}
}

// binary makes the Binary; without the file if it is gone.
func (k *keptTest) binary(tag string, gone bool) *Binary {
	b := NewBinary(perf.AMD64, func() (File, int64, error) {
		k.opens++
		if gone {
			return nil, 0, fs.ErrNotExist
		}
		return memFile{bytes.NewReader(k.file)}, int64(len(k.file)), nil
	})
	b.Keep(Kept{
		Tag: tag,
		Load: func() ([]byte, error) {
			if k.saved == nil {
				return nil, fs.ErrNotExist
			}
			return k.saved, nil
		},
		Save: func(data []byte) error {
			k.saves++
			k.saved = data
			return nil
		},
	})
	return b
}

// unwindAt unwinds a stack of two frames whose leaf is at an address.
func unwindAt(b *Binary, file []byte, pc uint64, above int) ([]uint64, Result) {
	space := mapCode(perf.AMD64, file)
	space.b = b
	s := regsOf(perf.AMD64, amd64Regs(pc))
	s.Memory = append(words(make([]uint64, above)...), words(returnTo, 0, 0)...)
	return New(perf.AMD64).Unwind(nil, s, space)
}

// TestKept: what was kept does without the file, and grows.
func TestKept(t *testing.T) {
	k := newKeptTest()
	check := func(b *Binary, pc uint64, above int) {
		t.Helper()
		if got, res := unwindAt(b, k.file, pc, above); len(got) != 2 || got[1] != returnTo-1 || res != (Result{Complete, 2}) {
			t.Fatalf("%#x, %v, error %v", got, res, b.Err())
		}
		if err := b.Save(); err != nil {
			t.Fatal(err)
		}
	}
	check(k.binary("a", false), leafAt+4, 1)
	if k.saves != 1 || k.opens != 1 {
		t.Fatalf("%d saves, %d opens", k.saves, k.opens)
	}
	check(k.binary("a", true), leafAt+4, 1)
	if k.saves != 1 || k.opens != 1 {
		t.Errorf("%d saves, %d opens with all in the tables", k.saves, k.opens)
	}
	b := k.binary("a", false)
	check(b, leafAt+4, 1)
	check(b, 0x1210, 2)
	if k.saves != 2 || k.opens != 2 {
		t.Errorf("%d saves, %d opens with a new function", k.saves, k.opens)
	}
	check(k.binary("a", true), 0x1210, 2)
	check(k.binary("a", true), leafAt+4, 1)
	check(k.binary("b", false), leafAt+4, 1) // the tables are another file's
	if k.opens != 3 {
		t.Errorf("%d opens", k.opens)
	}
}

// TestKeptDamaged: tables that are cut or changed anywhere are not used, and
// made again.
func TestKeptDamaged(t *testing.T) {
	k := newKeptTest()
	b := k.binary("a", false)
	unwindAt(b, k.file, leafAt+4, 1)
	if err := b.Save(); err != nil {
		t.Fatal(err)
	}
	good := k.saved
	try := func(what string, data []byte) {
		t.Helper()
		k.saved = data
		b := k.binary("a", false)
		got, res := unwindAt(b, k.file, leafAt+4, 1)
		if len(got) != 2 || res.End != Complete || !b.read {
			t.Fatalf("%s: %#x, %v, read %v", what, got, res, b.read)
		}
		if err := b.Save(); err != nil || !bytes.Equal(k.saved, good) {
			t.Fatalf("%s: saved %d bytes, %v", what, len(k.saved), err)
		}
	}
	for n := range good {
		try("cut", good[:n])
		bad := bytes.Clone(good)
		bad[n] ^= 0x40
		try("changed", bad)
	}
}

// TestSaveError is told.
func TestSaveError(t *testing.T) {
	k := newKeptTest()
	b := k.binary("a", false)
	b.kept.Save = func([]byte) error { return fs.ErrPermission }
	unwindAt(b, k.file, leafAt+4, 1)
	if err := b.Save(); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("error %v", err)
	}
}

// FuzzKept: tables whose checksum is right, and nothing else.
func FuzzKept(f *testing.F) {
	k := newKeptTest()
	b := k.binary("a", false)
	unwindAt(b, k.file, leafAt+4, 1)
	if err := b.Save(); err != nil {
		f.Fatal(err)
	}
	head := keptHead
	f.Add(k.saved[head:len(k.saved)-sha256.Size], uint64(leafAt), words(1, returnTo))
	f.Fuzz(func(t *testing.T, body []byte, pc uint64, stack []byte) {
		k := newKeptTest()
		b := k.binary("a", true)
		data := append(b.keptHead(), body...)
		sum := sha256.Sum256(data)
		k.saved = append(data, sum[:]...)
		b.load()
		if b.old != nil {
			checkRules(t, &b.table)
		}
		space := mapCode(perf.AMD64, k.file)
		space.b = b
		s := regsOf(perf.AMD64, amd64Regs(pc%codeSize+codeAt))
		s.Memory = stack
		if got, _ := New(perf.AMD64).Unwind(nil, s, space); len(got) > MaxFrames {
			t.Fatalf("%d frames", len(got))
		}
	})
}
