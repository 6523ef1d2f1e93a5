// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/config"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/perf/perfdata"
	"github.com/gantry-tools/gantry/view/report"
)

// definitionFlags are --define and --config, which say what a container is.
type definitionFlags struct {
	define []string
	config string

	sockets []container.Socket // of the configuration, once it was read
}

func (f *definitionFlags) register(fl *pflag.FlagSet) {
	fl.StringArrayVar(&f.define, "define", nil,
		"what a container is: `NAME=NS,...` of uts, ipc, mnt, pid, net, cgroup, user, time; and ;cgroup=GLOB")
	fl.StringVar(&f.config, "config", "", "configuration `FILE` (default "+config.DefaultFile+")")
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
	conf := new(config.Config)
	if f.config == "" && cmd.Flags().Changed("config") {
		return nil, usageError(cmd, fmt.Errorf("--config is empty"))
	}
	if f.config != "" || byDefault {
		var err error
		if conf, err = config.Read(f.config); err != nil {
			return nil, err
		}
	}
	f.sockets = conf.Sockets
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
	defs := conf.Definitions.With(flags.Custom())
	if n := len(defs); n > container.MaxDefinitions {
		return nil, usageError(cmd,
			fmt.Errorf("%d definitions in --define and the configuration: %d are the most", n,
				container.MaxDefinitions))
	}
	return defs, nil
}

// isMoreSpecific reports whether a recording may tell of definitions later: a stream,
// and a file whose recorder was killed.
func isMoreSpecific(r *perfdata.Reader) bool {
	return r.Pipe() || slices.ContainsFunc(r.Warnings(),
		func(w perfdata.Warning) bool { return w.Kind == perfdata.WarnUnfinished })
}

// selectIdentities gives the filter what the flags choose: names, and identities,
// of which it tells the session what they mean.
func selectIdentities(x *report.Filter, flags *selectorFlags, s *analysis.Session, open bool) error {
	x.Match, x.Identities, x.Known = flags.match, nil, report.NewContainers(s.Containers.Containers())
	for _, text := range flags.names {
		defs := s.Definitions()
		c, err := defs.ParseChoice(text)
		sel, _ := defs.ParseSelector(text)
		switch {
		case err != nil && open && errors.Is(err, container.ErrDefinition):
			x.Match.Names = append(x.Match.Names, text) // or an image with a tag
			late, ok := lateSelector(text)
			if !ok {
				continue
			}
			sel = late
		case err != nil:
			return hint.Wrap(err, "--define adds definitions; see docs/definitions.md")
		case c.ByName() && c.Definition == nil:
			x.Match.Names = append(x.Match.Names, text)
			continue
		case c.ByName():
			x.Identities = append(x.Identities, s.Containers.Selectors(&c)...)
			continue
		}
		if !flags.match.IsEmpty() {
			return fmt.Errorf("%q is an identity, which has no %s: leave one of them out", text, flags.match.String())
		}
		if d, bare := sel.Bare(); bare {
			s.Define(d)
			sel.Definition = d.Name
		}
		x.Identities = append(x.Identities, sel)
	}
	return nil
}

// lateSelector reads a selector of a definition that is not known yet.
func lateSelector(text string) (container.Selector, bool) {
	name, _, _ := strings.Cut(text, ":")
	if container.CheckName(name) != nil {
		return container.Selector{}, false
	}
	return container.Definitions{{Name: name}}.ParseSelector(text)
}
