// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
)

// containersFlags are the flags of gantry containers.
type containersFlags struct {
	formatFlags
	quiet, noTrunc, all bool
	definitions         definitionFlags
	selectors           selectorFlags
	showDefinitions     bool
	under               []string // definitions

	defs container.Definitions // all that there are
}

func newContainersCmd(e *env) *cobra.Command {
	f := new(containersFlags)
	cmd := &cobra.Command{
		Use:   "containers [flags] [SELECTOR]...",
		Short: "list the containers that run now",
		Long: `List the containers that run now, with the names that their runtimes give them.
With --definitions, list the definitions of what a container is, and how many
each one finds. With --definition, list what is a container under that
definition: a name where one is known, and the identity, its namespaces.

A selector is a name, an id or the begin of one, a pod (POD, NAMESPACE/POD or
its uid), POD/NAME, an image, a cgroup path, an identity, DEFINITION:IDENTITY
or DEFINITION:any. The same selectors are taken by --container of other
commands.`,
		Example: `  gantry containers                   all of them
  gantry containers --definitions     what a container is here
  gantry containers --format json web one, with all that is known
  gantry containers -l app=web        those with this label
  gantry containers --definition pod  the pods
  gantry containers --define vm=uts,pid vm:any
  gantry record --container $(gantry containers -q nginx) -a`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.formatFlags.run(e, cmd, func(e *env) error { return f.list(e, cmd, args) })
		},
	}
	fl := cmd.Flags()
	f.formatFlags.register(cmd, "table", "wide", "json", "name")
	f.selectors.registerPods(fl)
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "print ids only")
	fl.BoolVar(&f.noTrunc, "no-trunc", false, "do not cut anything, not even ids")
	fl.BoolVarP(&f.all, "all", "a", false, "also the systemd units of the host, and containers without a process")
	fl.StringSliceVar(&f.under, "definition", nil, "list what is a container under these definitions: `NAME`")
	fl.BoolVar(&f.showDefinitions, "definitions", false,
		"list the definitions, with how many containers each one finds")
	f.definitions.register(fl)
	complete(cmd, "definition", true, container.BuiltIn().Names())
	return cmd
}

// containerRow is a container as it is listed.
type containerRow struct {
	*container.Container
	State     container.State `json:"state"`
	Processes int             `json:"processes"`
	// Identities are those of the first process, by definition.
	Identities map[string]string `json:"identities,omitempty"`
}

func (f *containersFlags) list(e *env, cmd *cobra.Command, args []string) error {
	var err error
	if f.defs, err = f.definitions.load(cmd); err != nil {
		return err
	}
	f.selectors.containers = args
	if err := f.selectors.parse(); err != nil {
		return usageError(cmd, err)
	}
	choices, err := f.selectors.choices(f.defs)
	if err != nil {
		return usageError(cmd, err)
	}
	by, err := f.identities(choices)
	if err != nil {
		return usageError(cmd, err)
	}
	r, err := container.NewResolver(&container.ResolverOptions{Sockets: f.definitions.sockets})
	if err != nil {
		return hint.Wrap(fmt.Errorf("find containers: %w", err), "is /proc mounted? 'gantry doctor' tells more")
	}
	warnings := r.Refresh(cmd.Context())
	if err := cmd.Context().Err(); err != nil {
		return fmt.Errorf("find containers: %w", err)
	}
	if by != nil {
		return f.runFound(e, cmd, r, by, warnings)
	}
	if f.showDefinitions {
		warnings, err = f.summary(e, cmd, r, warnings)
		warnContainers(e.stderr, warnings)
		return err
	}
	list, err := f.choose(r, choices)
	if len(list) > 0 {
		err := f.write(e.stdout, list)
		warnContainers(e.stderr, warnings)
		return err
	}
	listWarnings(e.stderr, warnings)
	if err != nil {
		return blindError(err, warnings)
	}
	if err := f.write(e.stdout, list); err != nil {
		return err
	}
	if blind(warnings) {
		return hint.Wrap(errors.New("no containers that this user can see"), seeContainers)
	}
	fmt.Fprintln(e.stderr, "gantry: no containers run here")
	return nil
}

// seeContainers is the hint for blind.
const seeContainers = "run as root to see all containers and names"

// blind: something was closed to this user, so what was not found may be there.
func blind(warnings []container.Warning) bool {
	return slices.ContainsFunc(warnings, func(w container.Warning) bool { return errors.Is(w, fs.ErrPermission) })
}

// warnContainers says what could not be read, and once who could.
func warnContainers(stderr io.Writer, warnings []container.Warning) {
	listWarnings(stderr, warnings)
	if blind(warnings) {
		fmt.Fprintln(stderr, "hint: "+seeContainers)
	}
}

func listWarnings(stderr io.Writer, warnings []container.Warning) {
	for _, w := range warnings {
		fmt.Fprintf(stderr, "gantry: %v\n", w)
	}
}

// choose is what the arguments select of what is to be listed, sorted.
func (f *containersFlags) choose(r *container.Resolver, choices []container.Choice) ([]containerRow, error) {
	found := r.Table().Containers()
	if len(choices) > 0 {
		found = nil
	}
	for i := range choices {
		match, err := r.Table().Select(choices[i].Match)
		if err != nil {
			return nil, hint.Wrap(err, matchHint(err))
		}
		for _, c := range match {
			if !slices.Contains(found, c) {
				found = append(found, c)
			}
		}
	}
	status := r.Status()
	var list []containerRow
	for _, c := range found {
		idle := status[c].State == container.StateExited
		if f.all || len(choices) > 0 || c.Kind == container.KindContainer && !idle {
			list = append(list, containerRow{c, status[c].State, status[c].Processes, f.identitiesOf(r.Table(), c)})
		}
	}
	slices.SortStableFunc(list, func(a, b containerRow) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.PodNamespace, b.PodNamespace),
			cmp.Compare(a.Pod, b.Pod),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}

func matchHint(err error) string {
	if errors.Is(err, container.ErrAmbiguous) {
		return "give more digits"
	}
	return "'gantry containers' lists what runs"
}

func (f *containersFlags) write(w io.Writer, list []containerRow) error {
	switch {
	case f.format == "json":
		return f.writeJSON(w, list)
	case f.quiet:
		return writeEach(w, list, f.id)
	case f.format == "name":
		return writeEach(w, list, (*container.Container).Label)
	}
	if len(list) == 0 {
		return nil
	}
	return writeColumns(w, f.columns(list), f.width(w))
}

// id is what -q prints.
func (f *containersFlags) id(c *container.Container) string {
	if f.noTrunc {
		return cmp.Or(c.ID, c.Label())
	}
	return cmp.Or(c.ShortID(), c.Label())
}

// writeJSON writes all that is known, or with -q a list of whole ids.
func (f *containersFlags) writeJSON(w io.Writer, list []containerRow) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if !f.quiet {
		return enc.Encode(append([]containerRow{}, list...))
	}
	ids := []string{}
	for _, l := range list {
		ids = append(ids, cmp.Or(l.ID, l.Label()))
	}
	return enc.Encode(ids)
}

func writeEach(w io.Writer, list []containerRow, text func(*container.Container) string) error {
	for _, c := range list {
		if _, err := fmt.Fprintln(w, container.Printable(text(c.Container))); err != nil {
			return err
		}
	}
	return nil
}

// columns are the columns of the table, without those that say nothing.
func (f *containersFlags) columns(list []containerRow) []column {
	all := []column{
		{title: "NAME", cut: cutEnd, keep: nameWidth},
		{title: "ID", cut: cutEnd, keep: 12},
		{title: "RUNTIME"},
		{title: "STATE"},
		{title: "POD", cut: cutEnd},
		{title: "NAMESPACE", cut: cutEnd},
		{title: "IMAGE", cut: cutBegin},
		{title: "PIDS", right: true},
		{title: "CGROUP", cut: cutBegin},
	}
	for _, l := range list {
		c := l.Container
		id := c.ShortID()
		if f.noTrunc {
			id = c.ID
		}
		name := c.Name
		if c.ID == "" {
			name = cmp.Or(name, c.Label())
		}
		for i, s := range []string{name, id, c.Runtime, string(l.State), c.Pod, c.PodNamespace, c.Image,
			strconv.Itoa(l.Processes), c.CgroupPath} {
			all[i].cells = append(all[i].cells, container.Printable(s))
		}
	}
	return slices.DeleteFunc(all, func(c column) bool {
		return c.title != "NAME" && c.empty() || c.title == "CGROUP" && f.format == "table" && !f.noTrunc
	})
}

// nameWidth is how much of a name is not cut for other columns.
const nameWidth = 32
