// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package cgroup finds the cgroups that trace systems are limited to, in the hierarchy of
// v2.
package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Open opens the directory of a cgroup, by its path in the hierarchy of v2 as
// /proc/PID/cgroup has it. The root is EINVAL: it is the whole machine; ENODEV is no such
// hierarchy. The caller closes it.
func Open(path string) (*sys.FD, error) {
	trees, err := procfs.New("").CgroupTrees()
	if err != nil {
		return nil, err
	}
	if len(trees.Trees) == 0 || !trees.Trees[0].Unified {
		return nil, fmt.Errorf("no cgroup hierarchy of v2 is mounted: %w", syscall.ENODEV)
	}
	if filepath.Clean("/"+path) == "/" {
		return nil, fmt.Errorf("the root cgroup is the whole machine: %w", syscall.EINVAL)
	}
	root, err := sys.Open(trees.Trees[0].Point, syscall.O_DIRECTORY|syscall.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	fd, err := sys.OpenInRoot(root, path, syscall.O_DIRECTORY|syscall.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", path, err)
	}
	return fd, nil
}

// Processes and Threads are the numbers of those in an open cgroup and below it.
func Processes(dir *sys.FD) ([]int, error) { return members(dir, "cgroup.procs") }

// Threads is Processes for threads.
func Threads(dir *sys.FD) ([]int, error) { return members(dir, "cgroup.threads") }

func members(dir *sys.FD, file string) (list []int, err error) {
	err = filepath.WalkDir(dir.Path()+"/", func(at string, entry os.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil // it may be gone
		}
		text, err := os.ReadFile(filepath.Join(at, file))
		if err != nil {
			return nil // the same, or a cgroup of threads
		}
		for _, word := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(word); err == nil && n > 0 {
				list = append(list, n)
			}
		}
		return nil
	})
	return list, err
}
