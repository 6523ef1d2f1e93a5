// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gantry-tools/gantry/internal/hint"
)

const kallsymsText = `0000000000000000 A fixed_percpu_data
ffffffff81000000 T startup_64
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000040 t local
ffffffff81000080 W weak
ffffffff81000100 D data
ffffffff81000200 T last
ffffffffc0002000 t init_one	[nf_tables]
ffffffffc0003f00 t exit_one	[nf_tables]
ffffffffc0007000 t bpf_prog_6deef7357e7b4530_sd_fw_egress	[bpf]
ffffffffc0009000 t ftrace_trampoline	[__builtin__ftrace]
`

func TestReadKallsyms(t *testing.T) {
	for name, r := range map[string]io.Reader{
		"whole":       strings.NewReader(kallsymsText),
		"bytes":       iotest.OneByteReader(strings.NewReader(kallsymsText)),
		"no last end": strings.NewReader(strings.TrimSpace(kallsymsText)),
	} {
		k, err := ReadKallsyms(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if k.Text() != 0xffffffff81000000 {
			t.Errorf("%s: the kernel begins at %#x", name, k.Text())
		}
		for addr, want := range map[uint64]string{
			0x0:                "",
			0x10:               "",
			0xffffffff80ffffff: "",
			0xffffffff81000000: "_text [kernel.kallsyms]",
			0xffffffff8100003f: "_text [kernel.kallsyms]",
			0xffffffff81000040: "local [kernel.kallsyms]",
			0xffffffff810000ff: "weak [kernel.kallsyms]",
			0xffffffff81000100: "",
			0xffffffff81001fff: "last [kernel.kallsyms]", // ends with the page behind its own
			0xffffffff81002000: "",
			0xffffffffc0003eff: "init_one [nf_tables]",
			0xffffffffc0003f00: "exit_one [nf_tables]",
			0xffffffffc0005000: "",
			0xffffffffc0007001: "bpf_prog_6deef7357e7b4530_sd_fw_egress [bpf]",
			0xffffffffc0009001: "ftrace_trampoline [__builtin__ftrace]",
			0xffffffffffffffff: "",
		} {
			got := ""
			if sym, ok := k.Lookup(addr); ok {
				got = k.Name(sym) + " " + k.DSO(sym)
			}
			if got != want {
				t.Errorf("%s: %#x is %q, want %q", name, addr, got, want)
			}
		}
	}
}

func TestKallsymsRestricted(t *testing.T) {
	const text = "0000000000000000 T _text\n0000000000000000 D data\n0000000000000000 t f\t[mod]\n"
	k, err := ReadKallsyms(strings.NewReader(text))
	if k != nil || !errors.Is(err, ErrRestricted) || !strings.Contains(hint.Of(err), "kptr_restrict") {
		t.Errorf("%v, %v, hint %q", k, err, hint.Of(err))
	}
	if _, err := ReadKallsyms(strings.NewReader("")); err != nil {
		t.Errorf("empty file: %v", err)
	}
}

func TestKallsymsErrors(t *testing.T) {
	for _, line := range []string{
		"x", "ffffffff81000000", "ffffffff81000000 T", "ffffffff81000000 T ", "ffffffff81000000 TT name", "ffffffff81000000\tT name",
		" T name", "fffffffff81000000 T name", "FFFFFFFF81000000 T name", "ffffffff81000000 T \t[mod]", "1 T a\x00b", "",
		"1 T " + strings.Repeat("x", 1<<20),
	} {
		k, err := ReadKallsyms(strings.NewReader("ffffffff81000000 T ok\n" + line + "\nffffffff81000010 T ok2\n"))
		if k != nil || err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%.60q: %v, %v", line, k, err)
		}
	}
	broken := errors.New("broken")
	if _, err := ReadKallsyms(io.MultiReader(strings.NewReader(kallsymsText), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("read error: %v", err)
	}
}

// FuzzKallsyms checks that there is either a table or an error, and that a table
// written as text and read again is the same.
func FuzzKallsyms(f *testing.F) {
	f.Add([]byte(kallsymsText))
	f.Add([]byte("0 T a\n"))
	f.Add([]byte("ffffffffffffffff t z\t[m]\n1 W y"))
	f.Fuzz(func(t *testing.T, text []byte) {
		k, err := ReadKallsyms(strings.NewReader(string(text)))
		if (k == nil) == (err == nil) {
			t.Fatalf("%v and %v", k, err)
		}
		if err != nil {
			return
		}
		var b strings.Builder
		for i := range int32(k.Len()) {
			s := k.Sym(i)
			if s.End <= s.Start || s.Name == "" {
				t.Fatalf("symbol %d is %+v", i, s)
			}
			if got, ok := k.Lookup(s.Start); !ok || got != i {
				t.Fatalf("symbol %d is not found at its start %#x", i, s.Start)
			}
			fmt.Fprintf(&b, "%x t %s", s.Start, s.Name)
			if dso := k.DSO(i); dso != KernelDSO {
				fmt.Fprintf(&b, "\t%s", dso)
			}
			b.WriteByte('\n')
		}
		again, err := ReadKallsyms(strings.NewReader(b.String()))
		if err != nil || again.Len() != k.Len() {
			t.Fatalf("read again: %v", err)
		}
		for i := range int32(k.Len()) {
			if again.Sym(i).Start != k.Sym(i).Start || again.Name(i) != k.Name(i) || again.DSO(i) != k.DSO(i) {
				t.Fatalf("symbol %d was %+v, is %+v", i, k.Sym(i), again.Sym(i))
			}
		}
	})
}
