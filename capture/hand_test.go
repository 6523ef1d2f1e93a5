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
	"github.com/gantry-tools/gantry/capture/snapshot"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/testutil"
)

// Where a hand waits for ever for one file, the next files are kept all the same,
// and the recording ends.
func TestLostHand(t *testing.T) {
	testutil.Require(t, testutil.Tool("gcc"))
	// A /proc where it takes a writer to find out what is mounted.
	root := t.TempDir()
	dir, mounts := filepath.Join(root, "proc/42"), filepath.Join(root, "proc/42/mountinfo")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "ns"), 0o755), os.Symlink("mnt:[7]", filepath.Join(dir, "ns/mnt")),
		os.Symlink("/", filepath.Join(dir, "root")), syscall.Mkfifo(mounts, 0o600)); err != nil {
		t.Fatal(err)
	}
	k := newKeeper(&Options{Store: t.TempDir()}, procfs.New(root))
	defer k.close()
	k.hostMnt = 1
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
	stuck := k.offer(&binaryKey{FileKey: snapshot.FileKey{Path: "/stuck", Inode: 1, Mnt: 7}}, seen{pid: 42, mnt: 7})
	// An open for writing waits for the reader, who then waits for the text.
	writer, err := os.OpenFile(mounts, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	lost := k.hands.current
	k.mu.Unlock()
	lost.until.Store(1) // long ago
	k.watch()
	if !lost.isLost() || stuck.err != snapshot.ErrSilent || !stuck.settled.Load() {
		t.Errorf("lost %v, %+v", lost.isLost(), &stuck.fate)
	}
	if err := errors.Join(os.Remove(mounts), os.WriteFile(mounts, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	k.offer(&binaryKey{id: string(id.Bytes()), FileKey: snapshot.FileKey{Path: "/kept"}}, seen{pid: 42, mnt: 7})
	writer.Close() // the lost one goes on: its result comes too late
	k.wait()
	sum, _ := k.result()
	if sum.Kept != 1 || sum.Missing[snapshot.ErrSilent.Error()] != 1 || len(sum.Missing) != 1 {
		t.Errorf("%+v", sum)
	}
}

// A lost hand that comes back leaves alone what another one does, of which the
// watch must know.
func TestLostHandComesBack(t *testing.T) {
	k := newKeeper(&Options{Store: t.TempDir()}, procfs.New(t.TempDir()))
	defer k.close()
	c := k.code
	lost, other := new(hand), new(hand)
	for pid, h := range map[int]*hand{42: lost, 43: other} {
		k.offer(memoryOf(pid))
		if g, _ := c.next(h); g == nil || c.doing != g {
			t.Fatalf("%+v is done, want %+v", c.doing, g)
		}
	}
	doing := c.doing
	lost.lost.Store(true)
	if g, _ := c.next(lost); g != nil || c.doing != doing {
		t.Errorf("a lost hand does %+v, another one %+v", g, c.doing)
	}
}

// Hands that were lost for one cgroup leave the others theirs, and come back.
func TestHandsOfACgroup(t *testing.T) {
	fsys := procfs.New(t.TempDir())
	for pid, cgroup := range []string{"0::/a\n", "0::/a\n", "0::/b\n"} {
		dir := fsys.Proc(pid).Path("")
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(dir+"cgroup", []byte(cgroup), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	var s hands
	var lost []*hand
	for range maxLostOf {
		if s.enough(fsys.Proc(1)) {
			t.Fatalf("%d are enough", len(lost))
		}
		h := s.hire()
		h.until.Store(1) // long ago
		if lost = append(lost, h); !s.overdue(time.Now(), fsys.Proc(0)) {
			t.Fatal("not overdue")
		}
	}
	if !s.enough(fsys.Proc(1)) || s.enough(fsys.Proc(2)) {
		t.Errorf("the same cgroup: %v, another: %v", s.enough(fsys.Proc(1)), s.enough(fsys.Proc(2)))
	}
	for _, h := range lost {
		s.back(h)
	}
	if s.lost != 0 || len(s.of) != 0 || s.enough(fsys.Proc(1)) {
		t.Errorf("all are back, but %+v", &s)
	}
}

// What a container's process had mapped is not the host's because another process
// has its number now.
func TestOnHostWithReusedNumber(t *testing.T) {
	k := newKeeper(&Options{}, procfs.FS{})
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
