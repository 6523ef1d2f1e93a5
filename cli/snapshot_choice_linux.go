// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"slices"

	"github.com/gantry-tools/gantry/capture/snapshot"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
)

// taskChoice knows in which container a task is, and whether it is asked for.
type taskChoice struct {
	resolver *container.Resolver
	byCgroup bool                  // the ids of tasks' cgroups are those of the table
	nameBy   *container.Definition // what a container without a name is
	choices  []chosenTasks         // none: all tasks
	wanted   map[int32]bool        // processes
}

// chosenTasks are the tasks that one selector means.
type chosenTasks struct {
	def        *container.Definition // nil: by name only
	selector   container.Selector    // under def
	identities []container.Identity  // under def, those of named containers
	containers []*container.Container
}

func newTaskChoice(r *container.Resolver, defs container.Definitions, flags *selectorFlags) (*taskChoice, error) {
	c := &taskChoice{resolver: r, nameBy: defs.Find(container.DefContainer), wanted: make(map[int32]bool)}
	tree, err := perfTree()
	if err != nil {
		return nil, err
	}
	c.byCgroup = tree != nil && tree.Unified
	choices, err := flags.choices(defs)
	if err != nil {
		return nil, hint.Wrap(err,
			"write NAME, IDENTITY, DEFINITION:IDENTITY or DEFINITION:any; 'gantry containers' lists what runs")
	}
	for i := range choices {
		tasks, err := choose(r.Table(), &choices[i])
		if err != nil {
			return nil, err
		}
		c.choices = append(c.choices, tasks)
	}
	return c, nil
}

// choose finds out what a selector means now.
func choose(table *container.Table, c *container.Choice) (chosenTasks, error) {
	t := chosenTasks{def: c.Definition, selector: container.Selector{Identity: c.Identity}}
	if !c.ByName() {
		if t.def == nil {
			t.def = c.Identity.Alone()
		}
		return t, nil
	}
	found, err := table.Select(c.Match)
	if errors.Is(err, container.ErrNoMatch) {
		return t, hint.Wrap(err, nearContainers(table, c.Match.String()))
	}
	if err != nil {
		return t, hint.Wrap(err, matchHint(err))
	}
	t.containers = found
	if t.def == nil {
		return t, nil
	}
	for _, one := range found {
		task := one.Task()
		if id, ok := table.Identify(t.def, &task); ok {
			t.identities = append(t.identities, id)
		}
	}
	return t, nil
}

// has: the selector means a task of this place and container.
func (t *chosenTasks) has(table *container.Table, place *container.Task, in *container.Container) bool {
	if t.def == nil {
		return in != nil && slices.Contains(t.containers, in)
	}
	id, ok := table.Identify(t.def, place)
	if !ok {
		return false
	}
	if t.containers != nil {
		return slices.Contains(t.identities, id)
	}
	return t.selector.Matches(&id)
}

// place is what definitions look at.
func (c *taskChoice) place(t *snapshot.Task) container.Task {
	var p container.Task
	for i, link := range t.Namespaces {
		p.Namespaces[i] = link.Ino
	}
	p.Namespaces[container.TimeNS] = t.TimeNS
	if c.byCgroup {
		p.Cgroup = container.CgroupID(t.Cgroup)
		p.CgroupPath = c.resolver.Table().Path(p.Cgroup)
	} else if known, err := c.resolver.Task(int(t.TID)); err == nil { // else it has gone
		p.Cgroup, p.CgroupPath = known.Cgroup, known.CgroupPath
	}
	return p
}

// container is the container that a task is in, nil for the host.
func (c *taskChoice) container(p *container.Task) *container.Container {
	table := c.resolver.Table()
	found := table.ByCgroup(p.Cgroup)
	if found == nil || found.Kind != container.KindContainer {
		found = table.ByNamespaces(p.Namespaces)
	}
	if found == nil || found.Kind != container.KindContainer {
		return nil
	}
	return found
}

// hostName is what the host is called where the name of a container stands.
const hostName = "[host]"

// name is what to call the container that a task is in, "" if this user may not
// know.
func (c *taskChoice) name(p *container.Task) string {
	if found := c.container(p); found != nil {
		return found.Label()
	}
	if id, ok := c.resolver.Table().Identify(c.nameBy, p); ok {
		return c.nameBy.Text(id)
	}
	if c.unknown(p) {
		return ""
	}
	return hostName
}

// unknown: a namespace that would tell is not known, and none is the host's.
func (c *taskChoice) unknown(p *container.Task) bool {
	set, host, missing := c.nameBy.Set(), &c.resolver.Table().Host, false
	for n, ino := range p.Namespaces {
		switch {
		case !set.Has(container.Namespace(n)):
		case ino == 0:
			missing = true
		case ino == host[n]:
			return false
		}
	}
	return missing
}

// want is the choice in the form of package snapshot.
func (c *taskChoice) want() func(*snapshot.Task) bool {
	if len(c.choices) == 0 {
		return nil
	}
	return c.wants
}

// wants: the process of the task is asked for.
func (c *taskChoice) wants(t *snapshot.Task) bool {
	if len(c.choices) == 0 || c.wanted[t.PID] {
		return true
	}
	place := c.place(t)
	in := c.container(&place)
	for i := range c.choices {
		if c.choices[i].has(c.resolver.Table(), &place, in) {
			c.wanted[t.PID] = true
			return true
		}
	}
	return false
}
