// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/perf"
)

// explainWarnings says on stderr what was odd about a recording.
func explainWarnings(stderr io.Writer, name string, s *analysis.Session) {
	for _, w := range s.Warnings() {
		fmt.Fprintf(stderr, "gantry: %s: %s\n", name, profile.Printable(w))
	}
}

// explainFailures says which binaries have no symbols, at most so many of them
// if most is not 0.
func explainFailures(stderr io.Writer, failures []symbol.Failure, most int) {
	for i, f := range failures {
		if most > 0 && i == most {
			fmt.Fprintf(stderr, "gantry: and %d binaries more without symbols\n", len(failures)-most)
			break
		}
		fmt.Fprintf(stderr, "gantry: no symbols for %s: %v\n", profile.Printable(f.Ref.String()), f.Reason)
	}
}

// mostFailures are named without --verbose.
const mostFailures = 3

// worthNaming keeps the binaries that at least one in a hundred of the samples
// shown have no name for, those of most samples first.
func worthNaming(failures []symbol.Failure, nameless map[string]uint64, samples uint64) []symbol.Failure {
	list := slices.DeleteFunc(slices.Clone(failures), func(f symbol.Failure) bool {
		n := nameless[f.Ref.Path]
		return n == 0 || n*100 < samples
	})
	slices.SortStableFunc(list,
		func(a, b symbol.Failure) int { return cmp.Compare(nameless[b.Ref.Path], nameless[a.Ref.Path]) })
	return list
}

// explainEmpty says that no sample passed the filter, and what there is. The error
// it returns is exit status 1.
func explainEmpty(stderr io.Writer, name, filter string, s *analysis.Session, events *perf.Events) error {
	line := fmt.Sprintf("gantry: %s: no sample matches %s", name, profile.Printable(filter))
	var containers, names []string
	for _, c := range s.Containers.Containers() {
		if c.Kind == container.KindContainer {
			containers = append(containers, c.Label())
		}
	}
	for _, ev := range events.List() {
		if ev.Attr.Type != perf.TypeSoftware || ev.Attr.Config != perf.SWDummy { // which has no samples
			names = append(names, ev.Name)
		}
	}
	line += "; recorded are events " + someOf(names)
	if len(containers) > 0 {
		line += " and containers " + someOf(containers)
	}
	fmt.Fprintln(stderr, line)
	return &exitError{code: 1}
}

// someOf lists the first few names.
func someOf(names []string) string {
	const most = 5
	slices.Sort(names)
	names = slices.Compact(names)
	rest := ""
	if len(names) > most {
		rest = fmt.Sprintf(", ... (%d more)", len(names)-most)
		names = names[:most]
	}
	return profile.Printable(strings.Join(names, ", ")) + rest
}
