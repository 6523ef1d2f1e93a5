// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"strings"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
)

// device is a file system as a mapping names it.
type device struct{ major, minor uint32 }

// mountTypes knows which file systems are served by a program: reading from
// one waits for that program, which may be one that never answers.
type mountTypes struct {
	fuse map[device]bool
	own  bool // the mounts that this process sees are known
}

// served says whether the device, on which proc has mapped the file at path, is
// such a file system. What cannot be found out counts as one: a file system
// that was unmounted since, or is mounted elsewhere only.
func (t *mountTypes) served(proc procfs.Proc, dev device, path string) bool {
	if strings.HasPrefix(path, "/memfd:") {
		return false // memory, mounted nowhere
	}
	if fuse, known := t.fuse[dev]; known {
		return fuse
	}
	t.read(proc)
	if _, known := t.fuse[dev]; !known && !t.own {
		// A process in a chroot sees only the mounts below it.
		t.own = true
		t.read(proc.FS().Self())
	}
	fuse, known := t.fuse[dev]
	return fuse || !known
}

// read learns the mounts that proc sees.
func (t *mountTypes) read(proc procfs.Proc) {
	mounts, err := proc.Mounts()
	if err != nil {
		return
	}
	if t.fuse == nil {
		t.fuse = make(map[device]bool)
	}
	for _, m := range mounts {
		t.fuse[device{m.Major, m.Minor}] = isFUSE(m.Type)
	}
}

func isFUSE(fstype string) bool {
	return fstype == "fuse" || fstype == "fuseblk" || strings.HasPrefix(fstype, "fuse.")
}
