// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// TestShortLivedHaveBuildIDs: programs that run for a millisecond.
func TestShortLivedHaveBuildIDs(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tool("gcc"))
	prog := testutil.CompileC(t, "int main(void) { return 0; }\n", "-static")
	script := "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do " + prog + "; done"
	rec := record(t, Options{Groups: groups(t, "cpu-clock"), Command: &Command{Args: []string{"sh", "-c", script}}})
	with, without := 0, 0
	eachMmap2(t, rec.path, func(m *perf.Mmap2) {
		switch {
		case m.Filename != prog:
		case len(m.BuildID) == 20:
			with++
		default:
			without++
		}
	})
	if with != 20 || without != 0 {
		t.Errorf("%d mappings with a build-id and %d without, want 20 and 0", with, without)
	}
}

func eachMmap2(t *testing.T, path string, fn func(*perf.Mmap2)) {
	t.Helper()
	r, err := perfdata.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		raw, err := r.Next()
		if err != nil {
			break
		}
		if raw.Type != perf.RecordMmap2 {
			continue
		}
		rec, err := perf.Decode(raw.Raw, r.Order(), raw.Event)
		if err != nil {
			t.Fatal(err)
		}
		fn(rec.(*perf.Mmap2))
	}
}

// TestOtherRecordingsStayWhole: a recording of the real perf that runs at the
// same time must not get the mark of build-ids that the kernel spreads; perf
// 6.1 does not survive it. The recordings of other tests may spread it too,
// hence more than one try.
func TestOtherRecordingsStayWhole(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tool("perf"))
	var failures []string
	for range 3 {
		other := filepath.Join(t.TempDir(), "other.data")
		cmd := exec.Command("perf", "record", "-B", "-N", "-a", "-e", "cpu-clock", "-F", "99", "-o", other, "--", "sleep", "2")
		var text bytes.Buffer
		cmd.Stdout, cmd.Stderr = &text, &text
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		record(t, Options{Groups: groups(t, "cpu-clock"), Target: Target{All: true}, Duration: time.Second,
			Command: &Command{Args: []string{"sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do ls / >/dev/null; done"}}})
		err := cmd.Wait()
		marked := 0
		if err == nil {
			marked = countMarked(t, other)
		}
		if err == nil && marked == 0 {
			return
		}
		failures = append(failures, strings.TrimSpace(text.String()))
	}
	t.Errorf("perf record did not stay whole beside gantry's:\n%s", strings.Join(failures, "\n"))
}

// countMarked counts the MMAP2 records with the bit of build-ids.
func countMarked(t *testing.T, path string) int {
	t.Helper()
	r, err := perfdata.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := 0
	for {
		rec, err := r.Next()
		if err != nil {
			return n
		}
		if rec.Type == perf.RecordMmap2 && rec.Misc&perf.MiscMmapBuildID != 0 {
			n++
		}
	}
}
