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
	output              string
	quiet, noTrunc, all bool
	definitions         definitionFlags
	under               []string // definitions

	defs container.Definitions // all that there are
}

func newContainersCmd(e *env) *cobra.Command {
	f := new(containersFlags)
	cmd := &cobra.Command{
		Use:   "containers [flags] [SELECTOR]...",
		Short: "list the containers that run now",
		Long: `List the containers that run now, with the names that their runtimes give them,
and the definitions of what a container is, with how many each one finds.
With --definition, list the containers under that definition: a name where one
is known, and the identity, which is their namespaces.

A selector is a name, an id or the begin of one, a pod (POD, NAMESPACE/POD or
its uid), POD/NAME, an image, a cgroup path, an identity, DEFINITION:IDENTITY
or DEFINITION:any. The same selectors are taken by --container of other
commands.`,
		Example: `  gantry containers                   all of them, and the definitions
  gantry containers -o json web       one, with all that is known
  gantry containers --definition pod  the pods
  gantry containers --define vm=uts,pid vm:any
  gantry record --container $(gantry containers -q nginx) -a`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(e, cmd, args) },
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.output, "output", "o", "table", "table, wide (not cut to the terminal), json or name")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "print ids only")
	fl.BoolVar(&f.noTrunc, "no-trunc", false, "do not cut anything, not even ids")
	fl.BoolVarP(&f.all, "all", "a", false, "also the systemd units of the host, and containers without a process")
	fl.StringSliceVar(&f.under, "definition", nil, "list what is a container under these definitions: `NAME`")
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

func (f *containersFlags) run(e *env, cmd *cobra.Command, args []string) error {
	if !slices.Contains([]string{"table", "wide", "json", "name"}, f.output) {
		return usageError(cmd, fmt.Errorf("unknown output %q: not table, wide, json or name", f.output))
	}
	var err error
	if f.defs, err = f.definitions.load(cmd); err != nil {
		return err
	}
	by, err := f.identities(args)
	if err != nil {
		return usageError(cmd, err)
	}
	r, err := container.NewResolver(nil)
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
	list, err := f.choose(r, args)
	if len(list) > 0 {
		if err := f.write(e.stdout, list); err != nil {
			return err
		}
		warnings, err = f.summary(e, cmd, r, args, warnings, true)
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
	if _, err := f.summary(e, cmd, r, args, nil, false); err != nil {
		return err
	}
	if blind(warnings) {
		return hint.Wrap(errors.New("no containers that this user can see"), seeContainers)
	}
	fmt.Fprintln(e.stderr, "gantry: no containers run here")
	return nil
}

// seeContainers is the cure for blind.
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
func (f *containersFlags) choose(r *container.Resolver, args []string) ([]containerRow, error) {
	found := r.Table().Containers()
	if len(args) > 0 {
		found = nil
	}
	for _, sel := range args {
		match, err := r.Table().Match(sel)
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
		if f.all || len(args) > 0 || c.Kind == container.KindContainer && !idle {
			list = append(list, containerRow{c, status[c].State, status[c].Processes, f.identitiesOf(r.Table(), c)})
		}
	}
	slices.SortStableFunc(list, func(a, b containerRow) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.PodNamespace, b.PodNamespace), cmp.Compare(a.Pod, b.Pod),
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
	case f.output == "json":
		return f.writeJSON(w, list)
	case f.quiet:
		return writeEach(w, list, f.id)
	case f.output == "name":
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
		{title: "NAME", cut: cutEnd},
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
		for i, s := range []string{name, id, c.Runtime, string(l.State), c.Pod, c.PodNamespace, c.Image, strconv.Itoa(l.Processes), c.CgroupPath} {
			all[i].cells = append(all[i].cells, container.Printable(s))
		}
	}
	return slices.DeleteFunc(all, func(c column) bool { return c.title != "NAME" && c.empty() })
}
