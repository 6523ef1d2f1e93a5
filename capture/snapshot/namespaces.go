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

// readLinks reads the namespaces of a task into w.links. It is false if this
// user may not look, and for a zombie. A namespace the kernel was built
// without stays zero.
//
// The text of a link has the inode number. Following it would cost twice as
// much: the kernel then makes an inode for the namespace.
func (w *walk) readLinks(task procfs.Proc) (bool, error) {
	w.links = [numLinks]perf.NSLink{}
	dir, err := sys.Open(task.Path("ns"), sys.OPath|sys.ODirectory)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	var buf [64]byte
	for i, name := range linkNames() {
		n, err := sys.ReadlinkAt(dir, name, buf[:])
		switch {
		case err == nil:
			ino, err := parseLink(buf[:n])
			if err != nil {
				return false, err
			}
			w.links[i] = perf.NSLink{Dev: w.nsDev, Ino: ino}
		case errors.Is(err, fs.ErrPermission):
			w.denied = true
			return false, nil
		case !errors.Is(err, fs.ErrNotExist):
			return false, err
		}
	}
	return w.links[perf.NSMnt].Ino != 0, nil
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
