// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/gantry-tools/gantry/tracens"
)

// System is the trace system of user events: each namespace has a Set.
type System struct {
	// Heirs is NewSet's.
	Heirs func(owners map[uint64]bool) []Heir
}

// SystemName is the first part of the events' names, user_events.NAMESPACE:EVENT.
const SystemName = "user_events"

var _ tracens.System = (*System)(nil)

// Name implements tracens.System.
func (*System) Name() string { return SystemName }

// Of is the set of a namespace.
func (s *System) Of(ns *tracens.Namespace) *Set {
	set, _ := ns.Value(s).(*Set)
	return set
}

// Create implements tracens.System.
func (s *System) Create(ns *tracens.Namespace) error {
	ns.SetValue(s, NewSet(DefaultLimits, s.Heirs))
	return nil
}

// Remove implements tracens.System.
func (s *System) Remove(ns *tracens.Namespace) error {
	if s.Of(ns) == nil {
		return syscall.ENOENT
	}
	return nil
}

// IsBusy implements tracens.System.
func (s *System) IsBusy(ns *tracens.Namespace) bool {
	set := s.Of(ns)
	return set != nil && set.Busy()
}

// limitOf is a limit by its word in the options file.
func limitOf(l *Limits, word string) *int {
	switch word {
	case "max-events":
		return &l.Events
	case "max-readers":
		return &l.Readers
	case "max-registrations":
		return &l.Registrations
	case "max-rate":
		return &l.Rate
	case "max-writes":
		return &l.Writes
	case "max-queue":
		return &l.Queue
	}
	return nil
}

// limitWords are the limits' words in the options file.
var limitWords = []string{"max-events", "max-readers", "max-registrations", "max-rate", "max-writes", "max-queue"}

// Parse implements tracens.System: user_events. with one of limitWords, and a number of
// events, readers, bits, records a second, calls a second, bytes; 0 is no limit.
func (s *System) Parse(ns *tracens.Namespace, command string) error {
	rest, mine := strings.CutPrefix(command, SystemName+".")
	if !mine {
		return tracens.ErrNotMine
	}
	words := strings.Fields(rest)
	set := s.Of(ns)
	l := set.Limits()
	if len(words) != 2 || limitOf(&l, words[0]) == nil {
		return fmt.Errorf("%q: one of %s, and a number: %w", command, strings.Join(limitWords, ", "), syscall.EINVAL)
	}
	n, err := strconv.ParseUint(words[1], 10, 31)
	if err != nil {
		return fmt.Errorf("%q is no number: %w", words[1], syscall.EINVAL)
	}
	*limitOf(&l, words[0]) = int(n)
	set.SetLimits(l)
	return nil
}

// Show implements tracens.System.
func (s *System) Show(ns *tracens.Namespace) (string, error) {
	set := s.Of(ns)
	l := set.Limits()
	var b strings.Builder
	for _, word := range limitWords {
		fmt.Fprintf(&b, "%s.%s %d\n", SystemName, word, *limitOf(&l, word))
	}
	fmt.Fprintf(&b, "# %s: %d events, %d records written, %d lost\n", SystemName, len(set.List()), set.Written(),
		set.Lost())
	if n := set.Left(); n > 0 {
		fmt.Fprintf(&b, "# %s: %d registrations of forked programs found max-registrations reached\n", SystemName, n)
	}
	return b.String(), nil
}
