// SPDX-License-Identifier: Apache-2.0

//go:build linux

package binaries

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// jitFile is what was kept of a process.
type jitFile struct {
	id   buildid.ID
	pid  int32 // of a perf map
	mnt  uint64
	dump *binaryKey // of a jitdump file; nil: a perf map
}

// buildIDs are the perf maps in the form in which readers look for them.
func (c *jitCollector) buildIDs() []perfdata.BuildIDEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []perfdata.BuildIDEntry
	for _, k := range c.collected {
		if k.dump == nil {
			list = append(list, perfdata.BuildIDEntry{PID: -1, Misc: perf.MiscUser, ID: k.id.Bytes(), Path: k.path()})
		}
	}
	slices.SortFunc(list, func(a, b perfdata.BuildIDEntry) int { return strings.Compare(a.Path, b.Path) })
	return list
}

// path is what a timeline calls the memory that a perf map is about: the number
// is that of the process on the host.
func (k *jitFile) path() string { return fmt.Sprintf("/tmp/perf-%d.map", k.pid) }

// files tell apart what processes with one number have written, and find
// jitdump files.
func (c *jitCollector) mappedFiles() buildid.MappedFiles {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list buildid.MappedFiles
	for _, k := range c.collected {
		m := buildid.Mapped{ID: k.id, Path: k.path(), MountNS: k.mnt}
		if d := k.dump; d != nil {
			m.Path, m.Major, m.Minor, m.Inode = d.Path, d.Major, d.Minor, d.Inode
		}
		list = append(list, m)
	}
	return list
}

// sumUp adds what became of generated code.
func (c *jitCollector) sumUp(sum *Summary) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum.Code = len(c.collected)
	for why, n := range c.missing {
		for range n {
			sum.miss(why)
		}
	}
}
