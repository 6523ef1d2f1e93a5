// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKernelText(t *testing.T) {
	const text = "0000000000000000 A fixed_percpu_data\n" +
		"ffffffff81000000 T _stext\nffffffff81000000 T _text\nffffffff81000030 t secondary\n" +
		"ffffffff82209988 T _etext\nffffffff83000000 D data\n"
	for _, tt := range []struct {
		name, text string
		size       uint64
		want       KernelText
	}{
		{"size known", text, 0x1209988, KernelText{"_text", 0xffffffff81000000, 0xffffffff82209988}},
		{"read to the end of text", text, 0, KernelText{"_text", 0xffffffff81000000, 0xffffffff82209988}},
		{"only _stext", "ffff800080010000 T _stext\nffff800081000000 T _etext\n", 0, KernelText{"_stext", 0xffff800080010000, 0xffff800081000000}},
		{"hidden", "0000000000000000 T _text\n0000000000000000 T _etext\n", 0, KernelText{}},
		{"no end", "ffffffff81000000 T _text\n", 0, KernelText{}},
		{"empty", "", 5, KernelText{}},
		{"garbage", "x\n\nffff\nffffffff81000000\n", 5, KernelText{}},
	} {
		got, err := ParseKernelText(strings.NewReader(tt.text), tt.size)
		if err != nil || got != tt.want {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}
}

func FuzzKernelText(f *testing.F) {
	f.Add("ffffffff81000000 T _text\nffffffff82209988 T _etext\n", uint64(0))
	f.Add("ffffffff81000000 T _stext\n", uint64(7))
	f.Fuzz(func(t *testing.T, text string, size uint64) {
		got, err := ParseKernelText(strings.NewReader(text), size)
		if err != nil && got != (KernelText{}) {
			t.Errorf("%+v and %v", got, err)
		}
		if got.Start != 0 && (got.End <= got.Start || got.Symbol == "") {
			t.Errorf("%+v", got)
		}
	})
}

func TestKernelCodeSize(t *testing.T) {
	name := filepath.Join(t.TempDir(), "iomem")
	for text, want := range map[string]uint64{
		"00100000-bffdbfff : System RAM\n  01000000-02209987 : Kernel code\n  02400000-02e09fff : Kernel rodata\n": 0x1209988,
		"00000000-00000000 : System RAM\n  00000000-00000000 : Kernel code\n":                                      0,
		"": 0,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := kernelCodeSize(name); got != want {
			t.Errorf("%q: %#x, want %#x", text, got, want)
		}
	}
}
