// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// TestFromImageOfProcess reads the id of a program out of its memory.
func TestFromImageOfProcess(t *testing.T) {
	prog := testutil.SpinProgram(t, "image_hot")
	f, err := os.Open(prog)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	want, err := FromFile(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	cmd := testutil.StartReady(t, exec.Command(prog))
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	found := map[string]ID{}
	for line := range strings.Lines(string(maps)) {
		var start, end, off uint64
		if _, err := fmt.Sscanf(line, "%x-%x %s %x", &start, &end, new(string), &off); err != nil {
			t.Fatal(err)
		}
		name := line[strings.LastIndexByte(line, ' ')+1 : len(line)-1]
		if off == 0 && (name == prog || name == "[vdso]") {
			if found[name], err = FromImage(io.NewSectionReader(mem, int64(start), int64(end-start)), int64(end-start)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if found[prog] != want {
		t.Errorf("memory has %v, the file %v", found[prog], want)
	}
	if found["[vdso]"].IsZero() {
		t.Errorf("the vdso has no id in %s", maps)
	}
}
