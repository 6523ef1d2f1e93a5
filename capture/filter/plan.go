// SPDX-License-Identifier: Apache-2.0

//go:build linux

package filter

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
	kernel "github.com/gantry-tools/gantry/internal/linux/bpf/filter"
)

// Errors of NewPlan.
var (
	// ErrTooMany: more different rules than the kernel's filter has room for.
	ErrTooMany      = errors.New("too many different selectors")
	errCgroupNumber = errors.New("a container cannot be chosen by the number of its cgroup")
	// ErrHost: the identity is that of no container.
	ErrHost = errors.New("the namespace is the host's")
)

// Plan is what choices mean, as far as that does not change while recording.
type Plan struct {
	choices []container.Choice
	host    container.Namespaces
	masks   []mask
	// conds are the conditions on the cgroup of kernel.FirstRule and so on.
	conds []cond
	// anyGlob are definitions of patterns alone, of which each container is
	// chosen, anyRuntime says that each cgroup of a runtime is.
	anyGlob    []*container.Definition
	anyRuntime bool
	// cgroups are chosen with all below them.
	cgroups []string
	// byName are the choices that names decide.
	byName []named
	// free is the rule that a container of a runtime's cgroup does not pass.
	free kernel.Rules
}

// mask is a set of namespaces that must differ from the host's.
type mask struct {
	kernel.Mask
	set    container.NamespaceSet
	listed []identityEntry
}

// identityEntry is an identity, or the part of one, that satisfies rules.
type identityEntry struct {
	ns    container.Namespaces // 0: whatever it is
	rules kernel.Rules
}

// named is a choice by name: the identities of those containers under the mask
// satisfy the rules.
type named struct {
	match container.Matcher
	mask  int // -1: none
	rules kernel.Rules
	// own: the cgroup of the container is chosen, with all below it; under a
	// definition of patterns alone that is the cgroup which matches.
	own  bool
	glob *container.Definition
}

// cond is what the cgroup of a task must be.
type cond struct {
	free bool                  // in no container of a runtime
	glob *container.Definition // one that a pattern matches
	path string                // this one, or below it; with glob: the one that matches
}

// NewPlan says what the choices mean. host is the host's namespaces.
func NewPlan(choices []container.Choice, host container.Namespaces) (*Plan, error) {
	p := &Plan{choices: slices.Clone(choices), host: host}
	for i := range p.choices {
		if err := p.add(&p.choices[i]); err != nil {
			return nil, fmt.Errorf("%q: %w", p.choices[i].Text, err)
		}
	}
	return p, nil
}

// AddCgroup chooses a cgroup by its path, with all below it.
func (p *Plan) AddCgroup(path string) { p.cgroups = append(p.cgroups, path) }

// Texts are the selectors as they were given, and the cgroups.
func (p *Plan) Texts() []string {
	var list []string
	for i := range p.choices {
		list = append(list, p.choices[i].Text)
	}
	return append(list, p.cgroups...)
}

func (p *Plan) add(c *container.Choice) error {
	d := c.Definition
	switch {
	case c.Identity.Cgroup != 0:
		return hint.Wrap(errCgroupNumber, "write its path: cgroup:/path")
	case c.Any:
		return p.all(d)
	case c.ByName() && (d == nil || d.Runtime):
		return p.name(c.Match)
	case c.ByName():
		return p.nameUnder(d, c.Match)
	case d != nil && d.Runtime:
		return p.runtimeIdentity(&c.Identity)
	}
	return p.identity(d, &c.Identity)
}

// all chooses all containers of a definition.
func (p *Plan) all(d *container.Definition) error {
	if len(d.Namespaces) == 0 {
		p.anyGlob = append(p.anyGlob, d)
		return nil
	}
	rules := kernel.ByNamespaces
	if len(d.Cgroups) > 0 {
		var err error
		if rules, err = p.rule(cond{glob: d}); err != nil {
			return err
		}
	}
	p.anyRuntime = p.anyRuntime || d.Runtime
	m, err := p.mask(d.Set())
	if err == nil {
		p.masks[m].Any |= rules
	}
	return err
}

// name chooses containers by what they are called: their cgroups, and tasks in
// their namespaces whose cgroup is no other container's.
func (p *Plan) name(match container.Matcher) error {
	d := container.Default()
	free, err := p.rule(cond{free: true})
	if err != nil {
		return err
	}
	m, err := p.mask(d.Set())
	if err != nil {
		return err
	}
	p.free = free
	p.masks[m].Open |= free
	p.byName = append(p.byName, named{match: match, mask: m, rules: free, own: true})
	return nil
}

// nameUnder chooses what is in one container with those of a name, under another
// definition.
func (p *Plan) nameUnder(d *container.Definition, match container.Matcher) error {
	if len(d.Namespaces) == 0 {
		p.byName = append(p.byName, named{match: match, mask: -1, own: true, glob: d})
		return nil
	}
	rules := kernel.ByNamespaces
	var err error
	if len(d.Cgroups) > 0 {
		if rules, err = p.rule(cond{glob: d}); err != nil {
			return err
		}
	}
	m, err := p.mask(d.Set())
	if err != nil {
		return err
	}
	p.masks[m].Open |= rules
	p.byName = append(p.byName, named{match: match, mask: m, rules: rules})
	return nil
}

// runtimeIdentity chooses an identity of the built-in definition, which is a
// cgroup or namespaces.
func (p *Plan) runtimeIdentity(id *container.Identity) error {
	if id.CgroupPath != "" {
		p.cgroups = append(p.cgroups, id.CgroupPath)
		return nil
	}
	free, err := p.rule(cond{free: true})
	if err != nil {
		return err
	}
	p.free = free
	d := container.Default()
	return p.list(d.Set(), id.Namespaces, free)
}

// identity chooses an identity; without a definition it is one of just those
// namespaces.
func (p *Plan) identity(d *container.Definition, id *container.Identity) error {
	c := cond{path: id.CgroupPath}
	set := container.NamespaceSet(0)
	for n, ino := range id.Namespaces {
		if ino != 0 {
			set |= container.NamespacesOf(container.Namespace(n))
		}
	}
	if d != nil {
		set = d.Set()
		if len(d.Cgroups) > 0 {
			c.glob = d
		}
	}
	rules := kernel.ByNamespaces
	if c != (cond{}) {
		var err error
		if rules, err = p.rule(c); err != nil {
			return err
		}
	}
	return p.list(set, id.Namespaces, rules)
}

// list makes an identity of a set satisfy rules. ns may be a part of it.
func (p *Plan) list(set container.NamespaceSet, ns container.Namespaces, rules kernel.Rules) error {
	whole := true
	for n := range container.NumNS {
		switch {
		case !set.Has(n):
		case ns[n] == 0:
			whole = false
		case ns[n] == p.host[n]:
			return hint.Wrap(fmt.Errorf("%s:%d: %w", n, ns[n], ErrHost),
				"choose an identity that 'gantry containers' lists")
		}
	}
	m, err := p.mask(set)
	if err != nil {
		return err
	}
	if ns == (container.Namespaces{}) {
		p.masks[m].Any |= rules
		return nil
	}
	p.masks[m].listed = append(p.masks[m].listed, identityEntry{ns, rules})
	p.masks[m].ByIdentity = true
	if !whole {
		p.masks[m].Open |= rules
	}
	return nil
}

// mask finds or makes the mask of a set. The empty one passes every task.
func (p *Plan) mask(set container.NamespaceSet) (int, error) {
	i := slices.IndexFunc(p.masks, func(m mask) bool { return m.set == set })
	if i >= 0 {
		return i, nil
	}
	if len(p.masks) == kernel.MaxMasks {
		return 0, hint.Wrap(fmt.Errorf("%w: %d sets of namespaces", ErrTooMany, len(p.masks)),
			"choose fewer, or one definition with :any")
	}
	p.masks = append(p.masks, mask{Mask: kernel.Mask{Set: uint32(set)}, set: set})
	return len(p.masks) - 1, nil
}

// rule finds or makes the rule with a condition.
func (p *Plan) rule(c cond) (kernel.Rules, error) {
	i := slices.Index(p.conds, c)
	if i < 0 {
		i = len(p.conds)
		p.conds = append(p.conds, c)
	}
	r := kernel.FirstRule << i
	if r == 0 {
		return 0, hint.Wrap(fmt.Errorf("%w: %d conditions on cgroups", ErrTooMany, i),
			"choose fewer, or one definition with :any")
	}
	return r, nil
}

// byCgroup: a cgroup alone can decide.
func (p *Plan) byCgroup() bool {
	return p.anyRuntime || len(p.anyGlob)+len(p.cgroups) > 0 ||
		slices.ContainsFunc(p.byName, func(n named) bool { return n.own })
}

// cgroupRules are the rules that a cgroup may satisfy.
func (p *Plan) cgroupRules() kernel.Rules {
	rules := kernel.FirstRule<<len(p.conds) - kernel.FirstRule
	if p.byCgroup() {
		rules |= kernel.ByCgroup
	}
	return rules
}

// late: the choice depends on the names of containers, or on which cgroups are
// containers, and both may be known late.
func (p *Plan) late() bool { return len(p.byName) > 0 || p.anyRuntime || p.free != 0 }

// NeedsNamespaces reports whether the namespaces of tasks decide.
func (p *Plan) NeedsNamespaces() bool { return len(p.masks) > 0 }

// needsTime: the time namespace counts, which is in no record.
func (p *Plan) needsTime() bool {
	return slices.ContainsFunc(p.masks, func(m mask) bool { return m.set.Has(container.TimeNS) })
}

// below reports whether a path is that of a cgroup, or of one below it.
func below(path, cgroup string) bool {
	cgroup = strings.TrimRight(cgroup, "/")
	return path == cgroup || strings.HasPrefix(path, cgroup+"/") || cgroup == ""
}
