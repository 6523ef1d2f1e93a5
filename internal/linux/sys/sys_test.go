// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

func TestParseCPUList(t *testing.T) {
	for text, want := range map[string][]int{
		"":            nil,
		"0":           {0},
		"0-3":         {0, 1, 2, 3},
		"0-1,8,10-11": {0, 1, 8, 10, 11},
	} {
		got, err := ParseCPUList(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"x", "3-1", "1-", "-1", ",", "0,", "70000", "0-99999", "1--2", "+1"} {
		if got, err := ParseCPUList(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

func FuzzParseCPUList(f *testing.F) {
	for _, s := range []string{"", "0-3", "0-1,8,10-11", "3-1", "1-", "0-65535,0-65535"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		cpus, err := ParseCPUList(s)
		if err != nil {
			if cpus != nil {
				t.Errorf("both %d cpus and %v", len(cpus), err)
			}
			return
		}
		if len(cpus) > maxCPU {
			t.Fatalf("%d cpus", len(cpus))
		}
		var words []string
		for _, c := range cpus {
			words = append(words, strconv.Itoa(c))
		}
		again, err := ParseCPUList(strings.Join(words, ","))
		if err != nil || !slices.Equal(again, cpus) {
			t.Errorf("%q gives %v, written out it gives %v, %v", s, cpus, again, err)
		}
	})
}

func TestOnlineCPUs(t *testing.T) {
	online, err := OnlineCPUs()
	if err != nil || len(online) == 0 {
		t.Fatalf("online: %v, %v", online, err)
	}
	possible, err := PossibleCPUs()
	if err != nil || len(possible) < len(online) {
		t.Errorf("possible: %v, %v, online %v", possible, err, online)
	}
	allowed, err := allowedCPUs()
	if err != nil || len(allowed) == 0 || len(allowed) > len(online) {
		t.Errorf("allowed: %v, %v, online %v", allowed, err, online)
	}
}

func TestCgroupID(t *testing.T) {
	cg := testutil.NewCgroup(t, "/x")
	want := cg.ID(t)
	id, err := CgroupID(cg.Dir)
	if err != nil || id != want {
		t.Errorf("by path: %d, %v, want %d", id, err, want)
	}
	dir, err := Open(cg.Dir, os.O_RDONLY|ODirectory)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	back, err := OpenCgroup(dir, want)
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	path, err := os.Readlink(back.Path())
	if err != nil || !strings.HasSuffix(path, cg.Path) {
		t.Errorf("id %d opened %q, %v, want %q", want, path, err, cg.Path)
	}
	if fd, err := OpenCgroup(dir, want+1<<40); !errors.Is(err, syscall.ESTALE) {
		t.Errorf("unknown id: %v, want ESTALE", err)
		fd.Close()
	}
}

func TestEffectiveCapabilities(t *testing.T) {
	caps, err := EffectiveCapabilities()
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.TrimSpace(strings.TrimPrefix(linesWith(string(status), "CapEff:"), "CapEff:"))
	if got := fmt.Sprintf("%016x", uint64(caps)); got != want {
		t.Errorf("got %s, /proc says %s", got, want)
	}
	if !Capabilities(1<<38).Has(CapPerfmon) || Capabilities(1<<38).Has(CapBPF) {
		t.Error("CAP_PERFMON is not bit 38")
	}
}

func TestPidfd(t *testing.T) {
	testutil.CheckLeaks(t)
	cmd := exec.Command("cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fd, err := PidfdOpen(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	if alive, err := PidfdAlive(fd); !alive || err != nil {
		t.Errorf("running: %v, %v", alive, err)
	}
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if alive, err := PidfdAlive(fd); alive || err != nil {
		t.Errorf("exited: %v, %v", alive, err)
	}
}

func TestClock(t *testing.T) {
	a, err := ClockMonotonic.Now()
	if err != nil {
		t.Fatal(err)
	}
	b, err := ClockMonotonic.Now()
	if err != nil || b < a {
		t.Errorf("%v after %v, %v", b, a, err)
	}
	if _, err := Clock(99).Now(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("unknown clock: %v, want EINVAL", err)
	}
}

func TestUname(t *testing.T) {
	u, err := GetUname()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil || u.Release != strings.TrimSpace(string(want)) {
		t.Errorf("release %q, /proc says %q, %v", u.Release, want, err)
	}
}

// softwareAttr is a dummy event: struct perf_event_attr, version 0.
func softwareAttr() []byte {
	attr := make([]byte, attrSizeMin)
	binary.NativeEndian.PutUint32(attr[0:], 1) // PERF_TYPE_SOFTWARE
	binary.NativeEndian.PutUint32(attr[4:], attrSizeMin)
	binary.NativeEndian.PutUint64(attr[8:], 9) // PERF_COUNT_SW_DUMMY
	binary.NativeEndian.PutUint64(attr[40:], 1|1<<5|1<<6)
	return attr
}

func TestPerfEventOpen(t *testing.T) {
	testutil.CheckLeaks(t)
	fd, err := PerfEventOpen(softwareAttr(), 0, -1, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	if id, err := PerfID(fd); id == 0 || err != nil {
		t.Errorf("id %d, %v", id, err)
	}
	for name, err := range map[string]error{
		"enable":  PerfEnable(fd, false),
		"disable": PerfDisable(fd, true),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	mem, err := Mmap(fd, 2*PageSize(), true)
	if err != nil {
		t.Fatal(err)
	}
	if len(mem.Bytes()) != 2*PageSize() {
		t.Errorf("mapped %d bytes", len(mem.Bytes()))
	}
	if err := mem.Close(); err != nil || mem.Close() != nil || mem.Bytes() != nil {
		t.Errorf("unmapping: %v", err)
	}
}

func TestPerfEventOpenRefusesShortAttr(t *testing.T) {
	attr := softwareAttr()
	for _, bad := range [][]byte{nil, attr[:63], binary.NativeEndian.AppendUint32(attr[:4:4], 72)} {
		if fd, err := PerfEventOpen(bad, 0, -1, nil, 0); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("attr of %d bytes: %v, want EINVAL", len(bad), err)
			fd.Close()
		}
	}
}

func TestPerfSyscallReached(t *testing.T) {
	testutil.Require(t, testutil.PerfEvents)
	if err := PerfSyscallReached(); err != nil {
		t.Errorf("reached: %v", err)
	}
	if err := PerfSyscallAllowed(); err != nil {
		t.Errorf("allowed: %v", err)
	}
}

func TestLiftMemlock(t *testing.T) {
	before, hard, err := MemlockLimit()
	if err != nil {
		t.Fatal(err)
	}
	restore, err := LiftMemlock()
	if err != nil {
		if before < hard {
			t.Errorf("limit %d was not lifted to %d: %v", before, hard, err)
		}
		return
	}
	lifted, _, err := MemlockLimit()
	if err != nil || lifted <= before {
		t.Errorf("limit %d became %d, %v", before, lifted, err)
	}
	restore()
	// Without CAP_SYS_RESOURCE a hard limit does not come back.
	if after, _, err := MemlockLimit(); err != nil || after != before {
		t.Errorf("limit %d came back as %d, %v", before, after, err)
	}
}
