// SPDX-License-Identifier: Apache-2.0

package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
)

// Candidate is a container that a definition finds now.
type Candidate struct {
	Identity Identity
	// Name is what to call it, "" if only the identity is known.
	Name string
	// PIDs are its processes, as the host numbers them, in order.
	PIDs []int

	task Task // one of them
}

// Find looks at all processes and lists the containers that they are in under
// the definitions, in the order of those and then by name and identity. After
// Refresh, names are known. With an error, which tells of processes that could
// not be looked at, the list holds what was found.
func (r *Resolver) Find(ctx context.Context, defs Definitions) ([]Candidate, error) {
	pids, err := r.fs.PIDs()
	if err != nil {
		return nil, err
	}
	found := make(map[Identity]*Candidate)
	denied := 0
	for _, pid := range pids {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		task, err := r.Task(pid)
		if err != nil && procfs.Gone(err) {
			continue
		}
		if pid != 1 && errors.Is(err, fs.ErrPermission) {
			denied++ // its cgroup may tell
		}
		for _, id := range r.table.IdentifyAll(defs, &task) {
			if found[id] == nil {
				found[id] = &Candidate{Identity: id}
			}
			found[id].PIDs, found[id].task = append(found[id].PIDs, pid), task
		}
	}
	if denied > 0 {
		err = fmt.Errorf("namespaces of %d of %d processes: %w", denied, len(pids), fs.ErrPermission)
	}
	return r.list(found, defs), err
}

func (r *Resolver) list(found map[Identity]*Candidate, defs Definitions) []Candidate {
	var out []Candidate
	for i := range defs {
		d := &defs[i]
		names := r.table.Names(d)
		start := len(out)
		for id, f := range found {
			if id.Definition == d.Name {
				f.Name = names.Name(id, &f.task)
				slices.Sort(f.PIDs)
				out = append(out, *f)
			}
		}
		slices.SortFunc(out[start:], func(a, b Candidate) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(d.Text(a.Identity), d.Text(b.Identity)))
		})
	}
	return out
}
