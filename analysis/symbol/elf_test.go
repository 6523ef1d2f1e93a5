// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// nmSymbols are the functions of a file as nm prints them: the names at each
// address, and their size, zero if nm does not know it.
func nmSymbols(t *testing.T, path string, flags ...string) (names map[uint64][]string, sizes map[uint64]uint64) {
	t.Helper()
	testutil.Require(t, testutil.Tool("nm"))
	out, err := exec.Command("nm", append(flags, "-S", "--defined-only", path)...).Output()
	if err != nil {
		t.Fatalf("nm %s: %v", path, err)
	}
	names, sizes = make(map[uint64][]string), make(map[uint64]uint64)
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		size := uint64(0)
		if len(fields) == 4 {
			if size, err = strconv.ParseUint(fields[1], 16, 64); err != nil {
				t.Fatal(err)
			}
		}
		typ, name := fields[len(fields)-2], fields[len(fields)-1]
		if !strings.Contains("tTwWi", typ) {
			continue
		}
		addr, err := strconv.ParseUint(fields[0], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		names[addr] = append(names[addr], name)
		sizes[addr] = max(sizes[addr], size)
	}
	return names, sizes
}

// checkAgainstNM looks up every function that nm knows, at its start and end.
func checkAgainstNM(t *testing.T, o *Object, path string, flags ...string) {
	t.Helper()
	names, sizes := nmSymbols(t, path, flags...)
	checked := 0
	for addr, list := range names {
		size := sizes[addr]
		if size == 0 {
			continue // labels: what to do with them is tested elsewhere
		}
		for _, a := range []uint64{addr, addr + size - 1} {
			sym, ok := o.Lookup(a)
			if !ok {
				t.Errorf("%#x: no name, nm has %v", a, list)
				continue
			}
			got := o.Sym(sym)
			if got.Start > addr && a != addr {
				continue // another function begins in this one
			}
			if !oneOf(got.Name, list) {
				t.Errorf("%#x: %q, nm has %v", a, got.Name, list)
			}
			checked++
		}
	}
	if checked < 4 {
		t.Errorf("nm has only %d addresses of functions", checked)
	}
}

// oneOf reports whether a name is in the list, in which names may have a version.
func oneOf(name string, list []string) bool {
	base, _, _ := strings.Cut(name, "@")
	for _, s := range list {
		if b, _, _ := strings.Cut(s, "@"); b == base {
			return true
		}
	}
	return false
}

func TestAgainstNM(t *testing.T) {
	t.Run("c", func(t *testing.T) {
		path := buildProgram(t, "c", cProgram, "-O1", "-rdynamic")
		checkAgainstNM(t, mustReadELF(t, path), path)
	})
	t.Run("c++", func(t *testing.T) {
		path := buildProgram(t, "c++", cxxProgram, "-O1")
		checkAgainstNM(t, mustReadELF(t, path), path)
	})
	t.Run("go", func(t *testing.T) {
		path := goCompiler(t)
		checkAgainstNM(t, mustReadELF(t, path), path)
	})
	t.Run("stripped", func(t *testing.T) {
		path := stripped(t, buildProgram(t, "c++", cxxProgram, "-O1", "-rdynamic"))
		checkAgainstNM(t, mustReadELF(t, path), path, "-D")
	})
	t.Run("libc", func(t *testing.T) {
		out, err := exec.Command("gcc", "-print-file-name=libc.so.6").Output()
		if err != nil {
			testutil.Lacks(t, "needs gcc to find the C library: %v", err)
		}
		path := strings.TrimSpace(string(out))
		checkAgainstNM(t, mustReadELF(t, path), path, "-D")
	})
}

// TestClasses reads symbols of both byte orders and word sizes.
func TestClasses(t *testing.T) {
	for _, class := range []elf.Class{elf.ELFCLASS32, elf.ELFCLASS64} {
		for _, data := range []elf.Data{elf.ELFDATA2LSB, elf.ELFDATA2MSB} {
			b := tinyELF(class, data, elf.EM_NONE)
			o, err := ReadELF(bytes.NewReader(b), int64(len(b)))
			if err != nil {
				t.Fatalf("%v %v: %v", class, data, err)
			}
			want := []Symbol{{"first", 0x1000, 0x1010}, {"second", 0x1020, 0x1040}, {"third", 0x1040, 0x1100}}
			var got []Symbol
			for i := range int32(o.Len()) {
				got = append(got, o.Sym(i))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%v %v: %v, want %v", class, data, got, want)
			}
		}
	}
}

// TestPLT compares the names of PLT entries with those that objdump prints.
func TestPLT(t *testing.T) {
	testutil.Require(t, testutil.Tool("objdump"))
	for name, flags := range map[string][]string{
		"plain":     {"-fcf-protection=none"},
		"ibt":       {"-fcf-protection=full", "-Wl,-z,ibtplt"},
		"lazy":      {"-Wl,-z,lazy"},
		"no-pie":    {"-no-pie"},
		"got only":  {"-Wl,-z,now"},
		"no symtab": {"-s"},
	} {
		t.Run(name, func(t *testing.T) {
			path := buildProgram(t, "c", cProgram, append(flags, "-O1")...)
			out, err := exec.Command("objdump", "-d", path).Output()
			if err != nil {
				t.Fatal(err)
			}
			o := mustReadELF(t, path)
			found := 0
			for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
				addr, label, ok := strings.Cut(s.Text(), " <")
				label, isLabel := strings.CutSuffix(label, ">:")
				if !ok || !isLabel || !strings.HasSuffix(label, "@plt") {
					continue
				}
				a, err := strconv.ParseUint(addr, 16, 64)
				if err != nil {
					t.Fatal(err)
				}
				found++
				sym, ok := o.Lookup(a + 4)
				if !ok || o.Name(sym) != label || o.Sym(sym).Start != a {
					t.Errorf("%#x is %s, found %v", a, label, ok)
				}
			}
			if found == 0 {
				t.Error("objdump names no PLT entry")
			}
		})
	}
}

func TestTinyPLT(t *testing.T) {
	b := tinyPLT()
	o, err := ReadELF(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if sym, ok := o.Lookup(0x100f); o.Len() != 1 || !ok || o.Sym(sym) != (Symbol{"puts@plt", 0x1000, 0x1010}) {
		t.Errorf("%d symbols, found %v", o.Len(), ok)
	}
}

func TestAliases(t *testing.T) {
	o := mustReadELF(t, buildProgram(t, "c", cProgram, "-O1"))
	for i := range int32(o.Len()) {
		switch name := o.Name(i); name {
		case "hot", "_hot", "a_weak_and_much_longer_name":
			t.Errorf("%s is shown, which has a better alias", name)
		case "hot_again": // the longest that is not weak
			return
		}
	}
	t.Error("function hot_again is missing")
}

func TestLabels(t *testing.T) {
	dir := t.TempDir()
	src, path := filepath.Join(dir, "a.s"), filepath.Join(dir, "a.o")
	const source = ".text\n.globl f\n.type f,@function\nf: nop\ninside: nop\n.size f,.-f\nnop\noutside: nop\nnop\n"
	if err := os.WriteFile(src, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("as", "-o", path, src).CombinedOutput(); err != nil {
		testutil.Lacks(t, "needs an assembler: %v\n%s", err, out)
	}
	o := mustReadELF(t, path)
	for addr, want := range []string{"f", "f", "", "outside", "outside", ""} {
		got := ""
		if sym, ok := o.Lookup(uint64(addr)); ok {
			got = o.Name(sym)
		}
		if got != want {
			t.Errorf("%d: %q, want %q", addr, got, want)
		}
	}
}

// TestHostileNames reads names that are too long, missing, and behind the end.
func TestHostileNames(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	b := tinyNames("\x00ok\x00"+long, 1, 0, 4, 1<<31, 5+1<<20, 2, uint32(4+len(long)-10))
	o, err := ReadELF(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range int32(o.Len()) {
		got = append(got, o.Name(i))
	}
	if want := []string{"ok", "k", long[:10]}; !slices.Equal(got, want) {
		t.Errorf("%.200q, want %q", got, want)
	}
	if len(o.names) > 1000 {
		t.Errorf("keeps %d bytes of names", len(o.names))
	}
}

// holes is a file of a terabyte with some bytes at its beginning.
type holes struct{ head []byte }

func (h holes) ReadAt(b []byte, off int64) (int, error) {
	clear(b)
	if off < int64(len(h.head)) {
		copy(b, h.head[off:])
	}
	return len(b), nil
}

// TestHostileSizes gives each section in turn nearly all of a terabyte, then the
// file more sections than there is memory.
func TestHostileSizes(t *testing.T) {
	const size = 1 << 40
	for _, class := range []elf.Class{elf.ELFCLASS32, elf.ELFCLASS64} {
		for section := range 5 {
			b := tinyELF(class, elf.ELFDATA2LSB, elf.EM_X86_64)
			if class == elf.ELFCLASS64 {
				headers := len(b) - 5*64
				binary.LittleEndian.PutUint64(b[headers+section*64+32:], size-1<<20)
				if section == 0 {
					binary.LittleEndian.PutUint16(b[60:], 0) // its size is the number of sections
				}
			} else {
				headers := len(b) - 5*40
				binary.LittleEndian.PutUint32(b[headers+section*40+20:], 1<<32-1<<20)
				if section == 0 {
					binary.LittleEndian.PutUint16(b[48:], 0)
				}
			}
			o, err := ReadELF(holes{b}, size)
			if section == 1 { // .text is not read
				if err != nil {
					t.Errorf("%v, large .text: %v", class, err)
				}
				continue
			}
			if o != nil || err == nil || !strings.Contains(err.Error(), "at most") {
				t.Errorf("%v, section %d: %v", class, section, err)
			}
		}
	}
}

func TestAddr(t *testing.T) {
	o := &Object{}
	o.setSegments([]*elf.Prog{
		{ProgHeader: elf.ProgHeader{Type: elf.PT_LOAD, Flags: elf.PF_R, Off: 0, Vaddr: 0x400000, Filesz: 0x1234}},
		{ProgHeader: elf.ProgHeader{Type: elf.PT_NOTE, Flags: elf.PF_R | elf.PF_X, Off: 0x100, Vaddr: 0x9000100, Filesz: 0x20}},
		{ProgHeader: elf.ProgHeader{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, Off: 0x1240, Vaddr: 0x402240, Filesz: 0x500}},
		{ProgHeader: elf.ProgHeader{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_W, Off: 0x1740, Vaddr: 0x404740, Filesz: 0x10}},
	})
	for _, tt := range []struct{ start, pgoff, ip, want uint64 }{
		{0x7f0000001000, 0x1000, 0x7f0000001250, 0x402250},
		{0x7f0000001000, 0x1000, 0x7f0000001220, 0x400000 + 0x1220}, // page that two segments share
		{0x7f0000000000, 0, 0x7f0000000010, 0x400010},
		{0x7f0000001000, 0x1000, 0x7f0000001744, 0x404744},
		{0x7f0000001000, 0x1000, 0x7f0000001800, 0x402800}, // behind the end, in the last page
	} {
		if got := o.Addr(tt.start, tt.pgoff, tt.ip); got != tt.want {
			t.Errorf("ip %#x in mapping %#x of %#x is %#x, want %#x", tt.ip, tt.start, tt.pgoff, got, tt.want)
		}
	}
	if got := (&Object{}).Addr(0x1000, 0, 0x1234); got != 0x234 {
		t.Errorf("file without segments: %#x", got)
	}
}

func TestTruncated(t *testing.T) {
	b, err := os.ReadFile(buildProgram(t, "c", cProgram, "-O1"))
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(b); n += 1 + n/64 {
		o, err := ReadELF(bytes.NewReader(b[:n]), int64(n))
		want := ErrTruncated
		if n < 4 {
			want = ErrNotELF
		}
		if o != nil || !errors.Is(err, want) {
			t.Errorf("first %d bytes of %d: %v, want %v", n, len(b), err, want)
		}
	}
	for _, text := range []string{"", "#!/bin/sh\necho", "\x7fELG\x02\x01\x01"} {
		if _, err := ReadELF(strings.NewReader(text), int64(len(text))); !errors.Is(err, ErrNotELF) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
