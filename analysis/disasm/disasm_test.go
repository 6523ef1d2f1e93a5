// SPDX-License-Identifier: Apache-2.0

package disasm

import (
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// show is instructions as "ADDR TEXT [flow TARGET]".
func show(list []Insn) []string {
	var out []string
	for _, in := range list {
		s := fmt.Sprintf("%x %s", in.Addr, in.Text)
		switch {
		case in.Unknown:
			s += " (unknown)"
		case in.Flow == Jump:
			s += fmt.Sprintf(" jump %x", in.Target)
		case in.Flow == Call:
			s += fmt.Sprintf(" call %x", in.Target)
		case in.Target != 0:
			s += fmt.Sprintf(" of %x", in.Target)
		}
		out = append(out, s)
	}
	return out
}

func TestDisassemble(t *testing.T) {
	for _, tt := range []struct {
		arch    perf.Arch
		code    string
		want    []string
		unknown int
	}{
		{perf.AMD64, "f30f1efa 55 4889e5 e80b000000 85c0 75f2 488d0510000000 5d c3", []string{
			"1000 endbr64", "1004 push %rbp", "1005 mov %rsp,%rbp", "1008 callq 0x1018 call 1018", "100d test %eax,%eax",
			"100f jne 0x1003 jump 1003", "1011 lea 0x10(%rip),%rax of 1028", "1018 pop %rbp", "1019 retq",
		}, 0},
		{perf.AMD64, "c5f877 62f17c48100a 41ffe3 ff1425a0614000", []string{
			"1000 vzeroupper", "1003 vmovups (%rdx),%zmm1", "1009 jmp *%r11", "100c callq *0x4061a0 call 0",
		}, 0},
		// What is not known is as long as its encoding says, and what is cut off
		// is all that there is.
		{perf.AMD64, "660f38f6c1 90 f3480f1ec8 90 06 90 0f", []string{
			"1000 .byte 0x66,0x0f,0x38,0xf6,0xc1 (unknown)", "1005 nop", "1006 .byte 0xf3,0x48,0x0f,0x1e,0xc8 (unknown)", "100b nop",
			"100c .byte 0x06 (unknown)", "100d nop", "100e .byte 0x0f (unknown)",
		}, 4},
		{perf.ARM64, "fd7bbfa9 00000090 02000094 40000054 41000034 c0035fd6 2000e0f8 1f20", []string{
			"1000 stp x29, x30, [sp,#-16]!", "1004 adrp x0, 0x1000 of 1000", "1008 bl 0x1010 call 1010", "100c b.eq 0x1014 jump 1014",
			"1010 cbz w1, 0x1018 jump 1018", "1014 ret", "1018 .inst 0xf8e00020 (unknown)", "101c .byte 0x1f20 (unknown)",
		}, 2},
		{perf.NoArch, "90", nil, 0},
	} {
		code, err := hex.DecodeString(strings.ReplaceAll(tt.code, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		list, unknown := Disassemble(tt.arch, code, 0x1000)
		if diff := cmp.Diff(tt.want, show(list)); diff != "" || unknown != tt.unknown {
			t.Errorf("%v: %d unknown, want %d\n%s", tt.arch, unknown, tt.unknown, diff)
		}
	}
}

// TestAsObjdump: in a part of this test's own code, instructions begin, jump and
// call where objdump says.
func TestAsObjdump(t *testing.T) {
	testutil.Require(t, testutil.Tool("objdump"))
	f, err := elf.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	arch := map[elf.Machine]perf.Arch{elf.EM_X86_64: perf.AMD64, elf.EM_AARCH64: perf.ARM64}[f.Machine]
	text := f.Section(".text")
	const part = 64 << 10
	code := make([]byte, part)
	if _, err := text.ReadAt(code, 0); err != nil {
		t.Fatal(err)
	}
	compare(t, arch, ".text", code, text.Addr)
}

// whole are the instructions that cannot go on behind the end of the code. What
// is cut off there, objdump and gantry show differently.
func whole(list []Insn, end uint64) []Insn {
	for i := range list {
		if list[i].Addr+maxAMD64 > end {
			return list[:i]
		}
	}
	return list
}

func compare(t *testing.T, arch perf.Arch, name string, code []byte, addr uint64) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(file, code, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("objdump", append(ObjdumpArgs(arch, addr), file)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := ParseObjdump(arch, out, addr, uint64(len(code)))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	ours, _ := Disassemble(arch, code, addr)
	places := func(list []Insn) (l []string) {
		for _, in := range whole(list, addr+uint64(len(code))) {
			at := fmt.Sprintf("%x+%d", in.Addr, in.Size)
			if in.Flow != Next {
				at += fmt.Sprintf(" %d %x", in.Flow, in.Target)
			}
			l = append(l, at)
		}
		return l
	}
	if diff := cmp.Diff(places(theirs), places(ours)); diff != "" {
		t.Errorf("%s (- objdump, + gantry):\n%s", name, diff)
	}
}

func TestParseObjdump(t *testing.T) {
	const text = `
/tmp/x:     file format binary

Disassembly of section .data:

0000000000001000 <.data>:
    1000:	lea    0x10(%rip),%rax        # 0x1017
    1007:	call   0x401030
    100c:	jmp    *0x20(%rip)        # 0x1032
    1012:	(bad)
`
	list, err := ParseObjdump(perf.AMD64, []byte(text), 0x1000, 0x13)
	want := []string{"1000 lea 0x10(%rip),%rax of 1017", "1007 call 0x401030 call 401030", "100c jmp *0x20(%rip) of 1032", "1012 (bad) (unknown)"}
	if diff := cmp.Diff(want, show(list)); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if list[3].Size != 1 || list[0].Size != 7 {
		t.Errorf("%d and %d bytes", list[0].Size, list[3].Size)
	}
	for _, bad := range []string{"", "1001:\tnop\n", "1000:\tnop\n1000:\tnop\n", "1000:\tnop\n1020:\tnop\n"} {
		if _, err := ParseObjdump(perf.AMD64, []byte(bad), 0x1000, 0x13); !errors.Is(err, ErrObjdump) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzDisassemble(f *testing.F) {
	for _, s := range []string{"f30f1efa", "62f17c48100a", "660f38f6c1", "fd7bbfa9", "c4e279182a", "f2e900000000", "666666"} {
		b, _ := hex.DecodeString(s)
		f.Add(b, uint64(0x1000))
	}
	f.Fuzz(func(t *testing.T, code []byte, addr uint64) {
		for _, a := range []perf.Arch{perf.AMD64, perf.ARM64} {
			list, unknown := Disassemble(a, code, addr)
			at := addr
			for _, in := range list {
				if in.Addr != at || in.Size < 1 || in.Text == "" {
					t.Fatalf("%v at %#x: %+v", a, at, in)
				}
				at += uint64(in.Size)
				if in.Unknown {
					unknown--
				}
			}
			if at-addr != uint64(len(code)) || unknown != 0 {
				t.Fatalf("%v: %d of %d bytes, %d unknown too many", a, at-addr, len(code), unknown)
			}
		}
	})
}

func FuzzParseObjdump(f *testing.F) {
	f.Add([]byte("1000:\tjmp 0x1000\n1002:\tlea 0x1(%rip),%rax # 0x1009\n"), uint64(0x1000), uint64(9))
	f.Fuzz(func(t *testing.T, text []byte, addr, size uint64) {
		list, err := ParseObjdump(perf.AMD64, text, addr, size)
		if (err == nil) != (len(list) > 0) {
			t.Fatalf("%d instructions and %v", len(list), err)
		}
		sum := uint64(0)
		for _, in := range list {
			sum += uint64(in.Size)
		}
		if err == nil && sum != size {
			t.Fatalf("%d of %d bytes", sum, size)
		}
	})
}
