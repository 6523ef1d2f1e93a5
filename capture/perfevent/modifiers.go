// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"strings"

	"github.com/gantry-tools/gantry/perf"
)

// modifierChars are the letters perf knows; some of them we refuse.
const modifierChars = "ukhpPGHSDIWeb"

// isModifiers: w may be a list of modifiers, going by its letters.
func isModifiers(w string) bool {
	return w != "" && strings.Trim(w, modifierChars) == ""
}

// modifiers is what the letters behind an event ask for.
type modifiers struct {
	flags      perf.AttrFlags
	precise    int
	preciseMax bool
	sampleRead bool
}

// parseModifiers reads the letters. As in perf, the first of u, k, h (or G,
// H) excludes what is not named.
func parseModifiers(w word) (modifiers, error) {
	const (
		levels = perf.AttrExcludeUser | perf.AttrExcludeKernel | perf.AttrExcludeHV
		guests = perf.AttrExcludeGuest | perf.AttrExcludeHost
	)
	var m modifiers
	var levelGiven, guestGiven bool
	only := func(given *bool, all, not perf.AttrFlags) {
		if !*given {
			*given = true
			m.flags |= all
		}
		m.flags &^= not
	}
	for i, c := range w.text {
		switch c {
		case 'u':
			only(&levelGiven, levels, perf.AttrExcludeUser)
		case 'k':
			only(&levelGiven, levels, perf.AttrExcludeKernel)
		case 'h':
			only(&levelGiven, levels, perf.AttrExcludeHV)
		case 'G':
			only(&guestGiven, guests, perf.AttrExcludeGuest)
		case 'H':
			only(&guestGiven, guests, perf.AttrExcludeHost)
		case 'p':
			m.precise++
		case 'P':
			m.preciseMax = true
		case 'S':
			m.sampleRead = true
		case 'D':
			m.flags |= perf.AttrPinned
		case 'I':
			m.flags |= perf.AttrExcludeIdle
		case 'e':
			m.flags |= perf.AttrExclusive
		case 'W', 'b':
			at := word{pos: w.pos + i}
			what := map[rune]string{'W': "weak groups", 'b': "counting with BPF"}[c]
			return m, failAt(at, ErrUnsupported, "modifier "+string(c)+" ("+what+") is not supported by gantry")
		default:
			at := word{pos: w.pos + i}
			return m, failAt(at, ErrUnknownModifier, "unknown modifier "+string(c)+", known are u k h p P G H S D I e")
		}
	}
	if m.precise > 3 {
		return m, failAt(w, ErrUnknownModifier, "p can be given three times at most")
	}
	// The guest's precise samples cannot be told: the CPU wants them off.
	if (m.precise > 0 || m.preciseMax) && !guestGiven {
		m.flags |= perf.AttrExcludeGuest
	}
	return m, nil
}

// apply adds the modifiers to an event.
func (m *modifiers) apply(s *EventSpec) {
	s.Attr.Flags = (s.Attr.Flags | m.flags).WithPreciseIP(m.precise)
	if m.preciseMax {
		s.OpenFlags |= PreciseMax
	}
}
