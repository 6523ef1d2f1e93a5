// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"debug/elf"
	"io"
	"io/fs"
	"testing"

	"github.com/gantry-tools/gantry/perf"
)

// Programs without .eh_frame have their CFI in a debug file.
func TestSeparate(t *testing.T) {
	text := testSection{name: ".text", addr: codeAt, data: make([]byte, codeSize), exec: true}
	c := newCFI(perf.AMD64, insn(opDefCFAOffset, uint64(16)))
	other := newCFI(perf.AMD64, insn(opDefCFAOffset, uint64(16)))
	other.functions = other.functions[1:] // of the caller only, as the C runtime's
	c.debug, c.addr = true, 0
	frame := testSection{name: ".debug_frame", data: c.bytes()}
	bare := makeELF(elf.EM_X86_64, text)
	for name, tt := range map[string]struct {
		binary, debug []byte
		found         bool
	}{
		"no CFI":          {bare, makeELF(elf.EM_X86_64, frame), true},
		"of others only":  {makeELF(elf.EM_X86_64, text, testSection{name: ".eh_frame", addr: frameAt, data: other.bytes()}), makeELF(elf.EM_X86_64, frame), true},
		"none there":      {bare, makeELF(elf.EM_X86_64, text), false},
		"another machine": {bare, makeELF(elf.EM_AARCH64, frame), false},
		"no ELF file":     {bare, []byte("text"), false},
		"no file":         {bare, nil, false},
		"cut":             {bare, makeELF(elf.EM_X86_64, frame)[:100], false},
	} {
		t.Run(name, func(t *testing.T) {
			space := mapCode(perf.AMD64, tt.binary)
			asked := 0
			space.b.Separate(func(use func(io.ReaderAt, int64) error) error {
				asked++
				if tt.debug == nil {
					return fs.ErrNotExist
				}
				return use(bytes.NewReader(tt.debug), int64(len(tt.debug)))
			})
			u := New(perf.AMD64)
			for range 2 {
				s := regsOf(perf.AMD64, amd64Regs(leafAt+4))
				s.Memory = words(1, returnTo)
				got, res := u.Unwind(nil, s, space)
				if found := len(got) == 2 && got[1] == returnTo-1 && res == (Result{Complete, 2}); found != tt.found {
					t.Errorf("%#x, %v", got, res)
				}
			}
			if asked != 1 {
				t.Errorf("asked for the file %d times", asked)
			}
			if err := space.b.Err(); tt.found != (err == nil) {
				t.Errorf("error %v", err)
			}
		})
	}
}
