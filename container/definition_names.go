// SPDX-License-Identifier: Apache-2.0

package container

// Names finds what the containers under a definition are called. It follows
// the table as that grows, not where known containers change.
type Names struct {
	table *Table
	def   Definition
	seen  int // containers of the table
	named map[Identity]naming
}

// naming is what is known of the containers with one identity.
type naming struct {
	c      *Container // the first one
	others bool       // there is one with another label
	pod    bool       // all are of c's pod
}

// Names is an empty index of t under d. t must not be replaced while it is in
// use.
func (t *Table) Names(d *Definition) *Names {
	return &Names{table: t, def: *d, named: make(map[Identity]naming)}
}

// Name is what to call the container with that identity, cleaned for printing:
// the label of the one that is known, or the pod if there are several of one
// pod. It is "" if that is not known.
//
// Under the definition "pod" it is the pod's name in either case. A container
// that is deeper in the tree than the cgroup which makes the identity gives no
// name: there may be more than it.
func (x *Names) Name(id Identity) string {
	x.update()
	n, ok := x.named[id]
	switch {
	case !ok:
		return ""
	case n.pod && (n.others || x.def.Name == DefPod):
		return Printable(n.c.Pod)
	case n.others || len(x.def.Cgroups) > 0 && n.c.CgroupPath != id.CgroupPath:
		return ""
	}
	return n.c.Label()
}

func (x *Names) update() {
	for _, c := range x.table.list[x.seen:] {
		task := c.Task()
		id, ok := x.table.Identify(&x.def, &task)
		if !ok || c.Name == "" && c.ID == "" {
			continue
		}
		n, ok := x.named[id]
		if !ok {
			x.named[id] = naming{c: c, pod: c.Pod != ""}
			continue
		}
		n.others = n.others || n.c.Label() != c.Label()
		n.pod = n.pod && c.Pod == n.c.Pod && c.PodNamespace == n.c.PodNamespace
		x.named[id] = n
	}
	x.seen = len(x.table.list)
}
