// SPDX-License-Identifier: Apache-2.0

//go:build linux

package opener_test

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/internal/linux/helper/opener"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

func start(t testing.TB, c *testutil.Container) *opener.Opener {
	t.Helper()
	proc := "/proc/" + strconv.Itoa(c.PID)
	ns, err := sys.Open(proc+"/ns/pid", os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	cgroup, err := sys.Open(c.CgroupDir, os.O_RDONLY|syscall.O_DIRECTORY)
	if err != nil {
		t.Fatal(err)
	}
	defer cgroup.Close()
	o, err := opener.Start(ns, cgroup)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

func clock() []byte {
	a := perf.Attr{Type: perf.TypeSoftware, Config: perf.SWTaskClock, Flags: perf.AttrExcludeKernel}
	return a.Append(nil, perf.LittleEndian)
}

func TestOpen(t *testing.T) {
	c := testutil.StartContainer(t, testutil.ContainerSpec{})
	o := start(t, c)
	fd, err := o.Open(clock(), 1, -1, nil, sys.PerfCloexec)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	pid, err := o.Pin(1, false)
	if err != nil {
		t.Fatal(err)
	}
	pid.Close()
	if _, err := o.Open(clock(), 99999, -1, nil, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("open on a task that is not there: %v, want ESRCH", err)
	}
	all, err := o.Open(clock(), 0, 0, nil, sys.PerfPIDCgroup)
	if err != nil {
		t.Fatal(err)
	}
	all.Close()
	if n := o.Killed(); n > 0 {
		t.Errorf("the opener was killed %d times", n)
	}
}

func BenchmarkOpen(b *testing.B) {
	c := testutil.StartContainer(b, testutil.ContainerSpec{})
	o := start(b, c)
	attr := clock()
	runtime.LockOSThread()
	for b.Loop() {
		sys.OneCPU(sys.CurrentCPU()).Set()
		fd, err := o.Open(attr, 0, 0, nil, sys.PerfPIDCgroup)
		if err != nil {
			b.Fatal(err)
		}
		fd.Close()
	}
}

func BenchmarkOpenHere(b *testing.B) {
	c := testutil.StartContainer(b, testutil.ContainerSpec{})
	cgroup, err := sys.Open(c.CgroupDir, os.O_RDONLY|syscall.O_DIRECTORY)
	if err != nil {
		b.Fatal(err)
	}
	defer cgroup.Close()
	attr := clock()
	for b.Loop() {
		fd, err := sys.PerfEventOpen(attr, cgroup.Int(), 0, nil, sys.PerfPIDCgroup)
		if err != nil {
			b.Fatal(err)
		}
		fd.Close()
	}
}

func BenchmarkPin(b *testing.B) {
	c := testutil.StartContainer(b, testutil.ContainerSpec{})
	o := start(b, c)
	for b.Loop() {
		fd, err := o.Pin(1, false)
		if err != nil {
			b.Fatal(err)
		}
		fd.Close()
	}
}
