// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/gantry-tools/gantry/capture"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/tracens/samples"
)

// namespaceSystems are the trace systems whose events can be recorded beside the kernel's.
var namespaceSystems = []string{"user_events", "marker", "uprobes", "ftrace"}

// namespaceEvent is SYSTEM.NAMESPACE:EVENT, where EVENT may be a pattern.
type namespaceEvent struct{ system, namespace, event string }

func parseNamespaceEvent(text string) (n namespaceEvent, ok bool) {
	group, event, found := strings.Cut(text, ":")
	system, namespace, dot := strings.Cut(group, ".")
	if !found || !dot || event == "" || namespace == "" || !slices.Contains(namespaceSystems, system) {
		return n, false
	}
	return namespaceEvent{system, namespace, event}, true
}

// splitEvents takes those of tracing namespaces out of the events to record.
func splitEvents(specs []string) (kernel []string, own []namespaceEvent) {
	for _, spec := range specs {
		var rest []string
		for part := range strings.SplitSeq(spec, ",") {
			if n, ok := parseNamespaceEvent(strings.TrimSpace(part)); ok {
				own = append(own, n)
			} else {
				rest = append(rest, part)
			}
		}
		if len(rest) > 0 {
			kernel = append(kernel, strings.Join(rest, ","))
		}
	}
	return kernel, own
}

// openSources opens the namespaces of events.
func openSources(dir string, list []namespaceEvent) (open []*samples.Source, err error) {
	var names []string
	for _, n := range list {
		if !slices.Contains(names, n.namespace) {
			names = append(names, n.namespace)
		}
	}
	for _, name := range names {
		s, err := samples.Open(dir, name, func(system, event string) bool {
			return slices.ContainsFunc(list, func(n namespaceEvent) bool {
				matched, err := path.Match(n.event, event)
				return n.namespace == name && n.system == system && err == nil && matched
			})
		})
		if err != nil {
			closeSources(open)
			return nil, sourceError(dir, name, err)
		}
		open = append(open, s)
	}
	return open, nil
}

// sourceError says what to do about a namespace that cannot be recorded.
func sourceError(dir, name string, err error) error {
	text := ""
	switch {
	case errors.Is(err, samples.ErrNoEvents):
		text = "start the program first; 'gantry ns list' lists what is registered"
	case errors.Is(err, os.ErrNotExist):
		text = "mount them with 'gantry ns mount', or name their directory: --ns-dir DIR"
	case errors.Is(err, syscall.EACCES):
		text = "recording a namespace from the host takes root"
	}
	return hint.Wrap(fmt.Errorf("tracing namespace %s at %s: %w", name, dir, err), text)
}

func closeSources(list []*samples.Source) {
	for _, s := range list {
		_ = s.Close() // nothing more is wanted of it
	}
}

// captureSources are sources as a recording takes them.
func captureSources(list []*samples.Source) (all []capture.Source) {
	for _, s := range list {
		all = append(all, s)
	}
	return all
}
