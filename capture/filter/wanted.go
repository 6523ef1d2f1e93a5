// SPDX-License-Identifier: Apache-2.0

//go:build linux

package filter

import (
	"math"
	"strings"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
)

// Wanted reports whether samples of a process, where it is now, may be recorded.
// It asks the kernel for the cgroup, and takes for true what it cannot find out.
// Of one that has ended there may be samples, but there will not be more.
func (f *Filter) Wanted(pid int32) bool {
	path, err := f.cgroupOf(pid)
	if procfs.Gone(err) {
		return false
	}
	if path == "" {
		return true
	}
	s := f.view.cgroup(path, f.now())
	if c := f.cgroups[f.ids[path]]; c != nil {
		s = c.state
	}
	return f.weigh(s, true, f.at(pid, math.MaxUint64)) != Drop
}

// cgroupOf is the path of the cgroup that a process is in, "" if that cannot be
// found out.
func (f *Filter) cgroupOf(pid int32) (string, error) {
	if f.perfTree == nil {
		return "", nil
	}
	list, err := f.fs.Proc(int(pid)).Cgroups()
	if err != nil {
		return "", err
	}
	c := f.perfTree.Of(list)
	if c == nil {
		return "", nil
	}
	dir, err := f.perfTree.Dir(c.Path)
	if err != nil {
		return "", nil
	}
	return f.full(dir), nil
}

// full is the path of a cgroup from its directory.
func (f *Filter) full(dir string) string {
	path := f.prefix + "/" + strings.TrimPrefix(strings.TrimPrefix(dir, f.perfTree.Point), "/")
	if path == "/" {
		return path
	}
	return strings.TrimSuffix(path, "/")
}

// setTree takes the hierarchy of cgroups that samples refer to.
func (f *Filter) setTree(t *procfs.CgroupTree) {
	f.perfTree = t
	if t.Root != "/" && !strings.HasPrefix(t.Root, "/..") {
		f.prefix = t.Root
	}
}
