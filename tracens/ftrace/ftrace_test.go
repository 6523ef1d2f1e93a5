// SPDX-License-Identifier: Apache-2.0

//go:build linux

package ftrace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/tracens"
	"github.com/gantry-tools/gantry/tracens/events"
)

// namespace makes one with the system, of a tracefs.
func namespace(t *testing.T, tracefs string) (*tracens.Registry, *tracens.Namespace, *events.Set) {
	t.Helper()
	users := new(events.System)
	r := tracens.NewRegistry()
	for _, system := range []tracens.System{users, New(tracefs, users.Of)} {
		if err := r.Register(system); err != nil {
			t.Fatal(err)
		}
	}
	ns, err := r.Create(fmt.Sprintf("test%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	return r, ns, users.Of(ns)
}

// loop runs a program again and again.
func loop(t *testing.T, name string) *testutil.Container {
	return testutil.StartContainer(t, testutil.ContainerSpec{Name: name, Ready: "ready",
		Args: []string{"/bin/sh", "-c", "echo ready; while true; do /bin/busybox usleep 1000; done"}})
}

// TestContainer: tracepoints of one of two containers.
func TestContainer(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.CgroupV2, testutil.Tracefs, testutil.Tool("runc"))
	testutil.CheckLeaks(t)
	one, two := loop(t, "traced"), loop(t, "neighbour")
	r, ns, set := namespace(t, Tracefs)
	instance := filepath.Join(Tracefs, "instances", "gantry."+ns.Name)
	command := "ftrace " + one.CgroupPath + " sched:sched_process_exec,sched:sched_process_exit"
	if err := r.Configure(ns, command); err != nil {
		t.Fatal(err)
	}
	if text, err := r.Show(ns); err != nil || !strings.Contains(text, command+"\n") {
		t.Errorf("%v\n%s", err, text)
	}
	enabled := func() string {
		text, err := os.ReadFile(filepath.Join(instance, "events/sched/sched_process_exec/enable"))
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	if got := enabled(); got != "0\n" {
		t.Errorf("enabled without a reader: %q", got)
	}
	reader, err := set.ListenHost(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if got := enabled(); got != "1\n" {
		t.Errorf("not enabled with a reader: %q", got)
	}
	for n, last := 0, uint64(0); n < 100; {
		list, err := reader.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range list {
			rec := &list[i]
			text := rec.Text()
			if rec.Event.System != SystemName || rec.Time < last || rec.Event.Name == "sched_process_exec" &&
				!strings.HasPrefix(text, `text="filename=/bin/busybox pid=`) {
				t.Fatalf("%+v behind %d: %s", rec.Writer, last, text)
			}
			// Numbers are not given again so soon.
			if p, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", rec.TID)); err == nil &&
				strings.Contains(string(p), two.CgroupPath) {
				t.Fatalf("a task of the neighbour: %+v, %s", rec.Writer, text)
			}
			last = rec.Time
			n++
		}
	}
	for what, tt := range map[string]struct {
		command string
		want    error
	}{
		"again": {command, syscall.EEXIST}, "nothing": {"ftrace", syscall.EINVAL},
	} {
		if err := r.Configure(ns, tt.command); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", what, err, tt.want)
		}
	}
	if err := r.Configure(ns, "ftrace off"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(instance); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the instance is left: %v", err)
	}
	for what, tt := range map[string]struct {
		command string
		want    error
	}{
		"no such event":   {"ftrace " + one.CgroupPath + " sched:nothing", syscall.ENOENT},
		"a path":          {"ftrace " + one.CgroupPath + " ../..:x", syscall.EINVAL},
		"all of a system": {"ftrace " + one.CgroupPath + " sched:*", syscall.EINVAL},
		"twice":           {"ftrace " + one.CgroupPath + " sched:sched_switch,sched:sched_switch", syscall.EEXIST},
		"no such cgroup":  {"ftrace /gantry/none sched:sched_switch", syscall.ENOENT},
		"the machine":     {"ftrace / sched:sched_switch", syscall.EINVAL},
	} {
		if err := r.Configure(ns, tt.command); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", what, err, tt.want)
		}
		if _, err := os.Stat(instance); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the instance is left: %v", what, err)
		}
	}
	if err := r.Configure(ns, command); err != nil {
		t.Error(err)
	}
	reader.Close()
	if err := r.Remove(ns.Name); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(instance); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the instance is left: %v", err)
	}
}

func TestAbsent(t *testing.T) {
	r, ns, _ := namespace(t, t.TempDir())
	if err := r.Configure(ns, "ftrace / sched:sched_switch"); !errors.Is(err, syscall.ENODEV) {
		t.Error(err)
	}
	if text, err := r.Show(ns); err != nil || !strings.Contains(text, "# ftrace: no tracefs") {
		t.Errorf("%q, %v", text, err)
	}
	if err := r.Remove(ns.Name); err != nil {
		t.Error(err)
	}
}

func TestParse(t *testing.T) {
	set := events.NewSet(events.DefaultLimits, nil)
	d, err := events.Parse("hit __rel_loc char[] text")
	if err != nil {
		t.Fatal(err)
	}
	in := &instance{set: set, events: []*point{{event: set.Add(SystemName, d, nil)}}}
	for _, tt := range []struct {
		line string
		want string // or "" for lost
		lost uint64
	}{
		{"            true-16276   [000] ..... 42427.762182: hit: a=1 b: hit: x",
			`16276 42427762182000 text="a=1 b: hit: x"`, 0},
		{"       a-1 [0] .-1234567 [001] d..2. 1.000001: hit: ", `1234567 1000001000 text=""`, 0},
		{"CPU:1 [LOST 77 EVENTS]", "", 77},
		{"CPU:1 [LOST many]", "", 1}, {"", "", 1}, {"short", "", 1},
		{"            true-16276   [000] ..... 42427.762182: miss: a=1", "", 1},
		{"            true-x       [000] ..... 42427.762182: hit: a=1", "", 1},
		{"            true-16276   [000] ..... 42427.76: hit: a=1", "", 1},
	} {
		rec, lost := in.parse([]byte(tt.line))
		got := ""
		if lost == 0 {
			got = fmt.Sprintf("%d %d %s", rec.TID, rec.Time, rec.Text())
		}
		if got != tt.want || lost != tt.lost {
			t.Errorf("%q: %s, %d lost, want %s, %d", tt.line, got, lost, tt.want, tt.lost)
		}
	}
}

func FuzzParse(f *testing.F) {
	set := events.NewSet(events.DefaultLimits, nil)
	d, err := events.Parse("hit __rel_loc char[] text")
	if err != nil {
		f.Fatal(err)
	}
	in := &instance{set: set, events: []*point{{event: set.Add(SystemName, d, nil)}}}
	f.Add([]byte("            true-16276   [000] ..... 42427.762182: hit: a=1"))
	f.Add([]byte("CPU:1 [LOST 77 EVENTS]"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if rec, lost := in.parse(line); lost == 0 {
			rec.Text()
		}
	})
}
