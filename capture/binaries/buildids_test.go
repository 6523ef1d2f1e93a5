// SPDX-License-Identifier: Apache-2.0

//go:build linux

package binaries

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/capture/proctable"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// mapped maps a file and gives the record of that.
func mapped(t *testing.T, path string) *perf.RawMmap2 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err := syscall.Mmap(int(f.Fd()), 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(mem) })
	var m *perf.RawMmap2
	err = procfs.FS{}.Self().Maps(procfs.NewMapsScanner(), func(v *procfs.Mapping) error {
		if v.Path == path {
			m = &perf.RawMmap2{PID: int32(os.Getpid()), Addr: v.Start, Len: v.End - v.Start, Major: v.DevMajor,
				Minor: v.DevMinor, Inode: v.Inode, Path: []byte(path)}
		}
		return nil
	})
	if err != nil || m == nil {
		t.Fatalf("mapping of %s: %v, %v", path, m, err)
	}
	return m
}

// A file is asked about once, and again when it was written to: some rounds
// later, when known files are looked at.
func TestIdentifyKnownFile(t *testing.T) {
	testutil.Require(t, testutil.Tool("gcc"))
	var programs [2][]byte
	var ids [2][]byte
	for i := range programs {
		prog := testutil.CompileC(t, "int main(void) { return 0; }\n", fmt.Sprintf("-Wl,--build-id=0x%040d", i+1))
		var err error
		if programs[i], err = os.ReadFile(prog); err != nil {
			t.Fatal(err)
		}
		ids[i] = append(make([]byte, 19), byte(i+1))
	}
	path := filepath.Join(t.TempDir(), "prog")
	write := func(i int) {
		t.Helper()
		if err := os.WriteFile(path, programs[i], 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(0)
	m := mapped(t, path)
	x := newResolver(procfs.FS{}, nil, proctable.New(procfs.FS{}, 0))
	defer x.close()
	time := uint64(0)
	check := func(what string, id []byte, asked int) {
		t.Helper()
		if f := x.resolve(m, proctable.MountNS{Ino: x.hostMnt}, time); !bytes.Equal(f.id, id) || x.lookups != asked {
			t.Errorf("%s: id %x after asking %d times, want %x after %d", what, f.id, x.lookups, id, asked)
		}
	}
	// Mappings a second after all that is done here: nothing has changed since.
	time = uint64(now(t) + 1e9)
	check("first", ids[0], 1)
	check("again", ids[0], 1)
	x.pass++
	check("unchanged", ids[0], 1)
	write(1)
	check("changed in this pass", ids[0], 1)
	x.pass++
	check("changed", ids[1], 2)
	x.pass++
	// A mapping from before the change: its process is asked, every time, and what
	// another one finds at the path is not it.
	later := time
	time = uint64(now(t) - 1e9)
	check("before the change", ids[1], 3)
	check("before the change, again", ids[1], 4)
	m.PID = 1 << 30
	check("before the change, and the process has ended", nil, 5)
	time, m.PID = later, int32(os.Getpid())
	check("after it", ids[1], 6)
	x.pass++
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	check("its path is gone, not its content", ids[1], 6)
	m.Path = []byte("//anon")
	check("memory", nil, 6)
	m.Path, m.Inode = []byte(path), 0
	check("no file", nil, 6)
}

// A file that was known in a mount namespace that is gone is not taken for the one
// that has its path, device and inode in the next.
func TestResolveInNextGeneration(t *testing.T) {
	procs := proctable.New(procfs.FS{}, 1)
	x := newResolver(procfs.FS{}, nil, procs)
	defer x.close()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m := mapped(t, exe)
	x.resolve(m, proctable.MountNS{Ino: 77}, 0)
	if x.lookups != 1 {
		t.Fatalf("%d lookups", x.lookups)
	}
	if x.resolve(m, proctable.MountNS{Ino: 77}, 0); x.lookups != 1 {
		t.Error("a known file was looked up again")
	}
	m.PID = 1 << 30
	if f := x.resolve(m, proctable.MountNS{Ino: 77, Generation: 1}, 0); x.lookups != 2 || len(f.id) != 0 {
		t.Errorf("%+v, %d lookups", f, x.lookups)
	}
	links := make([]perf.NSLink, perf.NSCgroup+1)
	links[perf.NSMnt].Ino = 77
	self := int32(os.Getpid())
	procs.Decoded(&perf.Namespaces{PID: 1<<30 + 1, TID: 1<<30 + 1, Links: links}) // of the first generation
	if f := x.resolve(m, proctable.MountNS{Ino: 77, Generation: 1}, 0); len(f.id) != 0 {
		t.Error("found by way of a process of another generation")
	}
	procs.Decoded(&perf.Namespaces{PID: self, TID: self, Links: links}) // nobody is in the first any more
	if f := x.resolve(m, procs.MountNS(self), 0); procs.MountNS(self).Generation != 1 || len(f.id) == 0 {
		t.Error("not found by way of another process of the same generation")
	}
}

// now is CLOCK_MONOTONIC.
func now(t *testing.T) int64 {
	t.Helper()
	n, err := sys.ClockMonotonic.Now()
	if err != nil {
		t.Fatal(err)
	}
	return int64(n)
}
