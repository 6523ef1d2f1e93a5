// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"fmt"
	"path/filepath"
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

// CloneMount makes a mount of a directory that is nowhere, as DetachedMount does
// (Linux 5.2). It looks the path up on a thread that has none of this process's other
// descriptors, so that the directory may be of a file system that this process serves.
func CloneMount(path string) (*FD, error) {
	fd, err := apart(func() (int, error) {
		return unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	})
	if err != nil {
		return nil, fmt.Errorf("open_tree %s: %w", path, err)
	}
	return fd, nil
}

// mountAttributes are the options of a mount that mount_setattr(2) sets, by their names in
// /proc/PID/mountinfo.
var mountAttributes = map[string]uint64{
	"ro": unix.MOUNT_ATTR_RDONLY, "nosuid": unix.MOUNT_ATTR_NOSUID, "nodev": unix.MOUNT_ATTR_NODEV,
	"noexec": unix.MOUNT_ATTR_NOEXEC, "nosymfollow": unix.MOUNT_ATTR_NOSYMFOLLOW,
}

// SetMountOptions adds those of the options that restrict a mount, as mountinfo names them,
// and ends its propagation (Linux 5.12).
func SetMountOptions(mount *FD, options []string) error {
	attr := unix.MountAttr{Propagation: unix.MS_PRIVATE}
	for _, o := range options {
		attr.Attr_set |= mountAttributes[o]
	}
	err := unix.MountSetattr(mount.Int(), "", unix.AT_EMPTY_PATH, &attr)
	runtime.KeepAlive(mount)
	if err != nil {
		return fmt.Errorf("mount_setattr: %w", err)
	}
	return nil
}

// ReplaceMount takes the mount with the number id, which is at the path point below root in
// the mount namespace ns, and attaches the detached mount with in its place. ESTALE says
// that another mount is there. No symbolic link is followed. The descriptors stay the
// caller's. It needs CAP_SYS_ADMIN in the namespace and Linux 5.8.
func ReplaceMount(ns, root *FD, point string, id uint64, with *FD) error {
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := unix.Setns(ns.Int(), unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("setns: %w", err)
		}
		return replaceMount(root, point, id, with)
	})
	runtime.KeepAlive(ns)
	if err != nil {
		return fmt.Errorf("replace the mount at %s: %w", point, err)
	}
	return nil
}

func replaceMount(root *FD, point string, id uint64, with *FD) error {
	dir, name := filepath.Split(filepath.Clean(point))
	const beneath = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: beneath}
	raw, err := unix.Openat2(root.Int(), dir, &how)
	if err != nil {
		return fmt.Errorf("openat2: %w", err)
	}
	parent := own(raw)
	defer parent.Close()
	how = unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: beneath}
	if raw, err = unix.Openat2(parent.Int(), name, &how); err != nil {
		return fmt.Errorf("openat2: %w", err)
	}
	old := own(raw)
	defer old.Close()
	st, err := old.Stat()
	if err != nil {
		return err
	}
	if st.Mount != id {
		return fmt.Errorf("mount %d is there: %w", st.Mount, unix.ESTALE)
	}
	// A mount is unmounted by path. As long as it is there this one leads to it: what
	// carries a mount can be neither renamed nor removed.
	if err := unix.Fchdir(parent.Int()); err != nil {
		return fmt.Errorf("fchdir: %w", err)
	}
	if err := unix.Unmount(name, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("umount: %w", err)
	}
	err = unix.MoveMount(with.Int(), "", parent.Int(), name, unix.MOVE_MOUNT_F_EMPTY_PATH)
	runtime.KeepAlive(with)
	if err != nil {
		return fmt.Errorf("move_mount: %w", err)
	}
	return nil
}
