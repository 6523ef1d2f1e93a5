// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// Text writes tables in the shape of perf report --stdio, one for each event.
func Text(w io.Writer, p *profile.Profile, o *Options) error {
	o = o.orDefault()
	t := newTable(p, o)
	out := bufio.NewWriterSize(w, 1<<16)
	if len(p.Events) == 0 {
		fmt.Fprintf(out, "# No events: nothing was recorded.\n#\n")
	}
	if len(t.sections) == 0 && len(p.Events) > 0 {
		fmt.Fprintf(out, "# Samples: 0\n# Filter: %s: no such event\n#\n", profile.Printable(o.Filter.String()))
	}
	for i := range t.sections {
		writeSection(out, t, &t.sections[i])
	}
	return out.Flush()
}

func writeSection(out *bufio.Writer, t *table, s *section) {
	for i := range t.p.Events {
		if i == s.event || t.shown[i] && t.o.has(KeyEvent) {
			writeHead(out, t, i)
		}
	}
	l := newLayout(t, s.rows)
	l.writeTitles(out)
	calls := s.graphs(t)
	for _, r := range s.rows {
		l.writeRow(out, r)
		if calls != nil {
			if n := calls.of(r); n != nil {
				writeGraph(out, t, calls.keys(), r, n)
			}
		}
	}
	if s.hidden > 0 {
		fmt.Fprintf(out, "#\n# %s\n",
			plural(uint64(s.hidden), "entry is", "entries are")+" not shown: see --percent-limit and --max-entries")
	}
	out.WriteByte('\n')
}

// writeHead says how much there is of an event, and what is missing.
func writeHead(out *bufio.Writer, t *table, event int) {
	e, total := &t.p.Events[event], &t.events[event]
	fmt.Fprintf(out, "# Samples: %s of event '%s'\n", short(e.Samples), profile.Printable(e.Name))
	fmt.Fprintf(out, "# Event count (approx.): %d\n", e.Value)
	writeLost(out, t.p, e)
	if t.o.NeedsSymbols(FormatText) {
		fmt.Fprintf(out, "# Unresolved: %d (%.2f%%)\n", total.unresolved, share(total.unresolved, total.samples))
	}
	if !t.o.Filter.empty() {
		fmt.Fprintf(out, "# Filter: %s", profile.Printable(t.o.Filter.String()))
		if t.o.Filter.labelled() { // else it selects rows, not samples
			fmt.Fprintf(out, ": %s of %s samples (%.2f%%)", short(total.samples), short(e.Samples),
				share(total.samples, e.Samples))
		}
		out.WriteByte('\n')
	}
	out.WriteString("#\n")
}

// writeLost never keeps silent: no loss is said, too.
func writeLost(out *bufio.Writer, p *profile.Profile, e *profile.EventInfo) {
	lost := p.TotalLost(e.Name)
	fmt.Fprintf(out, "# Lost: %d (%.2f%%)\n", lost, share(lost, lost+e.Samples))
	writeLostBy(out, p, e, "container", func(l *profile.LostCount) string { return l.Container })
	writeLostBy(out, p, e, "cpu", func(l *profile.LostCount) string {
		if l.CPU < 0 {
			return ""
		}
		return decimal(l.CPU)
	})
}

// maxLostShown bounds the list of who lost samples; the sum above has all.
const maxLostShown = 8

func writeLostBy(out *bufio.Writer, p *profile.Profile, e *profile.EventInfo, what string,
	name func(*profile.LostCount) string) {
	type part struct {
		name string
		n    uint64
	}
	var parts []part
	for i := range p.Lost {
		l := &p.Lost[i]
		if l.Event != "" && l.Event != e.Name || l.Samples == 0 || name(l) == "" {
			continue
		}
		at := slices.IndexFunc(parts, func(x part) bool { return x.name == name(l) })
		if at < 0 {
			at = len(parts)
			parts = append(parts, part{name: name(l)})
		}
		parts[at].n += l.Samples
	}
	if len(parts) == 0 {
		return
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.name, b.name)) })
	fmt.Fprintf(out, "#   by %s:", what)
	for i, x := range parts {
		if i == maxLostShown {
			fmt.Fprintf(out, " ... (%d more)", len(parts)-i)
			break
		}
		fmt.Fprintf(out, " %s %d", profile.Printable(x.name), x.n)
	}
	out.WriteByte('\n')
}

func share(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}

// short is a number as perf shortens it.
func short(n uint64) string {
	for _, u := range []struct {
		size uint64
		unit string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "K"}} {
		if n >= u.size {
			return fmt.Sprint(n/u.size) + u.unit
		}
	}
	return fmt.Sprint(n)
}

func plural(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// graphMargin is where the drawing begins; graphIndent is what one level
// takes: the width of "|--12.34%--".
const (
	graphMargin = "            "
	graphIndent = "          "
)

// graphText draws a call graph as perf does.
type graphText struct {
	out  *bufio.Writer
	t    *table
	keys *keyspace
	e    *eventTotal
}

// writeGraph draws the call graph of r, and a line to keep it from the next.
func writeGraph(out *bufio.Writer, t *table, keys *keyspace, r *row, n *node) {
	g := graphText{out: out, t: t, keys: keys, e: &t.events[r.event]}
	switch {
	case len(n.kids) == 0:
		return
	case t.o.CallGraph == CallGraphFlat:
		g.flat(n)
		return
	case len(n.kids) == 1:
		g.line(graphMargin, "|")
		g.line(graphMargin, "---"+g.name(n.kids[0]))
		g.below(n.kids[0], graphMargin+"   ")
	default:
		g.kids(n, graphMargin)
	}
	out.WriteByte('\n')
}

// below draws what follows n: one name below the other while the whole weight
// goes one way, else its branches.
func (g *graphText) below(n *node, prefix string) {
	for len(n.kids) == 1 && n.kids[0].value == n.value {
		n = n.kids[0]
		g.line(prefix, g.name(n))
	}
	g.kids(n, prefix)
}

func (g *graphText) kids(n *node, prefix string) {
	names := g.siblings(n.kids)
	for i, kid := range n.kids {
		bar := "|"
		g.line(prefix, bar)
		if i == len(n.kids)-1 {
			bar = " "
		}
		g.line(prefix, fmt.Sprintf("%s--%.2f%%--%s", bar, g.e.percent(kid.value), names[i]))
		g.below(kid, prefix+bar+graphIndent)
	}
}

// siblings are the names of nodes, with the object of those whose name alone
// would not tell them apart.
func (g *graphText) siblings(list []*node) []string {
	names := make([]string, len(list))
	times := make(map[string]int, len(list))
	for i, n := range list {
		names[i] = g.name(n)
		times[names[i]]++
	}
	for i, n := range list {
		if times[names[i]] > 1 {
			names[i] += " (" + profile.Printable(g.keys.list[n.key].dso) + ")"
		}
	}
	return names
}

func (g *graphText) name(n *node) string { return profile.Printable(g.keys.list[n.key].symbol()) }

func (g *graphText) line(prefix, s string) {
	s = prefix + s
	if w := g.t.o.Width; w > 0 {
		s = cut(s, max(w, len(prefix)+minColumn), false)
	}
	g.out.WriteString(strings.TrimRight(s, " "))
	g.out.WriteByte('\n')
}

// flatStack is one whole stack of a flat call graph.
type flatStack struct {
	value uint64
	names []string
}

// flat lists whole stacks, the heaviest first.
func (g *graphText) flat(n *node) {
	var list []flatStack
	g.flatten(n, nil, &list)
	slices.SortStableFunc(list, func(a, b flatStack) int { return cmp.Compare(b.value, a.value) })
	for _, s := range list {
		g.line("           ", fmt.Sprintf("%.2f%%", g.e.percent(s.value)))
		for _, name := range s.names {
			g.line("                ", name)
		}
		g.out.WriteByte('\n')
	}
}

// flatten collects the stacks that end at n or below.
func (g *graphText) flatten(n *node, names []string, list *[]flatStack) {
	if n.self > 0 && len(names) > 0 {
		*list = append(*list, flatStack{n.self, slices.Clone(names)})
	}
	for _, kid := range n.kids {
		g.flatten(kid, append(names, g.name(kid)), list)
	}
}
