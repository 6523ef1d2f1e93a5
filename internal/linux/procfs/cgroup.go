// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Cgroup is a task's place in one hierarchy: a line of /proc/PID/cgroup.
type Cgroup struct {
	Hierarchy   int      // 0 is the unified one (v2)
	Controllers []string // empty for v2; "name=systemd" for a named one
	Path        string   // relative to the reader's cgroup namespace
	Deleted     bool     // the directory is gone, the task is a zombie
}

// Unified reports whether this is the v2 hierarchy.
func (c *Cgroup) Unified() bool { return c.Hierarchy == 0 }

// Has reports whether the hierarchy carries the controller.
func (c *Cgroup) Has(controller string) bool { return slices.Contains(c.Controllers, controller) }

// Outside reports whether the path leaves the reader's cgroup namespace, so
// that it says nothing about the tree the reader sees.
func (c *Cgroup) Outside() bool { return outside(c.Path) }

func outside(path string) bool {
	return path == "/.." || strings.HasPrefix(path, "/../")
}

var errCgroup = errors.New("malformed cgroup")

// ParseCgroups parses a cgroup file.
func ParseCgroups(r io.Reader) ([]Cgroup, error) {
	return parseLines(r, parseCgroup)
}

// parseCgroup parses "ID:CONTROLLERS:PATH"; only the path may hold colons.
func parseCgroup(line string) (Cgroup, error) {
	id, rest, ok1 := strings.Cut(line, ":")
	list, path, ok2 := strings.Cut(rest, ":")
	if !ok1 || !ok2 || !strings.HasPrefix(path, "/") {
		return Cgroup{}, errCgroup
	}
	n, err := strconv.ParseUint(id, 10, 31)
	if err != nil || (n == 0) != (list == "") {
		return Cgroup{}, fmt.Errorf("hierarchy %q: %w", id, errCgroup)
	}
	c := Cgroup{Hierarchy: int(n)}
	c.Path, c.Deleted = strings.CutSuffix(path, deletedSuffix)
	if list != "" {
		c.Controllers = strings.Split(list, ",")
	}
	return c, nil
}
