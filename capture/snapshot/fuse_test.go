// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
)

func TestServed(t *testing.T) {
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
	var types mountTypes
	if !types.served(fs.Proc(43), device{8, 1}, "/x") {
		t.Error("what cannot be found out should not be read")
	}
	for dev, want := range map[device]bool{{8, 1}: false, {0, 40}: true, {0, 41}: true, {0, 42}: false, {0, 99}: true} {
		if got := types.served(fs.Proc(42), dev, "/x"); got != want {
			t.Errorf("%v: %v, want %v", dev, got, want)
		}
	}
	if types.served(fs.Proc(42), device{0, 1}, "/memfd:x (deleted)") {
		t.Error("memory is served by no program")
	}
	if types.served(fs.Proc(43), device{8, 1}, "/x") {
		t.Error("a file system that is known is known for all processes")
	}
}
