// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"syscall"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// numLinks is how many namespaces a NAMESPACES record has (NR_NAMESPACES).
const numLinks = perf.NSCgroup + 1

// linkNames are the links in a task's ns directory, by their index in the
// record.
func linkNames() [numLinks]string {
	return [numLinks]string{
		perf.NSNet: "net", perf.NSUTS: "uts", perf.NSIPC: "ipc", perf.NSPID: "pid",
		perf.NSUser: "user", perf.NSMnt: "mnt", perf.NSCgroup: "cgroup",
	}
}

// readLinks reads the namespaces of a task. They stay zero if this user may
// not look, for a zombie, and where the kernel was built without them.
//
// The text of a link has the inode number. Following it would cost twice as
// much: the kernel then makes an inode for the namespace.
func (w *walk) readLinks(task procfs.Proc, t *Task) error {
	dir, err := sys.Open(task.Path("ns"), sys.OPath|sys.ODirectory)
	if err != nil {
		return err
	}
	defer dir.Close()
	for i, name := range linkNames() {
		ino, err := w.readLink(dir, name)
		if errors.Is(err, fs.ErrPermission) {
			w.denied = true
			return nil
		}
		if err != nil {
			return err
		}
		if ino != 0 {
			t.Namespaces[i] = perf.NSLink{Dev: w.nsDev, Ino: ino}
		}
	}
	if w.sink.Want == nil {
		return nil
	}
	t.TimeNS, err = w.readLink(dir, "time")
	return err
}

// readLink reads one link; 0 if there is none of that name.
func (w *walk) readLink(dir *sys.FD, name string) (uint64, error) {
	var buf [64]byte
	n, err := sys.ReadlinkAt(dir, name, buf[:])
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return parseLink(buf[:n])
}

// parseLink reads "mnt:[4026531841]".
func parseLink(b []byte) (uint64, error) {
	_, rest, found := bytes.Cut(b, []byte(":["))
	digits, closed := bytes.CutSuffix(rest, []byte("]"))
	ino, err := strconv.ParseUint(string(digits), 10, 64)
	if !found || !closed || err != nil {
		return 0, fmt.Errorf("namespace link %q: %w", b, syscall.EINVAL)
	}
	return ino, nil
}

// nsDevice is the device of the file system that all namespaces are on; 0 if
// not even the own ones can be looked at.
func nsDevice(fsys procfs.FS) uint64 {
	var st syscall.Stat_t
	if err := syscall.Stat(fsys.Self().Path("ns/mnt"), &st); err != nil {
		return 0
	}
	return st.Dev
}

// cgroupIDs finds the ids of tasks' cgroups in the v2 hierarchy.
type cgroupIDs struct {
	tree *procfs.CgroupTree // nil: not mounted
	ids  map[string]uint64  // by path
}

func (c *cgroupIDs) init(fsys procfs.FS) error {
	trees, err := fsys.CgroupTrees()
	if err != nil {
		return err
	}
	c.ids = make(map[string]uint64)
	if len(trees.Trees) > 0 && trees.Trees[0].Unified {
		c.tree = &trees.Trees[0]
	}
	return nil
}

// of is the id of the task's cgroup, 0 if it cannot be found.
func (c *cgroupIDs) of(proc procfs.Proc) uint64 {
	if c.tree == nil {
		return 0
	}
	list, err := proc.Cgroups()
	if err != nil {
		return 0
	}
	own := c.tree.Of(list)
	if own == nil || own.Deleted {
		return 0
	}
	id, known := c.ids[own.Path]
	if !known {
		id, _ = c.tree.ID(own.Path) // gone since: 0
		c.ids[own.Path] = id
	}
	return id
}
