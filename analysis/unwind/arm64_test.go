// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// arm64Object compiles a function for arm64 and gives its code and its CFI, as
// if they were linked to codeAt and frameAt.
func arm64Object(t *testing.T, src string) (text, frame []byte) {
	t.Helper()
	testutil.Require(t, testutil.Tool("clang"))
	dir := t.TempDir()
	in, out := filepath.Join(dir, "f.c"), filepath.Join(dir, "f.o")
	if err := os.WriteFile(in, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--target=aarch64-linux-gnu", "-O2", "-mbranch-protection=pac-ret", "-fasynchronous-unwind-tables", "-c", "-o", out, in}
	if msg, err := exec.Command("clang", args...).CombinedOutput(); err != nil {
		t.Fatalf("clang: %v\n%s", err, msg)
	}
	f, err := elf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	section := func(name string) []byte {
		b, err := f.Section(name).Data()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	text, frame = section(".text"), section(".eh_frame")
	for rela := section(".rela.eh_frame"); len(rela) > 0; rela = rela[24:] {
		off, typ, addend := le.Uint64(rela), elf.R_AARCH64(le.Uint32(rela[8:])), le.Uint64(rela[16:])
		if typ != elf.R_AARCH64_PREL32 {
			t.Fatalf("relocation %v", typ)
		}
		le.PutUint32(frame[off:], uint32(codeAt+addend-(frameAt+off)))
	}
	return text, frame
}

// TestARM64Compiled follows a function that a compiler made, with signed return
// addresses, at each of its instructions up to the call in it.
func TestARM64Compiled(t *testing.T) {
	text, frame := arm64Object(t, `
long f(long (*g)(long), long a, long b, long c) { return g(a) * b + g(c); }
`)
	others := newCFI(perf.ARM64)
	others.debug, others.functions = true, others.functions[1:]
	space := mapCode(perf.ARM64, makeELF(elf.EM_AARCH64,
		testSection{name: ".text", addr: codeAt, data: append(text, make([]byte, codeSize-len(text))...), exec: true},
		testSection{name: ".eh_frame", addr: frameAt, data: frame},
		testSection{name: ".debug_frame", data: others.bytes()}))
	const (
		paciasp    = 0xd503233f
		stpPre     = 0xa9807bfd // stp x29, x30, [sp, #-N]!
		stpPreMask = 0xffc07fff
		blr        = 0xd63f0000
		code       = uint64(0x00aa) << 48
	)
	memory := make([]uint64, 32) // the stack of the caller, from stackBase
	sp, fp, lr := uint64(stackBase), uint64(0x1111), uint64(returnTo)
	checked := 0
	for at := uint64(0); ; at += 4 {
		s := regsOf(perf.ARM64, map[uint8]uint64{arm64PC: loadAddr + codeAt + at, arm64SP: sp, arm64FP: fp, arm64LR: lr})
		s.Memory = words(memory...)[sp-(stackBase-128):]
		got, res := New(perf.ARM64).Unwind(nil, s, space)
		if len(got) != 2 || got[1] != returnTo-1 || res != (Result{Complete, 2}) {
			t.Errorf("at %#x: %#x, %v", at, got, res)
		}
		checked++
		switch insn := le.Uint32(text[at:]); {
		case insn == paciasp:
			lr |= code
		case insn&stpPreMask == stpPre:
			n := int64(int32(insn<<10)>>25) * 8
			sp += uint64(n)
			i := (sp - (stackBase - 128)) / 8
			memory[i], memory[i+1] = fp, lr
		case insn == 0x910003fd: // mov x29, sp
			fp = sp
		case insn&^0x3e0 == blr:
			if lr&code == 0 || sp == stackBase || checked < 4 {
				t.Errorf("stack pointer %#x, link register %#x after %d instructions", sp, lr, checked)
			}
			return
		}
	}
}
