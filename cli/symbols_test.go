// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/perf"
)

const (
	keptSymbols    = "ffffffff81000000 T _text\nffffffff81001000 T kept\nffffffff81002000 T _etext\n"
	runningSymbols = "ffffffff81000000 T _text\nffffffff81001000 T running\nffffffff81002000 T " +
		"_etext\nffffffffc0000000 t probe\t[late]\n"
	movedSymbols = "ffffffff91000000 T _text\nffffffff91000800 T _stext\nffffffff91001000 T moved\nffffffff91002000 " +
		"T _etext\n"
)

// kernelNotes are those of a kernel with an id of 20 bytes.
func kernelNotes(id byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, 4)
	b = binary.NativeEndian.AppendUint32(b, 20)
	b = binary.NativeEndian.AppendUint32(b, 3) // NT_GNU_BUILD_ID
	b = append(b, "GNU\x00"...)
	return append(b, strings.Repeat(string(rune(id)), 20)...)
}

// TestWhichKernelSymbols: the store's copy is taken where it is as good as the
// running kernel's symbols, which name the modules that were loaded since.
func TestWhichKernelSymbols(t *testing.T) {
	ours, err := buildid.New([]byte(strings.Repeat("A", 20)))
	if err != nil {
		t.Fatal(err)
	}
	const text, inside, module = 0xffffffff81000000, 0xffffffff81001010, 0xffffffffc0000010
	ref := symbol.Reference{Name: "_text", Addr: text}
	stext := symbol.Reference{Name: "_stext", Addr: text + 0x800}
	for _, tc := range []struct {
		name    string
		kept    string // "" for no copy
		running string
		notes   byte
		kernel  analysis.Kernel
		addr    uint64
		want    string // "" for an error
	}{
		{"the kernel itself", keptSymbols, runningSymbols, 'A',
			analysis.Kernel{BuildID: ours, Reference: ref, Addrs: []uint64{inside}}, inside, "kept"},
		{"a module too", keptSymbols, runningSymbols, 'A',
			analysis.Kernel{BuildID: ours, Reference: ref, Addrs: []uint64{inside, module}}, module, "probe"},
		{"any address", keptSymbols, runningSymbols, 'A', analysis.Kernel{BuildID: ours, Reference: ref}, module,
			"probe"},
		{"no copy", "", runningSymbols, 'A', analysis.Kernel{BuildID: ours, Reference: ref, Addrs: []uint64{inside}},
			inside, "running"},
		{"a copy of another boot", movedSymbols, runningSymbols, 'A',
			analysis.Kernel{BuildID: ours, Reference: ref, Addrs: []uint64{inside}}, inside, "running"},
		{"it is not told where the kernel was", keptSymbols, runningSymbols, 'A',
			analysis.Kernel{BuildID: ours, Addrs: []uint64{inside}}, inside, "running"},
		{"another kernel runs", keptSymbols, runningSymbols, 'B', analysis.Kernel{BuildID: ours, Reference: ref},
			inside, "kept"},
		{"another boot runs", keptSymbols, movedSymbols, 'A', analysis.Kernel{BuildID: ours, Reference: ref}, inside,
			"kept"},
		{"another kernel, no copy", "", runningSymbols, 'B', analysis.Kernel{BuildID: ours, Reference: ref}, 0, ""},
		{"another boot, no copy", "", movedSymbols, 'A', analysis.Kernel{BuildID: ours, Reference: ref}, inside,
			"moved"},
		{"another boot, told by _stext", "", movedSymbols, 'A', analysis.Kernel{BuildID: ours, Reference: stext},
			inside, "moved"},
		{"another boot, some addresses", "", movedSymbols, 'A',
			analysis.Kernel{BuildID: ours, Reference: ref, Addrs: []uint64{inside}}, inside, "moved"},
		{"a copy of another boot of another kernel", movedSymbols, runningSymbols, 'B',
			analysis.Kernel{BuildID: ours, Reference: ref, Addrs: []uint64{inside}}, inside, "moved"},
		{"the same release", "", runningSymbols, 'A',
			analysis.Kernel{Release: "6.18.5", Arch: "x86_64", Reference: ref}, inside, "running"},
		{"the same release at another address", "", movedSymbols, 'A',
			analysis.Kernel{Release: "6.18.5", Arch: "x86_64", Reference: ref}, 0, ""},
		{"the same release at another _stext", "", movedSymbols, 'A',
			analysis.Kernel{Release: "6.18.5", Arch: "x86_64", Reference: stext}, 0, ""},
		{"another release", "", runningSymbols, 'A', analysis.Kernel{Release: "5.4.0", Arch: "x86_64", Reference: ref},
			0, ""},
		{"another release, address not told", "", runningSymbols, 'A', analysis.Kernel{Release: "5.4.0"}, 0, ""},
		{"another machine", "", runningSymbols, 'A', analysis.Kernel{Arch: "aarch64"}, 0, ""},
		{"nothing is told", "", runningSymbols, 'A', analysis.Kernel{}, inside, "running"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			store, err := buildid.CreateStore(filepath.Join(dir, "store"))
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			s := &symbolSources{store: store, kernel: runningKernel{
				notes: filepath.Join(dir, "notes"), release: filepath.Join(dir, "release"),
				kallsyms: filepath.Join(dir, "kallsyms"), arch: perf.AMD64,
			}}
			if tc.kept != "" {
				if err := store.AddKallsyms(strings.NewReader(tc.kept), ours); err != nil {
					t.Fatal(err)
				}
			}
			for name, content := range map[string][]byte{
				s.kernel.kallsyms: []byte(tc.running), s.kernel.notes: kernelNotes(tc.notes),
				s.kernel.release: []byte("6.18.5\n"),
			} {
				if err := os.WriteFile(name, content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			table, err := s.readKallsyms(tc.kernel)
			if (err != nil) != (tc.want == "") {
				t.Fatalf("wants %q, error %v", tc.want, err)
			}
			if err != nil {
				return
			}
			shift, _ := table.Shift(tc.kernel.Reference)
			sym, ok := table.Lookup(tc.addr - shift)
			if !ok || table.Name(sym) != tc.want {
				t.Errorf("%#x: %v, symbol %d", tc.addr, ok, sym)
			}
		})
	}
}
