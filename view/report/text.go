// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"

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
	sections := t.sections()
	if len(sections) == 0 && len(p.Events) > 0 {
		fmt.Fprintf(out, "# Samples: 0\n# Filter: %s: no such event\n#\n", profile.Printable(o.Filter.String()))
	}
	for _, s := range sections {
		writeSection(out, t, s)
	}
	return out.Flush()
}

// sections are the events that have a table each; only the first one, in
// place of all, when the event is a sort key.
func (t *table) sections() []int {
	var list []int
	for i := range t.p.Events {
		if t.shown[i] && (len(list) == 0 || !t.o.has(KeyEvent)) {
			list = append(list, i)
		}
	}
	return list
}

func writeSection(out *bufio.Writer, t *table, event int) {
	for i := range t.p.Events {
		if i == event || t.shown[i] && t.o.has(KeyEvent) {
			writeHead(out, t, i)
		}
	}
	rows, hidden := t.section(event)
	l := newLayout(t, rows)
	l.writeTitles(out)
	var calls *graphs
	if t.o.CallGraph != CallGraphNone {
		calls = newGraphs(t, rows)
	}
	for _, r := range rows {
		l.writeRow(out, r)
		if calls != nil {
			if n := calls.of(r); n != nil {
				writeGraph(out, t, calls.keys(), r, n)
			}
		}
	}
	if hidden > 0 {
		fmt.Fprintf(out, "#\n# %s\n",
			plural(uint64(hidden), "entry is", "entries are")+" not shown: see --percent-limit and --max-entries")
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
