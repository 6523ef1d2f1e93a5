// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gantry-tools/gantry/analysis/profile"
)

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
