// SPDX-License-Identifier: Apache-2.0

// Package annotate shows functions instruction by instruction: how many samples
// fell on each, which line of source it was made of, and where it leads.
//
// Functions finds those that samples fell in, List puts one together, and Text
// and JSON show it. Names, source and code come from containers and are hostile:
// text neutralises what a terminal would obey.
package annotate

import (
	"cmp"
	"math"
	"slices"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/disasm"
	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/view/report"
)

// Options say what is shown. The zero value shows every function.
type Options struct {
	// Filter selects samples, and with DSO and Symbol functions.
	Filter report.Filter
	// PercentLimit hides functions below this share of their event, in percent.
	PercentLimit float64
	// NoSource leaves the text of source lines out.
	NoSource bool
	// Width is that of the terminal; zero is unlimited.
	Width int
	// Skid are the names of the events whose samples may stand behind the
	// instruction that they are of.
	Skid map[string]bool
	// Disassemble is asked for functions with instructions that package disasm
	// does not know; it may be nil.
	Disassemble func(a perf.Arch, code []byte, addr uint64) ([]disasm.Insn, error)
}

// Weight is how often, and in units of the event how much.
type Weight struct{ Samples, Value uint64 }

func (w *Weight) add(s profile.Sample) {
	w.Samples += s.Count
	w.Value += min(s.Value, math.MaxUint64-w.Value)
}

// Function is a function with the samples that fell in it.
type Function struct {
	analysis.Function
	Weight
	Event string
	// Of is the weight of the whole event.
	Of Weight
	// Loads are the programs, if it is of BPF: each load of the same code counts.
	Loads []Load

	// at are samples by their distance from the function's start.
	at       map[uint64]Weight
	lastLoad Load
}

// Load is a BPF program, and the container that loaded it, as in profile.Frame.
type Load struct{ Program, Loader string }

// share is w's part of all, in percent: by value or, for events without values,
// by samples.
func share(w, all Weight) float64 {
	switch {
	case all.Value > 0:
		return 100 * float64(w.Value) / float64(all.Value)
	case all.Samples > 0:
		return 100 * float64(w.Samples) / float64(all.Samples)
	}
	return 0
}

// Percent is the function's share of the event.
func (f *Function) Percent() float64 { return share(f.Weight, f.Of) }

// functionKey is what makes two functions of an event the same to a reader. Those
// of BPF are loaded again and again, elsewhere each time.
type functionKey struct {
	event                int
	name, path, id       string
	start, size          uint64
	kernel, isBPFProgram bool
}

// Functions are those that samples of p fell in and that o selects: for each
// event in the order of the recording, the heaviest first. hidden is how many are
// below the limit. p must be what s collected with Places.
func Functions(p *profile.Profile, s *analysis.Session, o *Options) (list []*Function, hidden int) {
	r := report.Options{Filter: o.Filter}
	keep := r.SampleFilter(p)
	known := make(map[functionKey]*Function)
	order := make(map[*Function]int)
	for sm := range p.Samples() {
		st := p.Stack(sm.Stack)
		if len(st) == 0 || keep != nil && !keep(sm) {
			continue
		}
		fn, ok := s.Function(st[0])
		if !ok {
			continue
		}
		key := keyOf(sm.Event, &fn)
		f := known[key]
		if f == nil {
			e := &p.Events[sm.Event]
			f = &Function{Function: fn, Event: e.Name, Of: Weight{e.Samples, e.Value}, at: make(map[uint64]Weight)}
			known[key], order[f] = f, sm.Event
			list = append(list, f)
		}
		f.addLoad(&fn)
		f.add(sm)
		w := f.at[p.Frame(st[0]).Addr-fn.Start]
		w.add(sm)
		f.at[p.Frame(st[0]).Addr-fn.Start] = w
	}
	slices.SortStableFunc(list, func(a, b *Function) int {
		return cmp.Or(cmp.Compare(order[a], order[b]), cmp.Compare(b.Value, a.Value), cmp.Compare(b.Samples, a.Samples),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Start, b.Start))
	})
	shown := slices.DeleteFunc(list, func(f *Function) bool { return f.Percent() < o.PercentLimit })
	return shown, len(order) - len(shown)
}

func keyOf(event int, f *analysis.Function) functionKey {
	k := functionKey{event: event, name: f.Name, path: f.Path, kernel: f.Kernel, size: f.End - f.Start}
	if k.isBPFProgram = f.Program != ""; !k.isBPFProgram {
		k.start = f.Start
		if !f.BuildID.IsZero() {
			k.path, k.id = "", f.BuildID.String()
		}
	}
	return k
}

// addLoad counts a program, and prefers one whose code is known.
func (f *Function) addLoad(fn *analysis.Function) {
	l := Load{fn.Program, fn.Loader}
	if fn.Program == "" || f.lastLoad == l || slices.Contains(f.Loads, l) {
		return
	}
	f.Loads, f.lastLoad = append(f.Loads, l), l
	if !f.HasDetails() && fn.HasDetails() {
		f.Function = *fn
	}
}
