// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

func TestTracingDataLayout(t *testing.T) {
	tr := &Tracefs{FS: fixtureTracefs()}
	list, err := tr.Find("raw_syscalls", "*")
	if err != nil {
		t.Fatal(err)
	}
	more, err := tr.Find("sched", "sched_switch")
	if err != nil {
		t.Fatal(err)
	}
	// Twice the same, and in no order.
	got, err := tr.TracingData(append(append(more, list...), more...))
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	str := func(s string) { want = append(append(want, s...), 0) }
	u32 := func(v int) { want = binary.LittleEndian.AppendUint32(want, uint32(v)) }
	file := func(s string) {
		want = binary.LittleEndian.AppendUint64(want, uint64(len(s)))
		want = append(want, s...)
	}
	want = append(want, "\x17\x08\x44tracing0.6\x00\x00\x08"...)
	u32(os.Getpagesize())
	str("header_page")
	file("field: u64 timestamp;\n")
	str("header_event")
	file("# compressed entry header\n")
	u32(0) // ftrace
	u32(2) // systems
	str("raw_syscalls")
	u32(2)
	file("name: sys_enter\n")
	file("name: sys_exit\n")
	str("sched")
	u32(1)
	file("name: sched_switch\n")
	u32(0) // kallsyms
	printk := "0xffff : \"text\"\n"
	u32(len(printk))
	want = append(want, printk...)
	file("1 init\n")
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

func TestTracingDataWithoutOptionalFiles(t *testing.T) {
	files := fixtureTracefs()
	delete(files, "printk_formats")
	delete(files, "saved_cmdlines")
	tr := &Tracefs{FS: files}
	if _, err := tr.TracingData([]*Tracepoint{{System: "sched", Name: "sched_switch"}}); err != nil {
		t.Errorf("a tracefs without printk formats: %v", err)
	}
	delete(files, "events/header_page")
	if b, err := tr.TracingData(nil); !errors.Is(err, fs.ErrNotExist) || b != nil {
		t.Errorf("a tracefs without header_page: %d bytes, %v", len(b), err)
	}
}

func TestFindSkipsInternalEvents(t *testing.T) {
	tr := &Tracefs{FS: fixtureTracefs()}
	found, err := tr.Find("*", "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, tp := range found {
		if tp.System == "ftrace" {
			t.Errorf("found %v, which cannot be opened", tp)
		}
	}
	if len(found) != 9 {
		t.Errorf("found %d tracepoints: %v", len(found), found)
	}
	for _, bad := range []string{"..", "sched/../sched", "."} {
		if found, _ := tr.Find(bad, "sched_switch"); len(found) != 0 {
			t.Errorf("system %q leads to %v", bad, found)
		}
	}
}

// A mount that is private to this process gives the same as one that is not.
func TestPrivateTracefs(t *testing.T) {
	testutil.CheckLeaks(t)
	testutil.Require(t, testutil.Root, testutil.Kernel("5.2"))
	private, err := privateTracefs()
	if err != nil {
		t.Fatal(err)
	}
	defer private.Close()
	found, err := private.Find("sched", "sched_switch")
	if err != nil || len(found) != 1 || found[0].ID == 0 {
		t.Fatalf("found %v, %v", found, err)
	}
	live, err := livePMUs(t).Tracefs()
	if err != nil {
		t.Fatal(err)
	}
	want, err := live.Find("sched", "sched_switch")
	if err != nil || *want[0] != *found[0] {
		t.Errorf("private: %v, %+v; mounted: %+v, %v", found[0], *found[0], want, err)
	}
	if _, err := private.TracingData(found); err != nil {
		t.Error(err)
	}
}

func TestTracefsUnprivileged(t *testing.T) {
	asNobody(t, func() {
		_, err := privateTracefs()
		if !errors.Is(err, ErrNoTracefs) || !errors.Is(err, fs.ErrPermission) {
			t.Errorf("got %v, want ErrNoTracefs for lack of permission", err)
		}
	})
}

// perf and we must describe the same tracepoints in the same bytes, up to the
// names of running commands.
func TestTracingDataEqualsPerf(t *testing.T) {
	testutil.CheckLeaks(t)
	testutil.Require(t, testutil.Root, testutil.Tracefs, testutil.Tool("perf", "true"))
	out := filepath.Join(t.TempDir(), "perf.data")
	const spec = "sched:sched_switch,raw_syscalls:sys_exit,raw_syscalls:sys_enter"
	recordTrue(t, out, spec)
	theirs, err := perfTracingData(out)
	if err != nil {
		t.Fatal(err)
	}
	pmus := livePMUs(t)
	groups, err := Parse(spec, pmus)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := pmus.TracingData(groups)
	if err != nil {
		t.Fatal(err)
	}
	// perf lists systems and events in the order of the directory: compare
	// what does not depend on it.
	head := bytes.Index(ours, []byte("raw_syscalls\x00"))
	if head < 0 || len(theirs) < head || !bytes.Equal(ours[:head], theirs[:head]) {
		t.Errorf("the start differs:\n%q\n%q", ours[:max(head, 0)], theirs[:min(head, len(theirs))])
	}
	for _, part := range []string{"raw_syscalls\x00", "sched\x00", "name: sched_switch", "name: sys_enter", "name: sys_exit"} {
		if bytes.Count(ours, []byte(part)) != bytes.Count(theirs, []byte(part)) {
			t.Errorf("%q: %d times in ours, %d in perf's", part, bytes.Count(ours, []byte(part)), bytes.Count(theirs, []byte(part)))
		}
	}
	for _, name := range []string{"sched_switch", "sys_enter", "sys_exit"} {
		a, b := formatText(ours, name), formatText(theirs, name)
		if a == nil || !bytes.Equal(a, b) {
			t.Errorf("the format of %s differs:\n%s\n%s", name, a, b)
		}
	}
}

// perf script must print the same fields with our description as with its own,
// and warn of nothing.
func TestPerfScriptReadsTracingData(t *testing.T) {
	testutil.CheckLeaks(t)
	testutil.Require(t, testutil.Root, testutil.Tool("perf", "true"))
	path := filepath.Join(t.TempDir(), "perf.data")
	const spec = "sched:sched_process_exec,raw_syscalls:sys_enter"
	recordTrue(t, path, spec)
	want := perfScript(t, path)
	if !bytes.Contains(want, []byte("filename=")) {
		t.Fatalf("perf prints no fields:\n%.500s", want)
	}
	pmus := livePMUs(t)
	groups, err := Parse(spec, pmus)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := pmus.TracingData(groups)
	if err != nil {
		t.Fatal(err)
	}
	// Put our description behind the file and point the section there.
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	table := le.Uint64(b[40:]) + le.Uint64(b[48:])
	le.PutUint64(b[table:], uint64(len(b)))
	le.PutUint64(b[table+8:], uint64(len(ours)))
	if err := os.WriteFile(path, append(b, ours...), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := perfScript(t, path); !bytes.Equal(got, want) {
		t.Errorf("perf script prints\n%.1000s\nwith its own description\n%.1000s", got, want)
	}
}

// perfScript is what perf script prints, on both outputs.
func perfScript(t *testing.T, path string) []byte {
	t.Helper()
	out, stderr, err := testutil.RunPerf(t, func() *exec.Cmd { return exec.Command("perf", "script", "-f", "-i", path) })
	if err != nil {
		t.Fatalf("perf script: %v\n%s", err, stderr)
	}
	return append(out, stderr...)
}

// formatText cuts a tracepoint's format out of tracing data.
func formatText(b []byte, name string) []byte {
	from := bytes.Index(b, []byte("name: "+name+"\n"))
	if from < 8 {
		return nil
	}
	size := binary.LittleEndian.Uint64(b[from-8:])
	if size > uint64(len(b)-from) {
		return nil
	}
	return b[from : from+int(size)]
}

// perfTracingData reads the TRACING_DATA section, bit 1, of a file that perf
// wrote: the first of the feature sections behind the data.
func perfTracingData(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	if len(b) < 104 || le.Uint64(b[72:])&2 == 0 || le.Uint64(b[72:])&1 != 0 {
		return nil, fmt.Errorf("%s has no tracing data", path)
	}
	table := le.Uint64(b[40:]) + le.Uint64(b[48:])
	off, size := le.Uint64(b[table:]), le.Uint64(b[table+8:])
	return b[off : off+size], nil
}
