// SPDX-License-Identifier: Apache-2.0

package script

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/view/report"
)

// Show is a set of kinds of records that are shown beside samples.
type Show uint16

// The kinds of records.
const (
	ShowMmap Show = 1 << iota
	ShowTask
	ShowNamespace
	ShowLost
	ShowSwitch
	ShowBPF
	ShowCgroup
	ShowTextPoke
)

// Options say what is printed and how. The zero value is what perf script
// does.
type Options struct {
	Columns Columns
	// Nanoseconds: times with nine decimals instead of six.
	Nanoseconds bool
	// HideCallGraph: only the address of the sample, no call chain.
	HideCallGraph bool
	// Inline and NoInline say whether inlined calls are lines of call chains.
	// With neither, that is so for stacks that were unwound from memory, as
	// in perf.
	Inline, NoInline bool
	// MaxStack is how many frames of a call chain are printed; 0 is all.
	MaxStack int
	Show     Show
	// Filter selects samples. Its DSO, Symbol and Event are not looked at.
	Filter report.Filter
	// Span are the times that are printed; the zero value is all.
	Span Span
	// Tally counts samples if it is not nil.
	Tally *Tally
}

// Tally counts the samples of a recording.
type Tally struct {
	Samples, Printed uint64
	// Nameless counts the printed samples with a frame in user space that has
	// no name, by the path of the object that it is in.
	Nameless map[string]uint64
}

// Symbols reports whether the names of functions in user space are printed, of
// the given events.
func (o *Options) Symbols(events *perf.Events) bool {
	for _, ev := range events.List() {
		if f, _ := o.Columns.of(&ev.Attr); f&IP != 0 && f&(Sym|Srcline) != 0 {
			return true
		}
	}
	return len(events.List()) == 0 // a stream that has yet to tell
}

// Span is a stretch of time in nanoseconds of the recording's clock. To is the
// last moment that belongs to it, 0 is no end.
type Span struct{ From, To uint64 }

func (s Span) has(t uint64) bool { return t >= s.From && (s.To == 0 || t <= s.To) }

// ParseSpan reads two times in seconds as they are printed, with a comma
// between; either may be missing: "12.5", "12.5,", ",13".
func ParseSpan(s string) (Span, error) {
	from, to, _ := strings.Cut(s, ",")
	if from == "" && to == "" {
		return Span{}, fmt.Errorf("time %q: want FROM,TO or FROM or ,TO in seconds", s)
	}
	var v Span
	var err error
	if v.From, err = parseTime(from); err != nil {
		return Span{}, err
	}
	if v.To, err = parseTime(to); err != nil {
		return Span{}, err
	}
	if v.To != 0 && v.To < v.From {
		return Span{}, fmt.Errorf("time %q: its end is before its start", s)
	}
	return v, nil
}

// parseTime reads seconds with a fraction without losing nanoseconds.
func parseTime(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	sec, frac, _ := strings.Cut(s, ".")
	if len(frac) > 9 {
		frac = frac[:9]
	}
	a, err1 := strconv.ParseUint(sec, 10, 64)
	b, err2 := strconv.ParseUint(frac+strings.Repeat("0", 9-len(frac)), 10, 64)
	if err1 != nil || err2 != nil || a > math.MaxUint64/1_000_000_000-1 {
		return 0, fmt.Errorf("time %q is not seconds, such as 1234.567", s)
	}
	return a*1_000_000_000 + b, nil
}
