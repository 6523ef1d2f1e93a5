// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/gantry-tools/gantry/container"
)

// Status is what the first line says beside the table.
type Status struct {
	// Event is what is sampled, CPUs how many there are, Own the share of a CPU that this
	// program takes, in percent.
	Event string
	CPUs  int
	Own   float64
	// Note is said while there is nothing else to say.
	Note string
}

// Widths of columns; names have what is left.
const (
	shareWidth  = 7
	countWidth  = 8
	pidWidth    = 8
	objectShare = 3 // of so many parts of a line an object has one
)

// column is a column of a table.
type column struct {
	title string
	width int // negative: to the left
	text  func(*Row) string
}

func percent(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

// columns are those of a level in lines of a width.
func columns(l Level, width int, shares bool) []column {
	self := column{"CPU %", shareWidth, func(r *Row) string { return percent(r.Self) }}
	if shares {
		self.title = "SHARE %"
	}
	samples := column{"SAMPLES", countWidth, func(r *Row) string { return strconv.FormatUint(r.Samples, 10) }}
	top := column{"TOP FUNCTION", -1, func(r *Row) string { return r.Top }}
	switch l {
	case Containers:
		return []column{self, samples,
			{"CONTAINER", -max(16, width/objectShare), func(r *Row) string { return r.Container }}, top}
	case Processes:
		return []column{self, samples, {"PID", pidWidth, func(r *Row) string { return strconv.Itoa(int(r.PID)) }},
			{"COMMAND", -16, func(r *Row) string { return r.Command }},
			{"CONTAINER", -max(12, width/5), func(r *Row) string { return r.Container }}, top}
	}
	return []column{self, {"TOTAL %", shareWidth, func(r *Row) string { return percent(r.Total) }}, samples,
		{"OBJECT", -max(12, width/5), func(r *Row) string { return r.Object }},
		{"FUNCTION", -1, func(r *Row) string { return r.Function }}}
}

// cells is a line of a table, in at most width columns.
func cells(list []column, text func(*column) string, width int) string {
	var b strings.Builder
	for i := range list {
		c := &list[i]
		if i > 0 {
			b.WriteByte(' ')
		}
		value := container.Printable(text(c))
		last := i == len(list)-1
		switch n := max(c.width, -c.width); {
		case last:
			b.WriteString(value)
		case c.width > 0:
			b.WriteString(strings.Repeat(" ", max(0, n-ansi.StringWidth(value))) + value)
		default:
			value = ansi.Truncate(value, n, "~")
			b.WriteString(value + strings.Repeat(" ", max(0, n-ansi.StringWidth(value))))
		}
	}
	return ansi.Truncate(strings.TrimRight(b.String(), " "), width, "~")
}

// Heading is the line above a table.
func (t *Table) Heading(width int) string {
	return cells(columns(t.Level, width, t.Shares), func(c *column) string { return c.title }, width)
}

// Line is a row as text.
func (t *Table) Line(i, width int) string {
	return cells(columns(t.Level, width, t.Shares), func(c *column) string { return c.text(&t.Rows[i]) }, width)
}

// Summary is the line about everything.
func (t *Table) Summary(s *Status, width int) string {
	if t.Shares {
		text := fmt.Sprintf("%s: %d samples in %.1f s, %.1f %% idle", s.Event, t.Samples, t.Span.Seconds(), t.Idle)
		if t.Lost > 0 {
			text += fmt.Sprintf(", %d lost", t.Lost)
		}
		return ansi.Truncate(text+"; "+s.Note, width, "~")
	}
	if t.Span == 0 {
		return ansi.Truncate(s.Event+"; "+s.Note, width, "~")
	}
	text := fmt.Sprintf("%.0f s of %s", t.Span.Seconds(), s.Event)
	text += fmt.Sprintf("; CPU %s %% of %d", percent(t.Busy), 100*s.CPUs)
	if t.Idle > 0 {
		text += fmt.Sprintf(", idle %s", percent(t.Idle))
	}
	if t.Lost > 0 {
		text += fmt.Sprintf("; %d lost", t.Lost)
	}
	return ansi.Truncate(text+fmt.Sprintf("; gantry %.1f %%", s.Own), width, "~")
}
