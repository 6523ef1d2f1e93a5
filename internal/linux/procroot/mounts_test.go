// SPDX-License-Identifier: Apache-2.0

//go:build linux

package procroot

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

func TestOnFUSE(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "proc/42")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	const mounts = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" +
		"30 22 0:40 / /mnt rw - fuse.sshfs host: rw\n" +
		"31 22 0:41 / /ntfs rw - fuseblk /dev/sdb rw\n" +
		"32 22 0:42 / /sys/fs/fuse/connections rw - fusectl fusectl rw\n"
	if err := os.WriteFile(filepath.Join(dir, "mountinfo"), []byte(mounts), 0o600); err != nil {
		t.Fatal(err)
	}
	fs := procfs.New(root)
	var types mountTable
	if !types.onFUSE(fs.Proc(43), device{8, 1}, "/x") {
		t.Error("what cannot be found out should not be read")
	}
	for dev, want := range map[device]bool{{8, 1}: false, {0, 40}: true, {0, 41}: true, {0, 42}: false, {0, 99}: true} {
		if got := types.onFUSE(fs.Proc(42), dev, "/x"); got != want {
			t.Errorf("%v: %v, want %v", dev, got, want)
		}
	}
	if types.onFUSE(fs.Proc(42), device{0, 1}, "/memfd:x (deleted)") {
		t.Error("memory is served by no program")
	}
	if types.onFUSE(fs.Proc(43), device{8, 1}, "/x") {
		t.Error("a file system that is known is known for all processes")
	}
}

// The number of a device or mount is believed for a moment only: the next file
// system may have it.
func TestMountTableAge(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "proc/42")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	proc := procfs.New(root).Proc(42)
	var types mountTable
	for _, fstype := range []string{"tmpfs", "fuse", "tmpfs"} {
		line := "30 22 0:40 / /mnt rw - " + fstype + " x rw\n"
		if err := os.WriteFile(filepath.Join(dir, "mountinfo"), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		types.since = types.since.Add(-2 * mountTableAge)
		if got := types.onFUSE(proc, device{0, 40}, "/x"); got != (fstype == "fuse") {
			t.Errorf("%s: %v", fstype, got)
		}
		if _, err := types.check(proc, &sys.Stat{Mount: 30}); errors.Is(err, ErrPseudoFile) != (fstype == "fuse") {
			t.Errorf("%s: %v", fstype, err)
		}
	}
}
