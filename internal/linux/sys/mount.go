// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// DetachedMount mounts a kernel file system ("tracefs") without options, read
// only and nowhere: only the returned directory descriptor reaches it, no
// other process sees it, and it is gone when the descriptor is closed. It
// needs CAP_SYS_ADMIN and Linux 5.2 (ENOSYS without).
func DetachedMount(fstype string) (*FD, error) {
	raw, err := unix.Fsopen(fstype, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("fsopen %s: %w", fstype, err)
	}
	fs := own(raw)
	defer fs.Close()
	if err := unix.FsconfigCreate(fs.Int()); err != nil {
		return nil, fmt.Errorf("fsconfig %s: %w", fstype, err)
	}
	const attr = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	raw, err = unix.Fsmount(fs.Int(), unix.FSMOUNT_CLOEXEC, attr)
	if err != nil {
		return nil, fmt.Errorf("fsmount %s: %w", fstype, err)
	}
	return own(raw), nil
}

// DetachedMemory is like DetachedMount a file system nowhere, one in memory that can
// be written until SealMount.
func DetachedMemory() (*FD, error) {
	raw, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("fsopen tmpfs: %w", err)
	}
	fs := own(raw)
	defer fs.Close()
	if err := unix.FsconfigSetString(fs.Int(), "mode", "0755"); err != nil {
		return nil, fmt.Errorf("fsconfig tmpfs: %w", err)
	}
	if err := unix.FsconfigCreate(fs.Int()); err != nil {
		return nil, fmt.Errorf("fsconfig tmpfs: %w", err)
	}
	raw, err = unix.Fsmount(fs.Int(), unix.FSMOUNT_CLOEXEC,
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, fmt.Errorf("fsmount tmpfs: %w", err)
	}
	return own(raw), nil
}

// SealMount makes a mount read-only (Linux 5.12).
func SealMount(mount *FD) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	err := unix.MountSetattr(mount.Int(), "", unix.AT_EMPTY_PATH, &attr)
	runtime.KeepAlive(mount)
	if err != nil {
		return fmt.Errorf("mount_setattr: %w", err)
	}
	return nil
}
