// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/profile"
)

// Level is what the rows of a table are.
type Level int

// Levels, from the outermost.
const (
	Containers Level = iota
	Processes
	Functions
)

func (l Level) String() string { return [...]string{"containers", "processes", "functions"}[l] }

// Selection narrows what is added up. Empty strings and 0 are everything.
type Selection struct {
	// Container is the label of one, profile.Host that of what is in none.
	Container string
	// PID is a process.
	PID int32
}

// Row is a line of a table.
type Row struct {
	// Container, PID, Command, Function and Object are of the level of the row, and of those
	// around it if it belongs to one.
	Container string
	PID       int32
	Command   string
	Function  string
	Object    string
	// Self is the share of a CPU, in percent: 100 is one; of a profile that does not change,
	// the share of all that is not idle. Total counts what a function calls, too; for other
	// rows it is the same.
	Self, Total float64
	Samples     uint64
	// Top is the function that most of the samples fell on.
	Top string
}

// name is what the row is called.
func (r *Row) name(l Level) string {
	switch l {
	case Containers:
		return r.Container
	case Processes:
		return r.Command
	}
	return r.Function
}

// Table is what a window adds up to.
type Table struct {
	Level Level
	Rows  []Row // the largest first
	// Shares: percentages are of the profile, and not of a CPU.
	Shares bool
	// Busy and Idle are shares in percent, of everything in the window.
	Busy, Idle float64
	Samples    uint64
	// Lost are the samples that were lost.
	Lost uint64
	Span time.Duration
}

// Window keeps the slices of the last seconds. It is for one goroutine.
type Window struct {
	length time.Duration
	slices []timedSlice
	shares bool
	event  string // "": that with the most samples
}

type timedSlice struct {
	analysis.Slice
	came time.Time
}

// NewWindow keeps slices for so long.
func NewWindow(length time.Duration) *Window { return &Window{length: length} }

// Add adds the next slice. Now is the time by the caller's clock.
func (w *Window) Add(s analysis.Slice, now time.Time) {
	w.slices = append(w.slices, timedSlice{s, now})
	w.Forget(now)
}

// NewProfile is a window of one profile, which does not change.
func NewProfile(p *profile.Profile) *Window {
	s := analysis.Slice{Profile: p, To: uint64(p.Meta.Duration)}
	return &Window{slices: []timedSlice{{Slice: s}}, shares: true}
}

// next takes the next event, of those that there are.
func (w *Window) next() {
	list := w.events()
	if i := slices.Index(list, w.eventName()); i >= 0 {
		w.event = list[(i+1)%len(list)]
	}
}

// events are the names of those that there are, in order.
func (w *Window) events() (list []string) {
	for _, s := range w.slices {
		for i := range s.Events {
			list = append(list, s.Events[i].Name)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// eventName is the event that is shown.
func (w *Window) eventName() string {
	if w.event != "" {
		return w.event
	}
	name, most := "", uint64(0)
	for _, s := range w.slices {
		for i := range s.Events {
			if e := &s.Events[i]; e.Samples > most {
				name, most = e.Name, e.Samples
			}
		}
	}
	return name
}

// late is how much longer than the window a slice is kept that nothing follows.
const late = 2 * time.Second

// Forget drops what is too old: by the recording's clock, and by the caller's where nothing
// comes any more.
func (w *Window) Forget(now time.Time) {
	if len(w.slices) == 0 || w.shares {
		return
	}
	newest := w.slices[len(w.slices)-1].To
	w.slices = slices.DeleteFunc(w.slices, func(s timedSlice) bool {
		return s.To+uint64(w.length) <= newest || now.Sub(s.came) > w.length+late
	})
}

// idleTask is what the kernel calls the task of a CPU that has nothing to do.
const idleTask = "swapper"

// adder adds one row up.
type adder struct {
	row         Row
	self, total uint64
	tops        map[string]uint64
}

// key tells rows apart.
type key struct {
	container        string
	pid              int32
	function, object string
}

// Table adds the window up.
func (w *Window) Table(l Level, only Selection) *Table {
	t := &Table{Level: l}
	if len(w.slices) == 0 {
		return t
	}
	span := w.slices[len(w.slices)-1].To - w.slices[0].From
	t.Span = time.Duration(span)
	rows := make(map[key]*adder)
	var busy, idle uint64
	event := w.eventName()
	for _, s := range w.slices {
		t.Lost += s.TotalLost("")
		for sample := range s.Samples() {
			if s.Events[sample.Event].Name != event {
				continue // a table has one unit
			}
			labels := s.Labels(sample.Labels)
			t.Samples += sample.Count
			if labels.PID == 0 && labels.Comm == idleTask {
				idle += sample.Value
				continue
			}
			busy += sample.Value
			container := cmp.Or(labels.Container, profile.Host)
			if only.Container != "" && only.Container != container || only.PID != 0 && only.PID != labels.PID {
				continue
			}
			one := &counted{&s.Slice, sample, labels, container}
			one.add(rows, l)
		}
	}
	t.Shares = w.shares
	if w.shares {
		span = busy
	}
	share := func(ns uint64) float64 { return 100 * float64(ns) / float64(max(span, 1)) }
	t.Busy, t.Idle = share(busy), share(idle)
	if w.shares {
		t.Idle = 100 * float64(idle) / float64(max(busy+idle, 1))
	}
	for _, a := range rows {
		a.row.Self, a.row.Total, a.row.Top = share(a.self), share(a.total), a.top()
		t.Rows = append(t.Rows, a.row)
	}
	t.Sort(BySelf)
	return t
}

// counted is a sample that counts.
type counted struct {
	slice     *analysis.Slice
	sample    profile.Sample
	labels    *profile.Labels
	container string
}

// add adds the sample to its rows.
func (c *counted) add(rows map[key]*adder, l Level) {
	stack := c.slice.Stack(c.sample.Stack)
	leaf := ""
	if len(stack) > 0 {
		f := c.slice.Frame(stack[0])
		leaf = functionName(&f)
	}
	switch l {
	case Containers:
		a := of(rows, key{container: c.container}, Row{Container: c.container})
		a.count(&c.sample, leaf)
	case Processes:
		a := of(rows, key{container: c.container, pid: c.labels.PID},
			Row{Container: c.container, PID: c.labels.PID, Command: c.labels.Comm})
		a.row.Command = c.labels.Comm // what it is called last
		a.count(&c.sample, leaf)
	case Functions:
		c.addFunctions(rows, stack)
	}
}

// addFunctions counts the sample for the function that it fell on, and once for each that called.
func (c *counted) addFunctions(rows map[key]*adder, stack []profile.FrameID) {
	if len(stack) == 0 {
		a := of(rows, key{function: unnamed}, Row{Function: unnamed})
		a.count(&c.sample, "")
		return
	}
	var seen [64]key // of a deep stack the callers beyond that may count twice
	known := seen[:0]
	for i, id := range stack {
		f := c.slice.Frame(id)
		k := key{function: functionName(&f), object: f.DSO}
		if slices.Contains(known, k) {
			continue
		}
		if len(known) < cap(known) {
			known = append(known, k)
		}
		a := of(rows, k, Row{Function: k.function, Object: k.object})
		if i == 0 {
			a.count(&c.sample, "")
		} else {
			a.total += c.sample.Value
		}
	}
}

func of(rows map[key]*adder, k key, row Row) *adder {
	a := rows[k]
	if a == nil {
		a = &adder{row: row}
		rows[k] = a
	}
	return a
}

func (a *adder) count(sample *profile.Sample, leaf string) {
	a.self += sample.Value
	a.total += sample.Value
	a.row.Samples += sample.Count
	if leaf == "" {
		return
	}
	if a.tops == nil {
		a.tops = make(map[string]uint64)
	}
	a.tops[leaf] += sample.Value
}

// top is the function that has most.
func (a *adder) top() (name string) {
	most := uint64(0)
	for f, n := range a.tops {
		if n > most || n == most && f < name {
			name, most = f, n
		}
	}
	return name
}

// unnamed is what a function without a name is called.
const unnamed = "[unknown]"

func functionName(f *profile.Frame) string {
	if f.Name != "" {
		return f.Name
	}
	if f.DSO != "" {
		return unnamed + " in " + f.DSO
	}
	return unnamed
}

// Order is by what rows are sorted.
type Order int

// Orders.
const (
	BySelf Order = iota
	ByTotal
	ByName
)

func (o Order) String() string { return [...]string{"self", "total", "name"}[o] }

// Sort sorts the rows; those that are equal by name.
func (t *Table) Sort(o Order) {
	slices.SortFunc(t.Rows, func(a, b Row) int {
		by := 0
		switch o {
		case BySelf:
			by = cmp.Compare(b.Self, a.Self)
		case ByTotal:
			by = cmp.Compare(b.Total, a.Total)
		}
		return cmp.Or(by, strings.Compare(a.name(t.Level), b.name(t.Level)), cmp.Compare(a.PID, b.PID),
			strings.Compare(a.Container, b.Container), strings.Compare(a.Object, b.Object))
	})
}

// Filter keeps the rows that have a text in them, whatever its case.
func (t *Table) Filter(text string) {
	if text == "" {
		return
	}
	text = strings.ToLower(text)
	t.Rows = slices.DeleteFunc(t.Rows, func(r Row) bool {
		has := []string{r.Container, r.Command, r.Function, r.Object, r.Top}
		if r.PID != 0 {
			has = append(has, strconv.Itoa(int(r.PID)))
		}
		return !slices.ContainsFunc(has, func(s string) bool { return strings.Contains(strings.ToLower(s), text) })
	})
}
