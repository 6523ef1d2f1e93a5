// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proctable

import (
	"os"
	"testing"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
)

// The number of a mount namespace that is gone is given to the next one: a process
// that enters one without members is in a new one.
func TestGenerations(t *testing.T) {
	own, err := procfs.FS{}.Self().Namespace("mnt")
	if err != nil {
		t.Fatal(err)
	}
	tab := New(procfs.FS{}, 1) // so that ours is not the host's
	self := int32(os.Getpid())
	const gone, mnt = int32(1 << 30), uint64(77)
	for _, tt := range []struct {
		name       string
		change     change
		generation uint32
		found      int
	}{
		{"the first process", change{pid: self, ino: own, live: true}, 0, 1},
		{"its child", change{pid: 5, parent: self, ino: own, live: true}, 0, 1},
		{"another one comes in", change{pid: 6, ino: own, live: true}, 0, 1},
		{"the first of another", change{pid: gone, ino: mnt, live: true}, 0, 2},
		{"its child, when it has ended", change{pid: gone + 1, parent: gone, ino: mnt, live: true}, 0, 2},
		{"found by a snapshot", change{pid: gone + 2, ino: mnt}, 0, 2},
		{"one that comes in when all have ended", change{pid: gone + 3, ino: mnt, live: true}, 1, 3},
		{"its child", change{pid: gone + 4, parent: gone + 3, ino: mnt, live: true}, 1, 3},
		{"a late child of the first", change{pid: gone + 5, parent: gone + 1, ino: mnt, live: true}, 0, 3},
		{"a process that leaves", change{pid: gone + 4, ino: own, live: true}, 0, 3},
		{"the next", change{pid: gone + 6, parent: 5, ino: mnt, live: true}, 2, 4},
		{"the host's", change{pid: gone + 7, ino: 1, live: true}, 0, 5},
		{"also if nobody is there", change{pid: gone + 8, ino: 1, live: true}, 0, 5},
	} {
		tab.setMountNS(tt.change)
		if got := tab.MountNS(tt.change.pid); got != (MountNS{tt.change.ino, tt.generation}) || tab.NewMountNS != tt.found {
			t.Errorf("%s: %+v, %d found, want generation %d, %d found", tt.name, got, tab.NewMountNS, tt.generation, tt.found)
		}
	}
	for range maxMountNS {
		tab.enter(&change{pid: gone, ino: uint64(len(tab.states)) + 1000, live: true})
	}
	if n := tab.enter(&change{pid: gone, ino: mnt, live: true}); n <= 2 || len(tab.states) > maxMountNS {
		t.Errorf("generation %d after %d were forgotten", n, maxMountNS)
	}
	if got := (MountNS{mnt, 2}).InodeGen(3); got != 3|2<<GenerationShift {
		t.Errorf("inode generation %#x", got)
	}
}
