// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Cgroup is a cgroup2 directory of a test.
type Cgroup struct {
	// Path is its path on the hierarchy, Dir its directory.
	Path, Dir string
}

// NewCgroup makes an empty cgroup on the cgroup2 hierarchy: path, such as
// "/docker/HEX", below a unique one. The test's Cleanup kills what is in it
// and removes it.
func NewCgroup(t testing.TB, path string) *Cgroup {
	t.Helper()
	Require(t, Root, CgroupV2)
	mount, err := cgroup2Mount()
	if err != nil {
		t.Fatal(err)
	}
	unique := "/" + uniqueName()
	t.Cleanup(func() { removeCgroups(t, unique) })
	dir := filepath.Join(mount, unique, path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return &Cgroup{Path: filepath.Join(unique, path), Dir: dir}
}

// ID is the cgroup's id, as PERF_SAMPLE_CGROUP has it.
func (c *Cgroup) ID(t testing.TB) uint64 {
	t.Helper()
	info, err := os.Stat(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ino
}

// Add moves a process into the cgroup.
func (c *Cgroup) Add(t testing.TB, pid int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(c.Dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
		t.Fatal(err)
	}
}

// removeCgroups kills and removes the cgroup path and everything below it, in
// every hierarchy.
func removeCgroups(t testing.TB, path string) {
	mounts, err := cgroupMounts()
	if err != nil {
		t.Errorf("cleanup: %v", err)
		return
	}
	for _, mount := range mounts {
		if err := removeCgroupTree(filepath.Join(mount, path)); err != nil {
			t.Errorf("cleanup: %v", err)
		}
	}
}

func removeCgroupTree(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := removeCgroup(dirs[i]); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroup kills the processes of one cgroup, waits for them and removes
// it.
func removeCgroup(dir string) error {
	for empty := false; ; {
		err := syscall.Rmdir(dir)
		if err == nil || errors.Is(err, syscall.ENOENT) {
			return nil
		}
		if !errors.Is(err, syscall.EBUSY) {
			return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
		}
		killed, err := killCgroup(dir)
		if err != nil {
			return err
		}
		if !killed && empty { // the first time, the last one may just have ended
			return &fs.PathError{Op: "rmdir", Path: dir, Err: syscall.EBUSY}
		}
		empty = !killed
	}
}

// killCgroup kills the processes of a cgroup and waits for them. It reports
// whether there were any.
func killCgroup(dir string) (bool, error) {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return false, err
	}
	fields := strings.Fields(string(data))
	for _, field := range fields {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return false, err
		}
		process, err := pidfdOpen(pid)
		if errors.Is(err, syscall.ESRCH) {
			continue
		}
		if err != nil {
			return false, err
		}
		err = killAndWait(process)
		process.Close()
		if err != nil {
			return false, err
		}
	}
	return len(fields) > 0, nil
}

// cgroupMounts are the mount points of every cgroup hierarchy.
func cgroupMounts() ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var mounts []string
	for line := range strings.Lines(string(data)) {
		before, after, ok := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if ok && strings.HasPrefix(after, "cgroup") && len(fields) > 4 {
			mounts = append(mounts, fields[4])
		}
	}
	return mounts, nil
}
