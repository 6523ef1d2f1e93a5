// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"debug/elf"
	"strconv"
	"testing"
	"unsafe"
)

// addressOf is where p points; what it points to lives on the heap and does
// not move.
func addressOf(p *uint64) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

// symbolOffset is where a function lies in its file, as text.
func symbolOffset(t *testing.T, path, name string) string {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range syms {
		if s.Name != name {
			continue
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && s.Value >= p.Vaddr && s.Value < p.Vaddr+p.Filesz {
				return "0x" + strconv.FormatUint(s.Value-p.Vaddr+p.Off, 16)
			}
		}
	}
	t.Fatalf("%s has no function %s", path, name)
	return ""
}
