// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/capture/binaries"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// deepFile makes a file whose path is longer than the kernel gives in one piece.
func deepFile(t *testing.T, content []byte) *os.File {
	t.Helper()
	dir, err := sys.Open(t.TempDir(), os.O_RDONLY|sys.ODirectory)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("d", 200)
	for range 25 {
		if err := syscall.Mkdirat(dir.Int(), name, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := sys.OpenAt(dir, name, os.O_RDONLY|sys.ODirectory)
		dir.Close()
		if err != nil {
			t.Fatal(err)
		}
		dir = next
	}
	defer dir.Close()
	raw, err := syscall.Openat(dir.Int(), "deep", os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(raw), "deep")
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	return f
}

// A mapped file with a path that PROCMAP_QUERY has no room for is found in the
// text of /proc/PID/maps, with its build-id.
func TestLongPath(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.Tool("gcc"))
	content, err := os.ReadFile(testutil.CompileC(t, "int main(void) { return 0; }\n"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := buildid.FromFile(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	f := deepFile(t, content)
	mem, err := syscall.Mmap(int(f.Fd()), 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(mem) })
	var found *perf.Mmap2
	for _, m := range take(t, monotonic(), Scope{PIDs: []int{os.Getpid()}}).maps[int32(os.Getpid())] {
		if strings.HasSuffix(m.Filename, "/deep") {
			found = &m
		}
	}
	if found == nil || len(found.Filename) <= syscall.PathMax {
		t.Fatalf("the mapping is %+v", found)
	}
	if !bytes.Equal(found.BuildID, want.Bytes()) {
		t.Errorf("build-id %x, want %v", found.BuildID, want)
	}
	// So it is for a mapping that the sideband tells of, whose path is cut.
	reader := binaries.NewIDReader(nil)
	defer reader.Close()
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	m := &perf.Mmap2{PID: int32(os.Getpid()), Addr: found.Addr, Len: found.Len, Ino: st.Ino, Filename: "//toolong"}
	m.Maj, m.Min = devOf(t, found.Addr)
	if id, err := reader.Mapped(procfs.FS{}.Self(), m); err != nil || !bytes.Equal(id, want.Bytes()) {
		t.Errorf("build-id %x, %v, want %v", id, err, want)
	}
}

// devOf is the device of the mapping at addr of this process.
func devOf(t *testing.T, addr uint64) (major, minor uint32) {
	t.Helper()
	err := procfs.FS{}.Self().Maps(procfs.NewMapsScanner(), func(m *procfs.Mapping) error {
		if m.Start == addr {
			major, minor = m.DevMajor, m.DevMinor
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return major, minor
}
