// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/perf"
)

// resolveGroup turns the syntax of a group into events that can be opened.
func resolveGroup(g *groupSyntax, pmus *PMUs) ([]Group, error) {
	groupMods, err := parseModifiers(g.mods)
	if err != nil {
		return nil, err
	}
	var events []EventSpec
	for i := range g.events {
		r := resolver{pmus: pmus, ev: &g.events[i], group: g.mods}
		if err := r.resolve(); err != nil {
			return nil, err
		}
		events = append(events, r.out...)
	}
	if g.braces {
		group := Group{Events: events, Braces: true, SampleRead: groupMods.sampleRead}
		group.markSampleRead()
		return []Group{group}, nil
	}
	var groups []Group
	for _, e := range events {
		groups = append(groups, Group{Events: []EventSpec{e}})
	}
	return groups, nil
}

// markSampleRead makes the leader's samples hold all counts.
func (g *Group) markSampleRead() {
	if !g.SampleRead || len(g.Events) == 0 {
		return
	}
	a := &g.Events[0].Attr
	a.SampleType |= perf.SampleRead
	a.ReadFormat |= perf.FormatGroup | perf.FormatID
}

// resolver finds what one event of the syntax stands for.
type resolver struct {
	pmus  *PMUs
	ev    *eventSyntax
	group word // modifiers of the group
	out   []EventSpec
}

func (r *resolver) resolve() error {
	parts := r.ev.parts
	switch {
	case r.ev.isMem():
		return r.breakpoint()
	case r.ev.uprobe:
		return r.uprobe()
	case len(parts) == 1 && r.ev.slash:
		return r.withTerms()
	case len(parts) == 1:
		return r.plain(parts[0], word{})
	case len(parts) == 2 && isModifiers(parts[1].text) && !r.ev.slash:
		err := r.plain(parts[0], parts[1])
		if err == nil || !r.isSystem(parts[0].text) {
			return err
		}
		return r.tracepoints(parts[0], parts[1], word{})
	case len(parts) == 2 && isGeneric(parts[0].text) && !r.isSystem(parts[0].text):
		return notATracepoint(parts[1])
	case len(parts) == 2:
		return r.tracepoints(parts[0], parts[1], r.ev.mods)
	case len(parts) == 3:
		return r.tracepoints(parts[0], parts[1], parts[2])
	}
	return failAt(parts[3], ErrSyntax, "more than system:event:modifiers")
}

// notATracepoint says what is wrong with w behind the name of a generic event.
func notATracepoint(w word) error {
	if _, err := parseModifiers(w); err != nil {
		return err
	}
	return failAt(w, ErrSyntax, "modifiers belong behind the terms")
}

func isGeneric(name string) bool {
	_, ok := genericEvent(name)
	return ok
}

// plain resolves a name without colon or slash.
func (r *resolver) plain(name, mods word) error {
	if g, ok := genericEvent(name.text); ok {
		return r.generic(g, name, mods)
	}
	if found := r.pmus.withAlias(name.text); len(found) > 0 {
		terms := []termSyntax{{key: name}}
		for _, u := range found {
			if err := r.device(u, terms, name.text, mods); err != nil {
				return err
			}
		}
		return nil
	}
	return r.unknown(name)
}

// unknown says what could have been meant.
func (r *resolver) unknown(name word) error {
	if u, err := r.pmus.find(name.text); err == nil {
		return failAt(name, ErrUnknownEvent, strconv.Quote(name.text)+" is an event device",
			prefixed(u.name+"/", u.aliases(), "/")...)
	}
	known := append(genericNames(), r.pmus.aliasNames()...)
	return failAt(name, ErrUnknownEvent, "unknown event "+strconv.Quote(name.text), suggest(name.text, known)...)
}

// prefixed dresses up to maxSuggestions names.
func prefixed(before string, names []string, after string) []string {
	var out []string
	for _, n := range names[:min(len(names), maxSuggestions)] {
		out = append(out, before+n+after)
	}
	return out
}

// generic adds an event that the kernel knows by number, one per kind of core
// on hybrid machines.
func (r *resolver) generic(g generic, name, mods word) error {
	s := EventSpec{Name: name.text, Scale: 1, Attr: perf.Attr{Type: g.typ, Config: g.config}}
	if r.ev.slash {
		s.Name = r.text()
		if err := applyGenericTerms(&s, r.ev.terms); err != nil {
			return err
		}
	}
	var cores []*pmu
	if g.typ == perf.TypeHardware || g.typ == perf.TypeHWCache {
		cores = r.pmus.hybridCores()
	}
	if len(cores) == 0 {
		return r.add(s, mods)
	}
	for _, u := range cores {
		c := s
		// Since 5.13 the upper half of config names the device.
		c.Attr.Config |= uint64(u.typ) << 32
		c.Name, c.PMU, c.CPUs = u.name+"/"+name.text+"/", u.name, u.cpus
		if err := r.add(c, mods); err != nil {
			return err
		}
	}
	return nil
}

// applyGenericTerms applies the terms of an event that has no device of its
// own.
func applyGenericTerms(s *EventSpec, terms []termSyntax) error {
	for _, t := range terms {
		known, err := applyTerm(s, t)
		if err != nil {
			return err
		}
		if !known {
			return unknownTerm(t, nil)
		}
	}
	return nil
}

// withTerms resolves NAME/terms/: NAME is a device, or a generic event.
func (r *resolver) withTerms() error {
	name := r.ev.parts[0]
	found, err := r.pmus.match(name.text)
	if err != nil {
		if g, ok := genericEvent(name.text); ok {
			return r.generic(g, name, r.ev.mods)
		}
		names, _ := r.pmus.Names()
		e := failAt(name, ErrUnknownPMU, "unknown event device "+strconv.Quote(name.text), suggest(name.text, names)...)
		return e
	}
	for _, u := range found {
		text := r.text()
		if len(found) > 1 {
			text = u.name + strings.TrimPrefix(text, name.text)
		}
		if err := r.device(u, r.ev.terms, text, r.ev.mods); err != nil {
			return err
		}
	}
	return nil
}

// text is the event as written, without modifiers.
func (r *resolver) text() string {
	ev := *r.ev
	ev.mods = word{}
	var b strings.Builder
	ev.format(&b)
	return b.String()
}

// device adds an event of a device.
func (r *resolver) device(u *pmu, terms []termSyntax, name string, mods word) error {
	s := EventSpec{Name: name, PMU: u.name, CPUs: u.cpus, Scale: 1, Attr: perf.Attr{Type: u.typ}}
	if err := u.apply(&s, terms); err != nil {
		return err
	}
	return r.add(s, mods)
}

// tracepoints adds the tracepoints that system:name stands for.
func (r *resolver) tracepoints(system, name, mods word) error {
	t, err := r.pmus.Tracefs()
	if err != nil {
		return &ParseError{Kind: ErrUnknownEvent, Offset: system.pos,
			Reason: "cannot look up tracepoint " + system.text + ":" + name.text, Cause: err}
	}
	found, err := t.Find(system.text, name.text)
	if err != nil {
		return &ParseError{Kind: ErrUnknownEvent, Offset: system.pos,
			Reason: "cannot read tracepoint " + system.text + ":" + name.text, Cause: err}
	}
	if len(found) == 0 {
		return r.unknownTracepoint(t, system, name)
	}
	for _, tp := range found {
		s := EventSpec{Name: tp.String(), Scale: 1, Tracepoint: tp,
			Attr: perf.Attr{Type: perf.TypeTracepoint, Config: tp.ID}}
		if err := applyGenericTerms(&s, r.ev.terms); err != nil {
			return err
		}
		if err := r.add(s, mods); err != nil {
			return err
		}
	}
	return nil
}

func (r *resolver) unknownTracepoint(t *Tracefs, system, name word) error {
	systems, _ := t.Systems()
	names, err := t.Names(system.text)
	if isUprobe(system.text) && (err != nil || len(names) == 0) {
		return failAt(name, ErrSyntax,
			"write "+system.text+":/path/to/file:FUNCTION, +OFFSET behind it, or 0xOFFSET in the file")
	}
	if err != nil || len(names) == 0 {
		return failAt(system, ErrUnknownEvent, "no tracepoint matches "+strconv.Quote(system.text+":"+name.text),
			suggest(system.text, systems)...)
	}
	near := suggest(name.text, names)
	return failAt(name, ErrUnknownEvent, "no tracepoint matches "+strconv.Quote(system.text+":"+name.text),
		prefixed(system.text+":", near, "")...)
}

// isSystem: tracefs can be read and has tracepoints under this name.
func (r *resolver) isSystem(name string) bool {
	t, err := r.pmus.Tracefs()
	if err != nil {
		return false
	}
	names, err := t.Names(name)
	return err == nil && len(names) > 0
}

// add completes an event with its modifiers and those of the group.
func (r *resolver) add(s EventSpec, mods word) error {
	own, err := parseModifiers(mods)
	if err != nil {
		return err
	}
	all, err := parseModifiers(word{text: mods.text + r.group.text, pos: mods.pos})
	if err != nil {
		return err
	}
	all.apply(&s)
	if own.sampleRead {
		s.Attr.SampleType |= perf.SampleRead
	}
	s.Name = withModifiers(&s, mods.text)
	r.out = append(r.out, s)
	return nil
}

// withModifiers spells an event's name as perf shows it: with its own modifiers
// but not the group's; a tracepoint, or a name that was given, without any.
func withModifiers(s *EventSpec, mods string) string {
	switch {
	case mods == "" || s.Tracepoint != nil || s.Terms.Named:
		return s.Name
	case strings.HasSuffix(s.Name, "/"):
		return s.Name + mods
	}
	return s.Name + ":" + mods
}

// Bits of attr.bp_type, see linux/hw_breakpoint.h.
const (
	breakpointRead  = 1
	breakpointWrite = 2
	breakpointExec  = 4
)

// breakpoint adds mem:ADDR[/LEN][:rwx][:MODS].
func (r *resolver) breakpoint() error {
	parts, a := r.ev.parts, perf.Attr{Type: perf.TypeBreakpoint}
	var err error
	if a.Config1, err = number(parts[1]); err != nil {
		return err
	}
	rest := parts[2:]
	a.BPType = breakpointRead | breakpointWrite
	if len(rest) > 0 && strings.Trim(rest[0].text, "rwx") == "" {
		a.BPType, rest = accessBits(rest[0].text), rest[1:]
	}
	a.Config2 = 4
	if a.BPType == breakpointExec {
		a.Config2 = 8 // sizeof(long), the only length the kernel takes
	}
	if r.ev.length.text != "" {
		if a.Config2, err = number(r.ev.length); err != nil {
			return err
		}
	}
	if a.BPType&breakpointExec != 0 && a.BPType != breakpointExec {
		return failAt(parts[2], ErrTermValue, "a breakpoint on execution cannot be one on access too")
	}
	var mods word
	if len(rest) > 0 {
		mods, rest = rest[0], rest[1:]
	}
	if len(rest) > 0 {
		return failAt(rest[0], ErrSyntax, "more than mem:address/length:access:modifiers")
	}
	name := word{text: "mem:" + parts[1].text}
	if r.ev.length.text != "" {
		name.text += "/" + r.ev.length.text
	}
	if len(parts) > 2 && parts[2] != mods {
		name.text += ":" + parts[2].text
	}
	return r.add(EventSpec{Name: name.text, Scale: 1, Attr: a}, mods)
}

func accessBits(s string) uint32 {
	var bits uint32
	for _, c := range s {
		switch c {
		case 'r':
			bits |= breakpointRead
		case 'w':
			bits |= breakpointWrite
		case 'x':
			bits |= breakpointExec
		}
	}
	return bits
}

// number reads a decimal, 0x, 0o or 0b number.
func number(w word) (uint64, error) {
	n, err := strconv.ParseUint(w.text, 0, 64)
	if err != nil || strings.Contains(w.text, "_") {
		return 0, failAt(w, ErrTermValue, strconv.Quote(w.text)+" is no number")
	}
	return n, nil
}
