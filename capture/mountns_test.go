// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"os"
	"testing"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/perf"
)

// The number of a mount namespace that is gone is given to the next one: who
// comes into one where nobody is any more is in another one.
func TestLives(t *testing.T) {
	k := newCollector(&Options{}, procfs.FS{})
	defer k.close()
	w := newSidebandWalker(sidebandEvent(), procfs.FS{}, nil, k)
	defer w.buildIDs.close()
	own := w.buildIDs.hostMnt
	w.buildIDs.hostMnt = 1 // so that ours is one of others
	self := int32(os.Getpid())
	const gone, mnt = int32(1 << 30), uint64(77)
	for _, tt := range []struct {
		name  string
		entry nsChange
		life  uint32
		found int
	}{
		{"the first process", nsChange{pid: self, mnt: own, live: true}, 0, 1},
		{"its child", nsChange{pid: 5, parent: self, mnt: own, live: true}, 0, 1},
		{"another one comes in", nsChange{pid: 6, mnt: own, live: true}, 0, 1},
		{"the first of another", nsChange{pid: gone, mnt: mnt, live: true}, 0, 2},
		{"its child, when it has ended", nsChange{pid: gone + 1, parent: gone, mnt: mnt, live: true}, 0, 2},
		{"found by a snapshot", nsChange{pid: gone + 2, mnt: mnt}, 0, 2},
		{"one that comes in when all have ended", nsChange{pid: gone + 3, mnt: mnt, live: true}, 1, 3},
		{"its child", nsChange{pid: gone + 4, parent: gone + 3, mnt: mnt, live: true}, 1, 3},
		{"a late child of the first", nsChange{pid: gone + 5, parent: gone + 1, mnt: mnt, live: true}, 0, 3},
		{"a process that leaves", nsChange{pid: gone + 4, mnt: own, live: true}, 0, 3},
		{"the next", nsChange{pid: gone + 6, parent: 5, mnt: mnt, live: true}, 2, 4},
		{"the host's", nsChange{pid: gone + 7, mnt: 1, live: true}, 0, 5},
		{"also if nobody is there", nsChange{pid: gone + 8, mnt: 1, live: true}, 0, 5},
	} {
		w.namespaces(tt.entry)
		if got := w.mounts[tt.entry.pid]; got != (mountNS{tt.entry.mnt, tt.life}) || w.newMountNS != tt.found {
			t.Errorf("%s: %+v, %d found, want life %d, %d found", tt.name, got, w.newMountNS, tt.life, tt.found)
		}
	}
	for range maxMountNS {
		w.enter(&nsChange{pid: gone, mnt: uint64(len(w.mountNSStates)) + 1000, live: true})
	}
	if n := w.enter(&nsChange{pid: gone, mnt: mnt, live: true}); n <= 2 || len(w.mountNSStates) > maxMountNS {
		t.Errorf("a life of number %d after %d were forgotten", n, maxMountNS)
	}

	raw := encode(t, &perf.Mmap2{PID: gone + 6, TID: gone + 6, Maj: 1, Ino: 2, InoGen: 3, Filename: "/app/server"})
	if err := w.record(new(ring), raw); err != nil {
		t.Fatal(err)
	}
	rec, err := perf.Decode(raw, nativeOrder, sidebandEvent())
	if err != nil {
		t.Fatal(err)
	}
	if m := rec.(*perf.Mmap2); m.InoGen != 3|2<<generationShift || m.Ino != 2 {
		t.Errorf("the record of a mapping does not tell the life: %+v", m)
	}
}

// A file that was known in a mount namespace that is gone is not taken for the
// one that has its path, device and inode in the next.
func TestIdentifyInNextLife(t *testing.T) {
	x := newBuildIDResolver(procfs.FS{}, nil)
	defer x.close()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m := mapped(t, exe)
	first := x.resolve(m, mountNS{ino: 77}, nil)
	if x.lookups != 1 {
		t.Fatalf("asked %d times", x.lookups)
	}
	if x.resolve(m, mountNS{ino: 77}, nil); x.lookups != 1 {
		t.Error("a known file was asked for again")
	}
	m.pid = 1 << 30
	second := x.resolve(m, mountNS{ino: 77, generation: 1}, map[int32]mountNS{int32(os.Getpid()): {ino: 77}})
	if x.lookups != 2 || second == first || len(second.id) != 0 {
		t.Errorf("%+v, asked %d times", second, x.lookups)
	}
	if f := x.resolve(m, mountNS{ino: 77, generation: 1}, map[int32]mountNS{int32(os.Getpid()): {ino: 77, generation: 1}}); len(f.id) == 0 {
		t.Error("not found by way of another process of the same life")
	}
}
