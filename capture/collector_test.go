// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/capture/binaries"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/internal/testutil"
)

// A copy that hangs is abandoned: the next files are collected all the same, and
// the recording ends.
func TestCopyThatHangs(t *testing.T) {
	testutil.Require(t, testutil.Tool("gcc"))
	// A /proc where it takes a writer to find out what is mounted.
	root := t.TempDir()
	dir, mounts := filepath.Join(root, "proc/42"), filepath.Join(root, "proc/42/mountinfo")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "ns"), 0o755), os.Symlink("mnt:[7]", filepath.Join(dir, "ns/mnt")),
		os.Symlink("/", filepath.Join(dir, "root")), syscall.Mkfifo(mounts, 0o600)); err != nil {
		t.Fatal(err)
	}
	k := newCollector(&Options{Store: t.TempDir()}, procfs.New(root))
	defer k.close()
	k.hostMnt = 1
	k.timeout = 20 * time.Millisecond
	prog, err := os.Open(testutil.SpinProgram(t, "kept_hot"))
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	id, err := k.store.Add(prog, buildid.Source{Path: "/kept"})
	if err != nil {
		t.Fatal(err)
	}
	k.start()
	// Without a build-id it is asked for first whether a program serves it.
	stuck := k.enqueue(&binaryKey{FileKey: binaries.FileKey{Path: "/stuck", Inode: 1, Mnt: 7}}, mappedAt{pid: 42, mnt: 7})
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
	k.enqueue(&binaryKey{id: string(id.Bytes()), FileKey: binaries.FileKey{Path: "/kept"}}, mappedAt{pid: 42, mnt: 7})
	writer.Close() // the abandoned copy goes on: its result comes too late
	k.wait()
	sum, _ := k.result()
	if sum.Kept != 1 || sum.Missing[procroot.ErrTimeout.Error()] != 1 || len(sum.Missing) != 1 {
		t.Errorf("%+v", sum)
	}
}

// What a container's process had mapped is not the host's because another process
// has its number now.
func TestOnHostWithReusedNumber(t *testing.T) {
	k := newCollector(&Options{}, procfs.FS{})
	defer k.close()
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
