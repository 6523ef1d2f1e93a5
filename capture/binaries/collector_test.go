// SPDX-License-Identifier: Apache-2.0

//go:build linux

package binaries

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/capture/proctable"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// A copy that hangs is abandoned: the next files are collected all the same, and
// the recording ends.
func TestCopyThatHangs(t *testing.T) {
	testutil.Require(t, testutil.Tool("gcc"))
	// A /proc where it takes a writer to find out what is mounted.
	root := t.TempDir()
	dir, mounts := filepath.Join(root, "proc/42"), filepath.Join(root, "proc/42/mountinfo")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "ns"), 0o755),
		os.Symlink("mnt:[7]", filepath.Join(dir, "ns/mnt")),
		os.Symlink("/", filepath.Join(dir, "root")), syscall.Mkfifo(mounts, 0o600)); err != nil {
		t.Fatal(err)
	}
	k := New(&Options{Store: t.TempDir()}, procfs.New(root))
	defer k.Close()
	k.hostMnt = 1
	k.timeout = 20 * time.Millisecond
	prog, err := os.Open(testutil.SpinProgram(t, "kept_hot"))
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	info, err := prog.Stat()
	if err != nil {
		t.Fatal(err)
	}
	id, err := buildid.FromFile(prog, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	k.Start()
	// Without a build-id it is asked for first whether a program serves it.
	stuck := k.enqueue(&binaryKey{FileKey: FileKey{Path: "/stuck", Inode: 1, Mnt: 7}}, mappedAt{pid: 42, mnt: 7})
	testutil.Poll(t, "the copy to be abandoned", stuck.settled.Load)
	if stuck.err != procroot.ErrTimeout {
		t.Errorf("%+v", &stuck.outcome)
	}
	// An open for writing waits for the reader, who then waits for the text.
	writer, err := os.OpenFile(mounts, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(mounts), os.WriteFile(mounts, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	k.timeout = time.Minute
	k.enqueue(&binaryKey{id: string(id.Bytes()), FileKey: FileKey{Path: prog.Name()}}, mappedAt{pid: 42, mnt: 7})
	writer.Close() // the abandoned copy goes on: its result comes too late
	k.Wait()
	sum, _ := k.Result()
	if sum.Kept != 1 || sum.Missing[procroot.ErrTimeout.Error()] != 1 || len(sum.Missing) != 1 {
		t.Errorf("%+v", sum)
	}
}

// What a container's process had mapped is not the host's because another process
// has its number now.
func TestOnHostWithReusedNumber(t *testing.T) {
	k := New(&Options{}, procfs.FS{})
	defer k.Close()
	self := procfs.FS{}.Self()
	mnt, err := self.Namespace("mnt")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mnt  uint64
		want bool
	}{{mnt, true}, {0, true}, {mnt + 1, false}} {
		if host, err := k.onHost(self, c.mnt); host != c.want || err != nil {
			t.Errorf("mapped in %d: %v, %v", c.mnt, host, err)
		}
	}
}

// What could not be kept has a reason.
func TestMissingReasons(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.Tool("gcc"))
	prog := testutil.SpinProgram(t, "kept_or_not")
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	self := int32(os.Getpid())
	id := []byte("0123456789abcdef0123")
	k := New(&Options{Store: t.TempDir(), MaxBinary: 100}, procfs.FS{})
	defer k.Close()
	m := NewMappings(procfs.FS{}, proctable.New(procfs.FS{}, 0), k)
	defer m.Close()
	k.hostMnt = 1 // so that everything is a container's
	k.Start()
	enqueue := func(pid int32, path string, id []byte) {
		m.Status(&perf.Mmap2{
			Trailer: perf.Trailer{RecordMisc: perf.RecordMisc{Misc: perf.MiscMmapBuildID}},
			PID:     pid, Addr: 1 << 20, Len: 4096, Filename: path, BuildID: id,
		})
	}
	enqueue(int32(ended.Process.Pid), "/gone", id)
	enqueue(self, "/dev/null", id)
	enqueue(self, prog, id)
	enqueue(self, "//anon", id)
	m.Status(&perf.Mmap2{PID: self, Filename: prog, Ino: 5})
	enqueue(self, "[vdso]", id)
	enqueue(self, "/no/such/file", id)
	k.Wait()
	sum, list := k.Result()
	want := map[string]int{errGone.Error(): 2, sys.ErrNotRegular.Error(): 1, errTooLarge.Error(): 1,
		ErrOnFUSE.Error(): 1}
	for reason, n := range want {
		if sum.Missing[reason] != n {
			t.Errorf("%d are missing because %q, want %d: %v", sum.Missing[reason], reason, n, sum.Missing)
		}
	}
	if sum.Kept != 0 || len(list) != 4 {
		t.Errorf("%+v, %d files", sum, len(list))
	}
	// A process that still lives gets another chance.
	if b := k.known[keyOf(&perf.Mmap2{Filename: "/gone", BuildID: id}, proctable.MountNS{})]; b == nil ||
		b.err != errGone {
		t.Fatalf("%+v", b)
	}
	enqueue(self, "/gone", id)
	if len(k.waiting) != 1 {
		t.Errorf("%d wait, want the file that was missed before", len(k.waiting))
	}
}

// However many files there are, only so many are remembered, and the others are
// counted.
func TestFilesAreBounded(t *testing.T) {
	k := New(&Options{}, procfs.FS{})
	defer k.Close()
	for i := range maxFiles {
		k.known[binaryKey{id: strconv.Itoa(i)}] = &binary{}
	}
	known := binaryKey{id: "7"}
	if k.enqueue(&known, mappedAt{}) == nil || k.enqueue(&binaryKey{id: "new"}, mappedAt{}) != nil ||
		len(k.known) != maxFiles {
		t.Errorf("%d files are known", len(k.known))
	}
	if sum, _ := k.Result(); sum.Missing[errTooManyFiles.Error()] != 1 {
		t.Errorf("missing: %v, want one that was too many", sum.Missing)
	}

}

// A file that grows while it is copied is copied as it was looked at: the limits
// were asked about that.
func TestGrowingFile(t *testing.T) {
	testutil.Require(t, testutil.Tool("gcc"))
	prog := testutil.CompileC(t, "int main(void) { return 0; }\n")
	k := New(&Options{Store: t.TempDir()}, procfs.FS{})
	defer k.Close()
	file, err := os.OpenFile(prog, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	id, err := buildid.FromFile(file, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	left := k.left.Load()
	b := &binary{key: binaryKey{id: string(id.Bytes()), FileKey: FileKey{Path: prog}}, outcome: outcome{id: id}}
	content, err := k.copy(file, info, b, mappedAt{mnt: 7})
	if err != nil {
		t.Fatal(err)
	}
	kept, size, err := k.store.Lookup(content)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	if size != info.Size() || left-k.left.Load() != size {
		t.Errorf("%d bytes were kept and %d counted of a file that had %d", size, left-k.left.Load(), info.Size())
	}
}
