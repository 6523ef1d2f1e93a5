// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// CallGraph says what is shown below a row.
type CallGraph uint8

// The call graphs.
const (
	// CallGraphNone shows rows only.
	CallGraphNone CallGraph = iota
	// CallGraphCaller starts with the outermost caller; below a row of
	// --children, it shows what the function calls.
	CallGraphCaller
	// CallGraphCallee starts with the function itself, followed by its
	// callers.
	CallGraphCallee
	// CallGraphFlat lists whole stacks.
	CallGraphFlat
)

func callGraphNames() []string { return []string{"none", "caller", "callee", "flat"} }

// String is the call graph as -g spells it.
func (c CallGraph) String() string { return callGraphNames()[c] }

// GraphSpec is the argument of -g.
type GraphSpec struct {
	// Kind is what was asked for. It counts only if Set: else the order is
	// left to the reader of the recording.
	Kind CallGraph
	Set  bool
	// Limit is as Options.CallGraphLimit: zero was not given, negative shows
	// everything.
	Limit float64
}

// ParseGraphSpec reads the argument of -g as perf spells it: a list, in any
// order, of a shape (graph, flat, none), an order (caller, callee), a number
// of percent, and what is the default anyway (function, percent). What perf
// has beyond that is refused by name.
func ParseGraphSpec(list string) (GraphSpec, error) {
	var p graphParser
	for word := range strings.SplitSeq(list, ",") {
		if err := p.word(strings.TrimSpace(word)); err != nil {
			return GraphSpec{}, err
		}
	}
	return p.spec()
}

type graphParser struct {
	shape, order string
	limit        float64
	limited      bool
}

func (p *graphParser) word(w string) error {
	switch w {
	case "graph", "flat", "none":
		return once(&p.shape, w)
	case "caller", "callee":
		return once(&p.order, w)
	case "function", "percent":
		return nil
	case "":
		return errors.New("-g has an empty word: use graph, flat or none, caller or callee, and a number of percent")
	}
	if why := refusedGraph(w); why != "" {
		return fmt.Errorf("-g %s: %s", w, why)
	}
	n, err := strconv.ParseFloat(w, 64)
	switch {
	case err != nil:
		return fmt.Errorf("-g %s: unknown call graph: use graph, flat or none, caller or callee, and a number of "+
			"percent", w)
	case p.limited:
		return fmt.Errorf("-g %s: a second number, perf's limit of entries, is not known here: leave it out", w)
	case !(n >= 0 && n <= 100):
		return fmt.Errorf("-g %s: the limit is a number of percent, 0 to 100", w)
	}
	p.limit, p.limited = n, true
	return nil
}

// refusedGraph says what to use in place of a word that only perf knows.
func refusedGraph(w string) string {
	switch w {
	case "fractal":
		return "shares are always of the whole: use graph"
	case "folded":
		return "use --format folded"
	case "address", "srcline":
		return "functions are what is told apart: use function"
	case "branch":
		return "branches are not shown: leave it out"
	case "period", "count":
		return "shares are always in percent: leave it out, or use --format json"
	}
	return ""
}

func once(have *string, w string) error {
	if *have != "" && *have != w {
		return fmt.Errorf("-g: choose one of %s and %s", *have, w)
	}
	*have = w
	return nil
}

func (p *graphParser) spec() (GraphSpec, error) {
	s := GraphSpec{Limit: p.limit, Set: true}
	if p.limited && p.limit == 0 {
		s.Limit = -1
	}
	switch {
	case p.shape == "none":
		s.Kind = CallGraphNone
	case p.shape == "flat" && p.order == "caller":
		return GraphSpec{}, errors.New("-g flat,caller: flat lists stacks from the function outwards: leave out caller")
	case p.shape == "flat":
		s.Kind = CallGraphFlat
	case p.order != "":
		s.Kind = CallGraph(slices.Index(callGraphNames(), p.order))
	default:
		s.Set = false
	}
	return s, nil
}
