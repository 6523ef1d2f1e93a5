// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
)

// byIdentity is a listing of containers under definitions.
type byIdentity struct {
	defs      container.Definitions
	selectors []container.Selector
	names     []container.Matcher // other selectors
}

// identities is what to list by identity: what --definition or one of the
// selectors asks for; nil if neither does.
func (f *containersFlags) identities(choices []container.Choice) (*byIdentity, error) {
	var by byIdentity
	names := slices.Clone(f.under)
	for _, c := range choices {
		sel, ok := f.defs.ParseSelector(c.Text)
		switch {
		case !ok || c.ByName():
			if by.names = append(by.names, c.Match); c.Definition != nil {
				names = append(names, c.Definition.Name)
			}
			continue
		case sel.Definition != "":
			names = append(names, sel.Definition)
		case len(f.under) == 0:
			names = append(names, f.defs.Names()...)
		}
		by.selectors = append(by.selectors, sel)
	}
	for _, name := range names {
		d := f.defs.Find(name)
		if d == nil {
			return nil, fmt.Errorf("no definition is called %q: there are %s", name, strings.Join(f.defs.Names(), ", "))
		}
		if by.defs.Find(name) == nil {
			by.defs = append(by.defs, *d)
		}
	}
	if by.defs == nil {
		return nil, nil
	}
	return &by, nil
}

// runFound lists containers by identity.
func (f *containersFlags) runFound(e *env, cmd *cobra.Command, r *container.Resolver, by *byIdentity,
	warnings []container.Warning) error {
	found, warnings, err := findUnder(cmd.Context(), r, by.defs, warnings)
	if err != nil {
		return err
	}
	if found, err = by.choose(r.Table(), found); err != nil {
		listWarnings(e.stderr, warnings)
		return blindError(err, warnings)
	}
	if err := f.writeFound(e.stdout, by.defs, found); err != nil {
		return err
	}
	if len(found) > 0 {
		warnContainers(e.stderr, warnings)
		return nil
	}
	listWarnings(e.stderr, warnings)
	if blind(warnings) {
		return hint.Wrap(errors.New("no containers that this user can see"), seeContainers)
	}
	fmt.Fprintf(e.stderr, "gantry: no containers under %s run here\n", strings.Join(by.defs.Names(), ", "))
	return nil
}

// findUnder is Find. What could not be read is a warning, told once.
func findUnder(ctx context.Context, r *container.Resolver, defs container.Definitions,
	warnings []container.Warning) ([]container.Candidate, []container.Warning, error) {
	found, err := r.Find(ctx, defs)
	if ctx.Err() != nil {
		return nil, nil, fmt.Errorf("find containers: %w", ctx.Err())
	}
	const where = "processes"
	if err != nil && !slices.ContainsFunc(warnings, func(w container.Warning) bool { return w.Where == where }) {
		warnings = append(slices.Clone(warnings), container.Warning{Where: where, Err: err})
	}
	return found, warnings, nil
}

// choose keeps what one of the selectors means.
func (by *byIdentity) choose(t *container.Table, found []container.Candidate) ([]container.Candidate, error) {
	if len(by.selectors)+len(by.names) == 0 {
		return found, nil
	}
	keep := make([]bool, len(found))
	for i := range found {
		keep[i] = slices.ContainsFunc(by.selectors,
			func(s container.Selector) bool { return s.Matches(&found[i].Identity) })
	}
	for _, name := range by.names {
		if err := by.chooseName(t, found, keep, name); err != nil {
			return nil, err
		}
	}
	var out []container.Candidate
	for i, k := range keep {
		if k {
			out = append(out, found[i])
		}
	}
	return out, nil
}

// chooseName marks what has the name, or has a container in it that the name
// selects: a pod by one of its containers.
func (by *byIdentity) chooseName(t *container.Table, found []container.Candidate, keep []bool,
	m container.Matcher) error {
	list, err := t.Select(m)
	ids := make(map[container.Identity]bool)
	for _, c := range list {
		task := c.Task()
		for _, id := range t.IdentifyAll(by.defs, &task) {
			ids[id] = true
		}
	}
	any := false
	for i := range found {
		if f := &found[i]; slices.Contains(m.Names, f.Name) || ids[f.Identity] {
			keep[i], any = true, true
		}
	}
	switch {
	case any:
		return nil
	case err == nil:
		err = fmt.Errorf("%q: %w under %s", m.String(), container.ErrNoMatch, strings.Join(by.defs.Names(), ", "))
	}
	return hint.Wrap(err, matchHint(err))
}

// definitionJSON is a container under a definition.
type definitionJSON struct {
	Definition string               `json:"definition"`
	Identity   string               `json:"identity"`
	Name       string               `json:"name,omitempty"`
	Namespaces container.Namespaces `json:"namespaces,omitzero"`
	CgroupID   container.CgroupID   `json:"cgroup,omitempty"`
	CgroupPath string               `json:"cgroup_path,omitempty"`
	Processes  int                  `json:"processes"`
	PIDs       []int                `json:"pids"`
}

func (f *containersFlags) writeFound(w io.Writer, defs container.Definitions, found []container.Candidate) error {
	text := func(x *container.Candidate) string { return defs.Find(x.Identity.Definition).Text(x.Identity) }
	switch {
	case f.format == "json":
		list := []definitionJSON{}
		for _, x := range found {
			list = append(list, definitionJSON{x.Identity.Definition, text(&x), x.Name, x.Identity.Namespaces,
				x.Identity.Cgroup, x.Identity.CgroupPath,
				len(x.PIDs), x.PIDs})
		}
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(list)
	case f.quiet, f.format == "name":
		for _, x := range found {
			s := text(&x)
			if !f.quiet {
				s = cmp.Or(x.Name, s)
			}
			if _, err := fmt.Fprintln(w, container.Printable(s)); err != nil {
				return err
			}
		}
		return nil
	case len(found) == 0:
		return nil
	}
	cols := []column{{title: "DEFINITION"}, {title: "NAME", cut: cutEnd}, {title: "PIDS", right: true},
		{title: "IDENTITY", cut: cutEnd, keep: 32}}
	for _, x := range found {
		for i, s := range []string{x.Identity.Definition, x.Name, strconv.Itoa(len(x.PIDs)), text(&x)} {
			cols[i].cells = append(cols[i].cells, container.Printable(s))
		}
	}
	return writeColumns(w, cols, f.width(w))
}

// width is that of a table, 0 for one that is not cut.
func (f *containersFlags) width(w io.Writer) int {
	if f.format != "table" || f.noTrunc {
		return 0
	}
	return tableWidth(w)
}

// identitiesOf are those of a container's first process.
func (f *containersFlags) identitiesOf(t *container.Table, c *container.Container) map[string]string {
	out := make(map[string]string)
	task := c.Task()
	for _, id := range t.IdentifyAll(f.defs, &task) {
		out[id.Definition] = f.defs.Find(id.Definition).Text(id)
	}
	return out
}

// summary lists the definitions and how many containers each one finds. It adds to
// the warnings what it could not read.
func (f *containersFlags) summary(e *env, cmd *cobra.Command, r *container.Resolver,
	warnings []container.Warning) ([]container.Warning, error) {
	found, warnings, err := findUnder(cmd.Context(), r, f.defs, warnings)
	if err != nil {
		return nil, err
	}
	count := make(map[string]int)
	for _, x := range found {
		count[x.Identity.Definition]++
	}
	cols := []column{{title: "DEFINITION"}, {title: "CONTAINERS", right: true}, {title: "RULE", cut: cutEnd}}
	for i := range f.defs {
		d := &f.defs[i]
		rule := d.Rule()
		if d.Runtime {
			rule = "a runtime's cgroup, or " + rule
		}
		for i, s := range []string{d.Name, strconv.Itoa(count[d.Name]), rule} {
			cols[i].cells = append(cols[i].cells, container.Printable(s))
		}
	}
	return warnings, writeColumns(e.stdout, cols, f.width(e.stdout))
}
