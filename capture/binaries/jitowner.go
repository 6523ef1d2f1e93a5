// SPDX-License-Identifier: Apache-2.0

//go:build linux

package binaries

import (
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Why a perf map is not that of a process.
var (
	errShared = errors.New("several processes at once have one perf map")
	errOlder  = errors.New("the perf map is that of an earlier process")
)

// mapFile is a perf map.
type mapFile struct{ dev, inode uint64 }

// owner is who had a perf map last, and until when, by CLOCK_BOOTTIME.
type owner struct {
	pid int32
	end time.Duration
}

// tickOfTimes is how much earlier than true the start of a process and the time of a
// file may be.
const tickOfTimes = 20 * time.Millisecond

// owns reports whether the perf map of g can be about its code: it was written to since
// g began, and nobody else had it meanwhile, as containers have that share a /tmp: both
// write to one file. What was kept of the other one is dropped then.
func (c *jitCollector) owns(g *jitProcess) (dropped int, err error) {
	info, err := g.perfMap.Stat()
	if err != nil {
		return 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	now, err := sys.ClockBoottime.Now()
	if !ok || err != nil {
		return 0, err
	}
	start := time.Duration(g.start) * procfs.Ticks
	written := time.Duration(now) - time.Since(info.ModTime())
	if g.nsPID != 0 && written+tickOfTimes < start {
		return 0, errOlder
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	file := mapFile{st.Dev, st.Ino}
	before, had := c.owners[file]
	if c.owners == nil || len(c.owners) >= maxJITProcesses {
		c.owners = make(map[mapFile]owner)
	}
	c.owners[file] = owner{g.pid, time.Duration(now)}
	if !had || before.pid == g.pid || g.nsPID != 0 && before.end < start {
		return 0, nil
	}
	kept := len(c.collected)
	c.collected = slices.DeleteFunc(c.collected, func(k jitFile) bool { return k.pid == before.pid && k.dump == nil })
	return kept - len(c.collected), errShared
}
