// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// CgroupMode is how a machine arranges its cgroups.
type CgroupMode uint8

// Arrangements of cgroup hierarchies.
const (
	CgroupNone   CgroupMode = iota // no hierarchy is mounted
	CgroupV1                       // only v1 hierarchies
	CgroupV2                       // only the unified hierarchy
	CgroupHybrid                   // v1 hierarchies and the unified one
)

// String is the name of the mode.
func (m CgroupMode) String() string {
	return [...]string{"none", "v1", "v2", "hybrid"}[m&3]
}

// CgroupTree is a mounted hierarchy.
type CgroupTree struct {
	Unified     bool
	Controllers []string // of v1: mount options such as "cpu", "name=systemd"
	// Point is where it is mounted, below the root of the FS.
	Point string
	// Root is the cgroup that Point shows, relative to the cgroup namespace
	// of the process that looked: "/" normally, "/.." and so on when a
	// container has the host's tree mounted.
	Root string
}

// CgroupTrees are the hierarchies that a process sees.
type CgroupTrees struct {
	Mode  CgroupMode
	Trees []CgroupTree // the unified one first
}

// CgroupTrees finds the mounted hierarchies: those of the calling process,
// or, with another root, those of the first process there.
func (f FS) CgroupTrees() (*CgroupTrees, error) {
	p := f.Self()
	if f.root != "" {
		p = f.Proc(1)
	}
	mounts, err := p.Mounts()
	if err != nil {
		return nil, fmt.Errorf("find cgroup trees: %w", err)
	}
	return newCgroupTrees(mounts, f.root), nil
}

// newCgroupTrees keeps the first mount of each hierarchy, and prefers one
// that shows its whole tree.
func newCgroupTrees(mounts []Mount, root string) *CgroupTrees {
	byDev := make(map[uint64]int)
	t := &CgroupTrees{}
	for i := range mounts {
		m := &mounts[i]
		if m.Type != "cgroup" && m.Type != "cgroup2" {
			continue
		}
		tree := CgroupTree{Unified: m.Type == "cgroup2", Point: root + m.Point, Root: m.Root}
		if !tree.Unified {
			tree.Controllers = controllers(m.SuperOptions)
		}
		dev := uint64(m.Major)<<32 | uint64(m.Minor)
		if at, seen := byDev[dev]; seen {
			if wider(tree.Root, t.Trees[at].Root) {
				t.Trees[at] = tree
			}
			continue
		}
		byDev[dev] = len(t.Trees)
		t.Trees = append(t.Trees, tree)
	}
	t.sort()
	return t
}

// wider reports whether the mount root a shows more than b.
func wider(a, b string) bool {
	if up := strings.Count(a, "/.."); up != strings.Count(b, "/..") {
		return up > strings.Count(b, "/..")
	}
	return len(a) < len(b)
}

func (t *CgroupTrees) sort() {
	v1, v2 := false, false
	for i := range t.Trees {
		v1 = v1 || !t.Trees[i].Unified
		v2 = v2 || t.Trees[i].Unified
	}
	switch {
	case v1 && v2:
		t.Mode = CgroupHybrid
	case v1:
		t.Mode = CgroupV1
	case v2:
		t.Mode = CgroupV2
	}
	slices.SortStableFunc(t.Trees, func(a, b CgroupTree) int {
		switch {
		case a.Unified == b.Unified:
			return 0
		case a.Unified:
			return -1
		}
		return 1
	})
}

// controllers are the super options of a v1 mount that select its tree.
func controllers(options []string) []string {
	var out []string
	for _, o := range options {
		switch o {
		case "rw", "ro", "noprefix", "xattr", "clone_children", "cpuset_v2_mode", "favordynmods":
			continue
		}
		if strings.HasPrefix(o, "release_agent=") {
			continue
		}
		out = append(out, o)
	}
	return out
}

// Perf is the tree whose ids PERF_SAMPLE_CGROUP and PERF_RECORD_CGROUP
// carry: that of the perf_event controller, which belongs to the unified
// hierarchy unless a v1 mount took it away. It is nil if that tree is not
// mounted.
func (t *CgroupTrees) Perf() *CgroupTree {
	for i := range t.Trees {
		if slices.Contains(t.Trees[i].Controllers, "perf_event") {
			return &t.Trees[i]
		}
	}
	if len(t.Trees) > 0 && t.Trees[0].Unified {
		return &t.Trees[0]
	}
	return nil
}

// Fallback is a tree in which runtimes put containers, for when Perf is nil:
// its paths name them, its ids are not those of perf events.
func (t *CgroupTrees) Fallback() *CgroupTree {
	for _, c := range []string{"memory", "pids", "cpu", "devices", "name=systemd"} {
		for i := range t.Trees {
			if slices.Contains(t.Trees[i].Controllers, c) {
				return &t.Trees[i]
			}
		}
	}
	return nil
}

// Of is the line of a task's cgroup file that belongs to the tree, or nil.
func (t *CgroupTree) Of(list []Cgroup) *Cgroup {
	for i := range list {
		if c := &list[i]; t.Unified && c.Unified() ||
			!t.Unified && len(t.Controllers) > 0 && c.Has(t.Controllers[0]) {
			return c
		}
	}
	return nil
}

// ErrOutside says that a cgroup is not below the directory of its tree that
// this process sees.
var ErrOutside = errors.New("cgroup is outside of the visible tree")

// Dir is the directory of the cgroup that a task's cgroup file calls p.
func (t *CgroupTree) Dir(p string) (string, error) {
	rest, ok := strings.CutPrefix(p, strings.TrimSuffix(t.Root, "/"))
	if !ok || outside(rest) || rest != "" && rest[0] != '/' {
		return "", fmt.Errorf("%s: %w", p, ErrOutside)
	}
	return t.Point + strings.TrimSuffix(rest, "/"), nil
}

// ID is the cgroup id (inode number) of the cgroup that a task's cgroup file
// calls p.
func (t *CgroupTree) ID(p string) (uint64, error) {
	dir, err := t.Dir(p)
	if err != nil {
		return 0, err
	}
	return Inode(dir)
}

// Inode is the inode number of a file, links not followed.
func Inode(name string) (uint64, error) {
	fi, err := os.Lstat(name)
	if err != nil {
		return 0, err
	}
	return inode(fi)
}

func inode(fi fs.FileInfo) (uint64, error) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("%s: no inode number", fi.Name())
	}
	return st.Ino, nil
}

// maxCgroupDepth ends a walk into a tree that has no end.
const maxCgroupDepth = 256

// Walk calls fn for each cgroup below Point, parents first, with its id and
// its path relative to Point ("/" first). A cgroup that goes away meanwhile
// is left out, one that may not be read has its children left out. An error
// of fn ends the walk.
func (t *CgroupTree) Walk(fn func(id uint64, path string) error) error {
	id, err := Inode(t.Point)
	if err != nil {
		return err
	}
	if err := fn(id, "/"); err != nil {
		return err
	}
	return t.walk("/", 0, fn)
}

func (t *CgroupTree) walk(dir string, depth int, fn func(uint64, string) error) error {
	if depth >= maxCgroupDepth {
		return nil
	}
	// The entries of an unreadable directory are simply not known.
	list, err := os.ReadDir(t.Point + dir)
	if err != nil && !Gone(err) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	for _, e := range list {
		if !e.IsDir() {
			continue
		}
		sub := path.Join(dir, e.Name())
		id, err := Inode(t.Point + sub)
		if err != nil {
			continue
		}
		if err := fn(id, sub); err != nil {
			return err
		}
		if err := t.walk(sub, depth+1, fn); err != nil {
			return err
		}
	}
	return nil
}

// Procs lists the processes of one cgroup, without its children; path is as
// Walk gives it. Processes outside of the reader's pid namespace are 0.
func (t *CgroupTree) Procs(path string) ([]int, error) {
	f, err := os.Open(t.Point + path + "/cgroup.procs")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []int
	sc := lines(f)
	for sc.Scan() {
		pid, err := strconv.ParseInt(sc.Text(), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", f.Name(), err)
		}
		out = append(out, int(pid))
	}
	return out, sc.Err()
}
