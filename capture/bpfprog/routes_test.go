// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bpfprog

import (
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/internal/linux/bpf/loads"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// announced is a channel of the loads that a watch tells of.
func announced(o *WatchOptions) <-chan uint32 {
	ids := make(chan uint32, 4096) // more than a test and its neighbours load
	o.Load = func(id uint32) {
		select {
		case ids <- id:
		default:
		}
	}
	return ids
}

// await waits until a load was told of.
func await(t *testing.T, ids <-chan uint32, want uint32) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		select {
		case id := <-ids:
			if id == want {
				return
			}
		case <-limit:
			t.Fatalf("nothing was told of program %d", want)
		}
	}
}

// Each route alone tells of a program that stays, and both tell the same.
func TestRoutes(t *testing.T) {
	testutil.Require(t, testutil.Root)
	for name, test := range map[string]struct {
		options WatchOptions
		route   perfdata.BPFRoute
	}{
		"event":  {WatchOptions{NoCopy: true}, perfdata.BPFRouteEvent},
		"kernel": {WatchOptions{NoEvent: true}, perfdata.BPFRouteKernel},
	} {
		t.Run(name, func(t *testing.T) {
			announcements := announced(&test.options)
			stop := watch(t, test.options)
			_, id := loadSeven(t)
			await(t, announcements, id)
			p, _ := stop().Program(id)
			if p.Route != test.route || p.Missed != "" {
				t.Fatalf("%+v", p.BPFProgramLife)
			}
			if l := p.Loader; l == nil || int(l.PID) != os.Getpid() || l.Comm == "" || l.Cgroup == 0 || l.Namespaces["pid"] == 0 {
				t.Errorf("loader %+v", l)
			}
			checkSeven(t, p.Details)
			want, err := new(Reader).Read(id)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, p.Details); diff != "" {
				t.Errorf("details (-asked now +taken at the load):\n%s", diff)
			}
		})
	}
}

// Neither route: the load is known all the same, and why no more is.
func TestMissed(t *testing.T) {
	testutil.Require(t, testutil.Root)
	o := WatchOptions{NoCopy: true, NoEvent: true}
	announcements := announced(&o)
	stop := watch(t, o)
	_, id := loadSeven(t)
	await(t, announcements, id)
	p, _ := stop().Program(id)
	if p.Details != nil || p.Missed == "" || p.Loaded == 0 || p.Route != "" {
		t.Errorf("%+v", p.BPFProgramLife)
	}
}

// A copy that is not whole counts only if there is nothing else.
func TestIncompleteCopy(t *testing.T) {
	testutil.Require(t, testutil.Root)
	_, id := loadSeven(t)
	part, err := new(Reader).Read(id)
	if err != nil {
		t.Fatal(err)
	}
	part.Lines, part.BTF = nil, nil
	for name, test := range map[string]struct {
		open  bool
		route perfdata.BPFRoute
	}{
		"open": {true, perfdata.BPFRouteEvent},
		"gone": {false, perfdata.BPFRouteKernel},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := OpenWatcher(WatchOptions{NoCopy: true})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			w.copier = &copier{programs: new(loads.Programs), got: map[uint32]*loads.Program{
				id: {BPFProgram: part.BPFProgram, Incomplete: true},
			}}
			var fd *sys.FD
			gone := fs.ErrNotExist
			if test.open {
				if fd, gone = sys.BPFOpen(sys.BPFProg, id); gone != nil {
					t.Fatal(gone)
				}
			}
			if !w.load(&event{kind: BPFLoad, id: id, tag: part.Tag, time: 1}, fd, gone) {
				t.Fatal("it is late")
			}
			p, _ := w.Table().Program(id)
			if p.Route != test.route || p.Details == nil {
				t.Fatalf("%+v", p.BPFProgramLife)
			}
			if test.open {
				checkSeven(t, p.Details)
			}
		})
	}
}

// A copy in which nothing was lost is whole, with BTF and without.
func TestWholeCopy(t *testing.T) {
	testutil.Require(t, testutil.Root)
	w, err := OpenWatcher(WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Start(0); err != nil {
		t.Fatal(err)
	}
	if err := w.Refused(); err != nil {
		t.Fatal(err)
	}
	_, seven := loadSeven(t)
	bare, err := loadBare()
	if err != nil {
		t.Fatal(err)
	}
	w.copier.read()
	for _, id := range []uint32{seven, bare} {
		if c := w.copier.take(id); c == nil || c.Incomplete {
			t.Errorf("program %d: %+v", id, c)
		}
	}
}
