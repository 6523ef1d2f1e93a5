// SPDX-License-Identifier: Apache-2.0

package container

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// CgroupID is a cgroup's id: the number in PERF_RECORD_CGROUP and
// PERF_SAMPLE_CGROUP, which is the inode number of the cgroup's directory.
type CgroupID uint64

// Container is all that is known of one container, or of a systemd unit.
// Every field may be empty. Strings come from outside: see Printable.
type Container struct {
	Kind         Kind              `json:"kind,omitempty"`
	ID           string            `json:"id,omitempty"` // the runtime's, in full
	Name         string            `json:"name,omitempty"`
	Runtime      string            `json:"runtime,omitempty"`
	Image        string            `json:"image,omitempty"`
	Pod          string            `json:"pod,omitempty"`
	PodNamespace string            `json:"pod_namespace,omitempty"`
	PodUID       string            `json:"pod_uid,omitempty"`
	CgroupID     CgroupID          `json:"cgroup,omitempty"`
	CgroupPath   string            `json:"cgroup_path,omitempty"`
	Namespaces   Namespaces        `json:"namespaces,omitzero"`
	Labels       map[string]string `json:"labels,omitempty"`
	// PID is the first process as the host numbers it.
	PID int `json:"pid,omitempty"`
	// StartTime is when that process started, in nanoseconds since boot
	// (CLOCK_BOOTTIME, 10 ms exact). With CgroupID it is the container's key.
	StartTime uint64 `json:"start_time,omitempty"`
	// Created is the runtime's own word, by the wall clock.
	Created time.Time `json:"created,omitzero"`
	// Unstarted is set while the runtime says that the first process waits to
	// be started. It is of the moment, and so not in recordings.
	Unstarted bool `json:"-"`
}

// shortLen is how much of a 64 digit id people read.
const shortLen = 12

// ShortID is the first 12 digits of a long hex id, any other id as it is.
func (c *Container) ShortID() string {
	if isHex(c.ID, idLen) {
		return c.ID[:shortLen]
	}
	return c.ID
}

// Label is what to call the container in a report, cleaned for printing: its
// name, with the pod's in front if it has one, else the short id, else the
// cgroup path, else the text of its identity. Two containers may have the same
// label.
func (c *Container) Label() string {
	name := cmp.Or(c.Name, c.ShortID(), c.CgroupPath)
	if name == "" {
		d := Default()
		name = cmp.Or(d.Text(Identity{Cgroup: c.CgroupID, Namespaces: c.Namespaces.Only(d.Set())}), "-")
	}
	if c.Pod != "" {
		name = c.Pod + "/" + name
	}
	return Printable(name)
}

// Task is where the container's first process is, as far as that is known.
func (c *Container) Task() Task {
	return Task{Cgroup: c.CgroupID, CgroupPath: c.CgroupPath, Namespaces: c.Namespaces}
}

// lowLevel reports whether a runtime only runs what another one manages.
func lowLevel(runtime string) bool {
	switch runtime {
	case "", RuntimeRunc, RuntimeCrun, RuntimeSystemd:
		return true
	}
	return false
}

// update takes over what u knows; what c knows and u does not is kept.
func (c *Container) update(u *Container) {
	if u.Kind == KindContainer {
		if c.Kind == KindUnit {
			c.ID, c.Name, c.Runtime = "", "", ""
		}
		c.Kind = KindContainer
	}
	if u.PID != 0 && (u.Runtime == RuntimeRunc || u.Runtime == RuntimeCrun) {
		c.Unstarted = u.Unstarted
	}
	if c.PID == 0 && u.PID != 0 {
		// The text of a path was a guess, this is the runtime's word.
		c.ID = cmp.Or(u.ID, c.ID)
	}
	c.ID = cmp.Or(c.ID, u.ID)
	if lowLevel(c.Runtime) {
		c.Runtime = cmp.Or(u.Runtime, c.Runtime)
	}
	c.Name = cmp.Or(u.Name, c.Name)
	c.Image = cmp.Or(u.Image, c.Image)
	c.Pod = cmp.Or(u.Pod, c.Pod)
	c.PodNamespace = cmp.Or(u.PodNamespace, c.PodNamespace)
	c.PodUID = cmp.Or(u.PodUID, c.PodUID)
	c.CgroupID = cmp.Or(c.CgroupID, u.CgroupID)
	c.CgroupPath = cmp.Or(c.CgroupPath, u.CgroupPath)
	c.PID = cmp.Or(u.PID, c.PID)
	c.StartTime = cmp.Or(c.StartTime, u.StartTime)
	if c.Created.IsZero() {
		c.Created = u.Created
	}
	for n, ino := range u.Namespaces {
		c.Namespaces[n] = cmp.Or(ino, c.Namespaces[n])
	}
	c.label(u.Labels)
}

// label adds labels, as many as a file may have.
func (c *Container) label(labels map[string]string) {
	if len(labels) == 0 {
		return
	}
	if c.Labels == nil {
		c.Labels = make(map[string]string, len(labels))
	}
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if _, known := c.Labels[k]; known || len(c.Labels) < maxLabels {
			c.Labels[k] = labels[k]
		}
	}
}

// onlyDescribes reports whether c tells an id and what goes with it, but
// nothing by which a table finds a container.
func (c *Container) onlyDescribes() bool {
	return c.CgroupID == 0 && c.CgroupPath == "" && c.PID == 0 && c.StartTime == 0 && c.nsKey() == Namespaces{}
}

// same reports whether u describes the container c, as far as both tell.
func (c *Container) same(u *Container) bool {
	if !agree(c.StartTime, u.StartTime) {
		return false
	}
	if c.Kind != u.Kind {
		return c.CgroupID == u.CgroupID && u.CgroupID != 0
	}
	if textOnly := c.PID == 0 || u.PID == 0; textOnly && c.CgroupID == u.CgroupID && u.CgroupID != 0 {
		return true
	}
	if c.ID != "" && u.ID != "" {
		return c.ID == u.ID && agree(c.CgroupID, u.CgroupID) && agree(c.CgroupPath, u.CgroupPath)
	}
	if c.CgroupID != 0 && u.CgroupID != 0 {
		return c.CgroupID == u.CgroupID
	}
	key := u.nsKey()
	return key != Namespaces{} && key == c.nsKey()
}

// nsKey is the namespaces by which a container without a cgroup of its own is
// known, zero if there are none.
func (c *Container) nsKey() Namespaces { return nsKey(c.Namespaces) }

func nsKey(ns Namespaces) Namespaces {
	if ns[PIDNS] == 0 || ns[MntNS] == 0 {
		return Namespaces{}
	}
	return ns.Only(NamespacesOf(PIDNS, MntNS))
}

// agree reports whether two values are equal where both are known.
func agree[T comparable](a, b T) bool {
	var unknown T
	return a == b || a == unknown || b == unknown
}
