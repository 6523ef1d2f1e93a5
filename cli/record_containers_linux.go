// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gantry-tools/gantry/capture"
	"github.com/gantry-tools/gantry/capture/filter"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// setContainers turns --container and --cgroup into a target.
func (f *recordFlags) setContainers(e *env, cmd *cobra.Command, o *capture.Options) error {
	if f.wait && !f.selectors.given() {
		return usageError(cmd, errors.New("--wait is about containers: name one with --container"))
	}
	r, err := container.NewResolver(&container.ResolverOptions{Sockets: f.definitions.sockets})
	if err != nil {
		if f.selectors.given() {
			return hint.Wrap(fmt.Errorf("find containers: %w", err), "is /proc mounted? 'gantry doctor' tells more")
		}
		return nil
	}
	o.Resolver = r
	tree, err := perfTree()
	if err != nil {
		return err
	}
	var warnings []container.Warning
	if f.selectors.given() {
		if warnings = r.Refresh(cmd.Context()); f.verbose {
			warnContainers(e.stderr, warnings)
		}
	}
	choices, err := f.selectors.choices(o.Definitions)
	if errors.Is(err, container.ErrDefinition) {
		err = hint.Wrap(err, "choose one of its identities ('gantry containers --definition NAME' lists them), or "+
			"--define another; see docs/definitions.md")
	}
	if err != nil {
		return blindError(err, warnings)
	}
	for i := range choices {
		if err := f.choose(r, &choices[i]); err != nil {
			return blindError(err, warnings)
		}
	}
	o.Target.Containers = choices
	for _, path := range f.cgroups {
		dir, err := cgroupDir(tree, path)
		if err != nil {
			return err
		}
		addCgroup(o, dir)
	}
	return nil
}

// choose checks one choice. What it means must be there, or be something that may
// come: all of a definition, or anything with --wait.
func (f *recordFlags) choose(r *container.Resolver, c *container.Choice) error {
	if c.ByName() {
		return f.chooseNamed(r, c)
	}
	if anyTask(r, c) {
		return nil
	}
	if id, of := &c.Identity.Namespaces, &r.Table().Host; !c.Any && !f.wait {
		if n := hostsOwn(id, of); n < container.NumNS {
			return hint.Wrap(fmt.Errorf("%q: %s:%d: %w", c.Text, n, id[n], filter.ErrHost),
				"choose an identity that 'gantry containers' lists")
		}
		return hint.Wrap(fmt.Errorf("%q: %w", c.Text, container.ErrNoMatch),
			"'gantry containers' lists what runs; --wait records it once it starts")
	}
	f.notes = append(f.notes,
		fmt.Sprintf("nothing that runs is in %s yet; what starts from now on is recorded", c.Text))
	return nil
}

// hostsOwn finds a namespace of an identity that is the host's, in which no
// container can be; NumNS if there is none.
func hostsOwn(id, host *container.Namespaces) container.Namespace {
	for n, ino := range id {
		if ino != 0 && ino == host[n] {
			return container.Namespace(n)
		}
	}
	return container.NumNS
}

func (f *recordFlags) chooseNamed(r *container.Resolver, c *container.Choice) error {
	t := r.Table()
	found, err := t.Select(c.Match)
	switch {
	case errors.Is(err, container.ErrNoMatch) && f.wait:
		f.notes = append(f.notes,
			fmt.Sprintf("no container is called %s yet; one that starts is recorded",
				container.Printable(c.Match.String())))
		return nil
	case errors.Is(err, container.ErrNoMatch):
		text := nearContainers(t, c.Match.String()) + "; --wait records it once it starts"
		if strings.HasPrefix(c.Text, "/") {
			text = "--cgroup PATH records what is no container's cgroup, with all below it; " + text
		}
		return hint.Wrap(fmt.Errorf("%q: %w", c.Text, container.ErrNoMatch), text)
	case err != nil:
		return hint.Wrap(err, matchHint(err))
	}
	d := c.Definition
	for _, one := range found {
		switch {
		case d == nil || d.Runtime:
			if one.CgroupPath != "" || t.Distinct(one) {
				return nil
			}
		case len(d.Namespaces) == 0:
			if _, ok := d.CgroupOf(one.CgroupPath); ok {
				return nil
			}
		case one.Namespaces.Differ(&t.Host, d.Set()):
			return nil
		}
	}
	if d != nil && !d.Runtime {
		return hint.Wrap(fmt.Errorf("%q is in no container under the definition %s", c.Match.String(), d),
			"leave the definition away to record it by its name")
	}
	return hint.Wrap(fmt.Errorf("container %q has no cgroup and no namespaces of its own", c.Text),
		"record its processes with -p")
}

// anyTask reports whether a process runs that the choice means.
func anyTask(r *container.Resolver, c *container.Choice) bool {
	d := c.Definition
	if d == nil {
		d = c.Identity.Alone()
	}
	sel := container.Selector{Identity: c.Identity}
	pids, err := procfs.FS{}.PIDs()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(pids, func(pid int) bool {
		task, err := r.Task(pid)
		if err != nil && procfs.Gone(err) {
			return false
		}
		id, ok := r.Table().Identify(d, &task)
		return ok && sel.Matches(&id)
	})
}

// blindError: that there is no such container is not known where not all could
// be looked at.
func blindError(err error, warnings []container.Warning) error {
	if !errors.Is(err, container.ErrNoMatch) || !blind(warnings) {
		return err
	}
	return hint.Wrap(fmt.Errorf("%w that this user can see", err), seeContainers)
}

// addCgroup adds a cgroup once: two selectors may mean the same container.
func addCgroup(o *capture.Options, dir string) {
	if !slices.Contains(o.Target.Cgroups, dir) {
		o.Target.Cgroups = append(o.Target.Cgroups, dir)
	}
}

// perfTree is the hierarchy of cgroups that events can be bound to.
func perfTree() (*procfs.CgroupTree, error) {
	trees, err := procfs.FS{}.CgroupTrees()
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	return trees.Perf(), nil
}

// cgroupDir is the directory of a cgroup, given as a path in the hierarchy or
// as the directory itself.
func cgroupDir(tree *procfs.CgroupTree, path string) (string, error) {
	if _, err := sys.CgroupID(path); err == nil && filepath.IsAbs(path) {
		if typ, err := sys.FSTypeOf(path); err == nil && (typ == sys.Cgroup2FS || typ == sys.Cgroup1FS) {
			return path, nil
		}
	}
	if tree == nil {
		return "", hint.Wrap(errors.New("no cgroup hierarchy that events know is mounted"),
			"mount it: mount -t cgroup2 none /sys/fs/cgroup")
	}
	dir, err := tree.Dir("/" + strings.TrimPrefix(path, "/"))
	if err == nil {
		_, err = os.Stat(dir)
	}
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err
		}
		return "", hint.Wrap(fmt.Errorf("cgroup %q: %w", path, err), nearCgroups(tree, path))
	}
	return dir, nil
}

// nearCgroups suggests cgroups whose last component is like that of path.
func nearCgroups(tree *procfs.CgroupTree, path string) string {
	const most = 3
	name := strings.ToLower(filepath.Base(path))
	var near []string
	err := tree.Walk(func(_ uint64, p string) error {
		if base := strings.ToLower(filepath.Base(p)); len(near) < most && p != "/" &&
			(strings.Contains(base, name) || strings.Contains(name, base)) {
			near = append(near, p)
		}
		return nil
	})
	if err != nil || len(near) == 0 {
		return "give its path below " + tree.Point + ", or the directory; 'gantry containers' lists containers"
	}
	return "did you mean " + strings.Join(near, ", ") + "?"
}

// nearContainers suggests containers with a name or id like sel.
func nearContainers(t *container.Table, sel string) string {
	const most = 3
	var near, all []string
	low := strings.ToLower(sel)
	for _, c := range t.Containers() {
		if c.Kind != container.KindContainer {
			continue
		}
		label := c.Label()
		all = append(all, label)
		for _, s := range []string{c.Name, c.Pod, c.ID, c.Image} {
			if s = strings.ToLower(s); s != "" &&
				(strings.Contains(s, low) || strings.Contains(low, s) || misspelt(s, low)) {
				near = append(near, label)
				break
			}
		}
	}
	switch {
	case len(near) > 0:
		return "did you mean " + strings.Join(near[:min(most, len(near))], ", ") + "?"
	case len(all) == 0:
		return "no containers run here; see 'gantry containers'"
	case len(all) <= most:
		return "there are " + strings.Join(all, ", ") + "; see 'gantry containers'"
	}
	return "'gantry containers' lists what runs"
}
