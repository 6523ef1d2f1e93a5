// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// TestVDSO reads the vdso of this process from its memory.
func TestVDSO(t *testing.T) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	var start, end uint64
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, "[vdso]\n") {
			if _, err := fmt.Sscanf(line, "%x-%x ", &start, &end); err != nil {
				t.Fatal(err)
			}
		}
	}
	if start == 0 {
		testutil.NotHere(t, "this kernel gives processes no vdso")
	}
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	b := make([]byte, end-start)
	if _, err := mem.ReadAt(b, int64(start)); err != nil {
		testutil.Lacks(t, "cannot read own memory: %v", err)
	}
	o, err := ReadELF(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if o.BuildID.IsZero() {
		t.Error("no build-id")
	}
	sym, ok := int32(0), false
	for i := range int32(o.Len()) {
		if strings.HasSuffix(o.Name(i), "clock_gettime") {
			sym, ok = i, true
		}
	}
	if !ok {
		t.Fatal("no clock_gettime")
	}
	if got, _ := o.Lookup(o.Addr(start, 0, start+o.Sym(sym).Start)); got != sym {
		t.Errorf("address of %s is in symbol %d", o.Name(sym), got)
	}
	path := filepath.Join(t.TempDir(), "vdso.so")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	checkAgainstNM(t, o, path, "-D")
}
