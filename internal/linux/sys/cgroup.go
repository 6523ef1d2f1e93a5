// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// fileidKernfs is FILEID_KERNFS of linux/exportfs.h: an 8 byte kernfs id.
const fileidKernfs = 0xfe

// CgroupID is the kernel's id of the cgroup directory path: what samples with
// PERF_SAMPLE_CGROUP carry. It works without privilege wherever the directory
// can be reached.
func CgroupID(path string) (uint64, error) {
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path, 0)
	if err != nil {
		return 0, &os.PathError{Op: "name_to_handle_at", Path: path, Err: err}
	}
	if h.Size() != 8 {
		return 0, fmt.Errorf("cgroup id of %q: file handle of %d bytes: %w", path, h.Size(), unix.EINVAL)
	}
	return binary.NativeEndian.Uint64(h.Bytes()), nil
}

// OpenCgroup opens the cgroup with this id below mount, an open directory of
// the cgroup file system. It needs CAP_DAC_READ_SEARCH. A cgroup that is gone
// gives ESTALE.
func OpenCgroup(mount *FD, id uint64) (*FD, error) {
	h := unix.NewFileHandle(fileidKernfs, binary.NativeEndian.AppendUint64(nil, id))
	raw, err := unix.OpenByHandleAt(mount.Int(), h, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
	runtime.KeepAlive(mount)
	if err != nil {
		return nil, fmt.Errorf("open cgroup %d: %w", id, err)
	}
	return own(raw), nil
}

// FSType is the magic number of a file system, as statfs reports it.
type FSType uint32

// File systems gantry looks for.
const (
	Cgroup1FS FSType = unix.CGROUP_SUPER_MAGIC
	Cgroup2FS FSType = unix.CGROUP2_SUPER_MAGIC
	TraceFS   FSType = unix.TRACEFS_MAGIC
)

// FSTypeOf is the type of the file system that path is on.
func FSTypeOf(path string) (FSType, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	return FSType(st.Type), nil
}
