// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/perf/perfdata"
	"github.com/gantry-tools/gantry/view/report"
)

// definitionFlags are --define and --config, which say what a container is.
type definitionFlags struct {
	define []string
	config string
}

func (f *definitionFlags) register(fl *pflag.FlagSet) {
	fl.StringArrayVar(&f.define, "define", nil, "what a container is: `NAME=NS,...` of uts, ipc, mnt, pid, net, cgroup, user, time; and ;cgroup=GLOB")
	fl.StringVar(&f.config, "config", "", "configuration `FILE` (default "+defaultConfig+")")
}

// registerForReading is register for commands that read recordings, which have
// the definitions they were made with: this machine's configuration is not
// asked, so that a report is the same on every machine.
func (f *definitionFlags) registerForReading(fl *pflag.FlagSet) {
	f.register(fl)
	fl.Lookup("config").Usage = "configuration `FILE` with more definitions (default: those of the recording)"
}

// load gives the built-in definitions with those of this machine: of the
// configuration, and of --define, which wins.
func (f *definitionFlags) load(cmd *cobra.Command) (container.Definitions, error) {
	own, err := f.given(cmd, true)
	return container.BuiltIn().With(own), err
}

// given is what the flags name, and, if that is asked for, what the default
// configuration has.
func (f *definitionFlags) given(cmd *cobra.Command, byDefault bool) (container.Definitions, error) {
	conf := new(config)
	if f.config == "" && cmd.Flags().Changed("config") {
		return nil, usageError(cmd, fmt.Errorf("--config is empty"))
	}
	if f.config != "" || byDefault {
		var err error
		if conf, err = readConfig(f.config); err != nil {
			return nil, err
		}
	}
	flags := container.BuiltIn()
	for _, text := range f.define {
		d, err := container.ParseDefinition(text)
		if err == nil {
			err = flags.Add(d)
		}
		if err != nil {
			return nil, usageError(cmd, fmt.Errorf("--define: %w", err))
		}
	}
	defs := conf.definitions.With(flags.Custom())
	if n := len(defs); n > container.MaxDefinitions {
		return nil, usageError(cmd, fmt.Errorf("%d definitions in --define and the configuration: %d are the most", n, container.MaxDefinitions))
	}
	return defs, nil
}

// isMoreSpecific says whether a recording may tell of definitions later: a stream,
// and a file whose recorder was killed.
func isMoreSpecific(r *perfdata.Reader) bool {
	return r.Pipe() || slices.ContainsFunc(r.Warnings(), func(w perfdata.Warning) bool { return w.Kind == perfdata.WarnUnfinished })
}

// selectIdentities moves what of the selectors goes by identity from the names of
// containers in x to x.Identities, and tells the session what it means.
func selectIdentities(x *report.Filter, selectors []string, s *analysis.Session, open bool) error {
	x.Container, x.Identities = nil, nil
	for _, text := range selectors {
		defs := s.Definitions()
		c, err := defs.ParseChoice(text)
		sel, _ := defs.ParseSelector(text)
		switch {
		case err != nil && open && errors.Is(err, container.ErrDefinition):
			x.Container = append(x.Container, text) // or an image with a tag
			late, ok := lateSelector(text)
			if !ok {
				continue
			}
			sel = late
		case err != nil:
			return hint.Wrap(err, "--define adds definitions; see docs/definitions.md")
		case c.ByName() && c.Definition == nil:
			x.Container = append(x.Container, text)
			continue
		case c.ByName():
			x.Identities = append(x.Identities, s.Containers.Selectors(&c)...)
			continue
		}
		if d, bare := sel.Bare(); bare {
			s.Define(d)
			sel.Definition = d.Name
		}
		x.Identities = append(x.Identities, sel)
	}
	return nil
}

// splitContainers splits each value of --container at its commas, but not those
// of an identity: "web,pod:net:1,ipc:2" is web and one identity.
func splitContainers(values []string) ([]string, error) {
	var out []string
	for _, v := range values {
		if v == "" {
			return nil, errors.New("--container is empty")
		}
		parts, err := csv.NewReader(strings.NewReader(v)).Read()
		if err != nil {
			return nil, fmt.Errorf("--container %q: %w", v, err)
		}
		start := len(out)
		for _, p := range parts {
			if last := len(out) - 1; last >= start && continues(out[last], p) {
				out[last] += "," + p
				continue
			}
			out = append(out, p)
		}
	}
	return out, nil
}

// continues reports whether part goes on with the identity that text is, with or
// without a definition.
func continues(text, part string) bool {
	_, err := container.ParseIdentity(part)
	name, rest, _ := strings.Cut(text, ":")
	if err == nil && container.CheckName(name) != nil && container.BuiltIn().Find(name) == nil {
		rest = text
	}
	if err == nil {
		_, err = container.ParseIdentity(rest + "," + part)
	}
	return err == nil
}

// lateSelector reads a selector of a definition that is not known yet.
func lateSelector(text string) (container.Selector, bool) {
	name, _, _ := strings.Cut(text, ":")
	if container.CheckName(name) != nil {
		return container.Selector{}, false
	}
	return container.Definitions{{Name: name}}.ParseSelector(text)
}
