// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// TestObjdump asks objdump about an instruction, and leaves no file.
func TestObjdump(t *testing.T) {
	testutil.Require(t, testutil.Tool("objdump"), testutil.Arch("amd64"))
	t.Setenv("TMPDIR", t.TempDir())
	ask, err := (&annotateFlags{objdump: defaultObjdump}).disassembler()
	if err != nil {
		t.Fatal(err)
	}
	adcx := []byte{0x66, 0x0f, 0x38, 0xf6, 0xc3}
	list, err := ask(perf.AMD64, adcx, 0x1000)
	if err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
		t.Error(left, err)
	}
}

// TestNoSuchObjdump: the default may be missing, one that was named may not.
func TestNoSuchObjdump(t *testing.T) {
	if _, err := exec.LookPath("objdump"); err == nil {
		t.Setenv("PATH", t.TempDir())
	}
	if ask, err := (&annotateFlags{objdump: defaultObjdump}).disassembler(); ask != nil || err != nil {
		t.Error(err)
	}
	if _, err := (&annotateFlags{objdump: filepath.Join(t.TempDir(), "objdump")}).disassembler(); err == nil {
		t.Error("one that was named is missing, and that is no error")
	}
}
