// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/buildid"
)

const (
	keptSymbols    = "ffffffff81000000 T _text\nffffffff81001000 T kept\nffffffff81002000 T _etext\n"
	runningSymbols = "ffffffff81000000 T _text\nffffffff81001000 T running\nffffffff81002000 T _etext\nffffffffc0000000 t probe\t[late]\n"
	movedSymbols   = "ffffffff91000000 T _text\nffffffff91001000 T moved\nffffffff91002000 T _etext\n"
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
	for _, tc := range []struct {
		name    string
		kept    string // "" for no copy
		running string
		notes   byte
		kernel  analysis.Kernel
		addr    uint64
		want    string // "" for an error
	}{
		{"the kernel itself", keptSymbols, runningSymbols, 'A', analysis.Kernel{BuildID: ours, Text: text, Addrs: []uint64{inside}}, inside, "kept"},
		{"a module too", keptSymbols, runningSymbols, 'A', analysis.Kernel{BuildID: ours, Text: text, Addrs: []uint64{inside, module}}, module, "probe"},
		{"any address", keptSymbols, runningSymbols, 'A', analysis.Kernel{BuildID: ours, Text: text}, module, "probe"},
		{"no copy", "", runningSymbols, 'A', analysis.Kernel{BuildID: ours, Text: text, Addrs: []uint64{inside}}, inside, "running"},
		{"a copy of another boot", movedSymbols, runningSymbols, 'A', analysis.Kernel{BuildID: ours, Text: text, Addrs: []uint64{inside}}, inside, "running"},
		{"it is not told where the kernel was", keptSymbols, runningSymbols, 'A', analysis.Kernel{BuildID: ours, Addrs: []uint64{inside}}, inside, "running"},
		{"another kernel runs", keptSymbols, runningSymbols, 'B', analysis.Kernel{BuildID: ours, Text: text}, inside, "kept"},
		{"another boot runs", keptSymbols, movedSymbols, 'A', analysis.Kernel{BuildID: ours, Text: text}, inside, "kept"},
		{"another kernel, no copy", "", runningSymbols, 'B', analysis.Kernel{BuildID: ours, Text: text}, 0, ""},
		{"another boot, no copy", "", movedSymbols, 'A', analysis.Kernel{BuildID: ours, Text: text}, 0, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			store, err := buildid.CreateStore(filepath.Join(dir, "store"))
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			s := &symbolSources{store: store, procfs: filepath.Join(dir, "kallsyms"), kernelIDs: filepath.Join(dir, "notes")}
			if tc.kept != "" {
				if err := store.AddKallsyms(strings.NewReader(tc.kept), ours); err != nil {
					t.Fatal(err)
				}
			}
			for name, content := range map[string][]byte{s.procfs: []byte(tc.running), s.kernelIDs: kernelNotes(tc.notes)} {
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
			sym, ok := table.Lookup(tc.addr)
			if !ok || table.Name(sym) != tc.want {
				t.Errorf("%#x: %v, symbol %d", tc.addr, ok, sym)
			}
		})
	}
}
