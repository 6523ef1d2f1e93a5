// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/capture"
	"github.com/gantry-tools/gantry/capture/binaries"
	"github.com/gantry-tools/gantry/capture/filter"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

func TestRecordRing(t *testing.T) {
	page := sys.PageSize()
	for text, want := range map[string]int{
		"": 0, "128": 128 * page, "1": page, "4M": 4 << 20, "4m": 4 << 20, "512K": 512 << 10, "1G": 1 << 30,
		"10B": page,
		"0":   -1, "2G": -1, "x": -1, "-1": -1, "4MB4": -1, "M": -1,
	} {
		o := new(capture.Options)
		err := (&recordFlags{ring: text}).setRing(o)
		if (err != nil) != (want < 0) || err == nil && o.RingSize != want {
			t.Errorf("-m %q: %d, %v, want %d", text, o.RingSize, err, want)
		}
	}
}

func TestRecordCallGraph(t *testing.T) {
	for _, tt := range []struct {
		g    bool
		mode string
		want capture.CallGraph
		size int
		bad  bool
		trim bool
	}{
		{mode: "", want: capture.NoCallGraph},
		{g: true, want: capture.FramePointers},
		{mode: "fp", want: capture.FramePointers},
		{mode: "dwarf", want: capture.DWARF},
		{g: true, mode: "dwarf,16384", want: capture.DWARF, size: 16384},
		{mode: "dwarf,70000", bad: true},
		{mode: "dwarf,", bad: true},
		{mode: "fp", trim: true, bad: true},
		{trim: true, bad: true},
		{mode: "dwarf", trim: true, want: capture.DWARF},
		{mode: "fp,8192", bad: true},
		{mode: "lbr", bad: true},
	} {
		o := new(capture.Options)
		err := (&recordFlags{graph: tt.g, callGraph: tt.mode, trim: tt.trim}).setCallGraph(o)
		if (err != nil) != tt.bad || err == nil &&
			(o.CallGraph != tt.want || o.StackSize != tt.size || o.TrimStacks != tt.trim) {
			t.Errorf("-g=%v --call-graph %q: %v %d, %v", tt.g, tt.mode, o.CallGraph, o.StackSize, err)
		}
	}
}

func TestRecordTargets(t *testing.T) {
	for _, tt := range []struct {
		f   recordFlags
		all bool
		bad bool
	}{
		{f: recordFlags{}},
		{f: recordFlags{all: true}, all: true},
		{f: recordFlags{cpus: "0-1"}, all: true},
		{f: recordFlags{pids: "1,2"}},
		{f: recordFlags{pids: "1", cpus: "0"}},
		{f: recordFlags{all: true, selectors: selectorFlags{containers: []string{"web"}, names: []string{"web"}}},
			all: true},
		{f: recordFlags{pids: "1,,2"}, bad: true},
		{f: recordFlags{pids: "0"}, bad: true},
		{f: recordFlags{tids: "a"}, bad: true},
		{f: recordFlags{cpus: "9-1"}, bad: true},
		{f: recordFlags{all: true, tids: "1"}, bad: true},
		{f: recordFlags{pids: "1", cgroups: []string{"/x"}}, bad: true},
	} {
		o := new(capture.Options)
		err := tt.f.setTasks(o)
		if (err != nil) != tt.bad || err == nil && o.Target.All != tt.all {
			t.Errorf("%+v: %+v, %v", tt.f, o.Target, err)
		}
	}
}

func TestRecordSummary(t *testing.T) {
	res := &capture.Result{
		Bytes: 3_210_000, Samples: 51234, Lost: 1000, LostSideband: 3, Containers: 4,
		LostBy: []capture.ContainerLoss{{Label: "a", Lost: 900}, {Label: "b", Lost: 50}, {Label: "c", Lost: 20},
			{Label: "d", Lost: 15}, {Label: "e", Lost: 10}, {Label: "f", Lost: 5}},
		Binaries: binaries.Summary{Host: 7, Kept: 2,
			Missing: map[string]int{"too large": 1, "its process had ended": 2}},
		Notes: []string{"a note"},
	}
	want := `gantry: a note
gantry: 3 records about tasks and mappings were lost: some functions may have no name
gantry: 1,000 samples were lost (1.9 %): larger rings (-m) or fewer samples (-F) help
gantry:   900 while a ran
gantry:   50 while b ran
gantry:   20 while c ran
gantry:   15 while d ran
gantry:   10 while e ran
gantry:   and 1 more (-v)
gantry: 3 binaries not kept (its process had ended: 2, too large: 1)
[ gantry record: captured 3.2 MB (51,234 samples, 1,000 lost) from 4 containers into /tmp/x.data ]
`
	var got bytes.Buffer
	newRecordReport(&got, new(recordFlags)).result(res, "/tmp/x.data")
	if got.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", &got, want)
	}
	got.Reset()
	newRecordReport(&got, new(recordFlags)).result(new(capture.Result), "-")
	want = `gantry: no samples: what was recorded did not run in that time, or its events did not happen
[ gantry record: captured 0 B (0 samples, 0 lost) into standard output ]
`
	if got.String() != want {
		t.Errorf("of nothing:\n%s\nwant:\n%s", &got, want)
	}
	got.Reset()
	newRecordReport(&got, &recordFlags{quiet: true}).result(res, "x.data")
	if got.Len() > 0 {
		t.Errorf("-q says: %s", &got)
	}
}

// The progress line is rewritten in place and gone before the summary.
func TestRecordProgress(t *testing.T) {
	var got bytes.Buffer
	r := newRecordReport(&got, new(recordFlags))
	r.progress(capture.Progress{Elapsed: time.Minute})
	if got.Len() > 0 {
		t.Errorf("progress without a terminal: %q", &got)
	}
	if r.endless(); got.Len() > 0 {
		t.Errorf("how to stop, without a terminal: %q", &got)
	}
	r.live = true
	if r.endless(); got.String() != "gantry: recording, Ctrl-C ends it\n" {
		t.Errorf("how to stop: %q", &got)
	}
	got.Reset()
	r.progress(capture.Progress{Elapsed: time.Second})
	r.progress(capture.Progress{Elapsed: time.Minute, Samples: 1234, Bytes: 5_600, Lost: 7, Containers: 1})
	line := "[ 1m0s  1,234 samples  5.6 kB  7 lost  1 container ]"
	if got.String() != "\r"+line {
		t.Errorf("progress %q", &got)
	}
	r.result(&capture.Result{Samples: 1}, "-")
	if rest := strings.TrimPrefix(got.String(), "\r"+line); !strings.HasPrefix(rest,
		"\r"+strings.Repeat(" ", len(line))+"\r[ gantry record") {
		t.Errorf("after the progress: %q", rest)
	}
}

func TestNearContainers(t *testing.T) {
	var table container.Table
	if got := nearContainers(&table, "x"); !strings.Contains(got, "no containers run here") {
		t.Error(got)
	}
	for i, name := range []string{"web", "database", "cache", "queue", "proxy"} {
		table.Add(container.Container{Name: name, ID: strings.Repeat(string(rune('a'+i)), 64)})
	}
	for sel, want := range map[string]string{
		"databse":  "did you mean database?",
		"data":     "did you mean database?",
		"web-1":    "did you mean web?",
		"catche":   "did you mean cache?",
		"nonsense": "'gantry containers' lists what runs",
	} {
		if got := nearContainers(&table, sel); got != want {
			t.Errorf("%s: %q, want %q", sel, got, want)
		}
	}
}

// Without a look everywhere nothing is said to be nowhere.
func TestBlind(t *testing.T) {
	none := fmt.Errorf("%q: %w", "x", container.ErrNoMatch)
	closed := []container.Warning{{Where: "processes", Err: fs.ErrPermission}}
	if err := blindError(none, closed); !errors.Is(err, container.ErrNoMatch) || hint.Of(err) != seeContainers {
		t.Errorf("blind: %v, hint %q", err, hint.Of(err))
	}
	for _, warnings := range [][]container.Warning{nil, {{Where: "docker", Err: fs.ErrClosed}}} {
		if err := blindError(none, warnings); err != none {
			t.Errorf("%v: %v", warnings, err)
		}
	}
	if err := blindError(container.ErrAmbiguous, closed); err != container.ErrAmbiguous {
		t.Error(err)
	}
}

// A value says what is wanted, not which function of Go refused it.
func TestRecordValues(t *testing.T) {
	for flag, c := range map[string]struct{ bad, good []string }{
		"count":             {[]string{"0", "-1", "x", "18446744073709551616"}, []string{"1", "1000000"}},
		"duration":          {[]string{"0", "0s", "-1s", "5", "x"}, []string{"5s", "300ms"}},
		"compression-level": {[]string{"0", "23", "-1", "x"}, []string{"1", "22"}},
	} {
		cmd := newRecordCmd(&env{})
		for _, s := range c.bad {
			if err := cmd.Flags().Set(flag, s); err == nil || !strings.Contains(err.Error(), "write a ") ||
				strings.Contains(err.Error(), "strconv") {
				t.Errorf("--%s=%s: %v", flag, s, err)
			}
		}
		for _, s := range c.good {
			if err := cmd.Flags().Set(flag, s); err != nil {
				t.Errorf("--%s=%s: %v", flag, s, err)
			}
		}
	}
}

func TestRecordEmpty(t *testing.T) {
	for _, flag := range []string{"pid", "tid", "cpu", "container", "cgroup", "output", "event", "freq", "mmap-pages",
		"call-graph", "buildid-dir"} {
		cmd := newRecordCmd(&env{})
		if err := checkGiven(cmd.Flags()); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Flags().Set(flag, ""); err != nil {
			t.Fatal(err)
		}
		if err := checkGiven(cmd.Flags()); err == nil || err.Error() != "--"+flag+" is empty" {
			t.Errorf("--%s '': %v", flag, err)
		}
	}
}

// An error of the output tells what there is; one of the command does not.
func TestRecordFailure(t *testing.T) {
	r := newRecordReport(io.Discard, new(recordFlags))
	full := hint.Wrap(syscall.ENOSPC, "make room")
	nowhere := t.TempDir()
	err := r.failure(&capture.Result{Samples: 5000, Written: 1234}, full, nowhere)
	if err.Error() != "no space left on device (about 1,234 samples were written)" || hint.Of(err) != "make room" ||
		!errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v, hint %q", err, hint.Of(err))
	}
	command := &capture.CommandError{Name: "x", Err: fs.ErrPermission}
	if err := r.failure(&capture.Result{}, command, nowhere); err != command {
		t.Error(err)
	}
	if err := r.failure(nil, full, nowhere); err != full {
		t.Error(err)
	}
}

// owner is a command that ends when it is killed.
type owner struct{ killed chan struct{} }

func (o owner) CommandRuns() bool { return true }
func (o owner) KillCommand()      { close(o.killed) }

func TestSignalWatch(t *testing.T) {
	signals, quit := make(chan os.Signal, 2), make(chan struct{})
	o := owner{make(chan struct{})}
	w := &signalWatch{signals: signals, quit: quit, owner: o, say: newRecordReport(io.Discard, new(recordFlags))}
	done := make(chan struct{})
	go func() { w.run(); close(done) }()
	signals <- os.Interrupt
	signals <- os.Interrupt
	<-o.killed
	<-done

	// One signal kills nothing, and the end of the recording ends the watch.
	w.owner = owner{} // closing nil panics
	signals <- os.Interrupt
	close(quit)
	w.run()
}

func TestHumanNumbers(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 3_210_000: "3.2 MB",
		5_000_000_000_000_000: "5000.0 TB"} {
		if got := byteSize(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestRecordHostsNamespace(t *testing.T) {
	r, err := container.NewResolver(nil)
	if err != nil {
		t.Fatal(err)
	}
	sel := fmt.Sprintf("uts:%d", r.Table().Host[container.UTSNS])
	c, err := container.BuiltIn().ParseChoice(sel)
	if err != nil {
		t.Fatal(err)
	}
	err = new(recordFlags).choose(r, &c)
	if !errors.Is(err, filter.ErrHost) || hint.Of(err) == "" {
		t.Errorf("%s: %v, hint %q", sel, err, hint.Of(err))
	}
}
