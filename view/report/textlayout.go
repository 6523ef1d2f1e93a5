// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"cmp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// layout is the columns of a section.
type layout struct {
	t       *table
	columns []column
	digits  []byte // room for a number
	line    []byte // room for a row
}

// column shows either a number of each row or, for a sort key, one of texts
// that many rows share: each is made and measured once.
type column struct {
	title  string
	number func(dst []byte, r *row) []byte
	cell   func(r *row) *cell

	width      int
	alignRight bool
	percent    bool
	fixed      bool // never shrunk
	tail       bool // when cut, the end is kept
	spare      int  // how much wider than the others it may stay
}

// cell is a text of a column: mark, then text, width wide in all.
type cell struct {
	mark, text string
	width      int // 0 is a cell that was not made yet
}

func newLayout(t *table, rows []*row) *layout {
	l := &layout{t: t}
	total := func(r *row) uint64 { return r.total }
	if t.o.Children {
		l.addPercent("Children", total)
		l.addPercent("    Self", func(r *row) uint64 { return r.self })
	} else {
		l.addPercent("Overhead", total)
	}
	if t.o.ShowSamples {
		l.columns = append(l.columns,
			column{title: "Samples", alignRight: true, fixed: true, number: func(dst []byte, r *row) []byte {
				return strconv.AppendUint(dst, r.totalCount, 10)
			}})
	}
	for _, k := range t.o.Sort {
		l.addKey(k)
	}
	l.fit(rows)
	return l
}

// addPercent adds a column of shares. Rows come by weight, so that a row's
// share is mostly that of the row before: it is formatted when it changes.
func (l *layout) addPercent(title string, v func(r *row) uint64) {
	var last []byte
	lastEvent, lastValue := ^uint32(0), uint64(0)
	l.columns = append(l.columns,
		column{title: title, alignRight: true, percent: true, fixed: true, number: func(dst []byte, r *row) []byte {
			if value := v(r); value != lastValue || r.event != lastEvent {
				lastEvent, lastValue = r.event, value
				last = append(strconv.AppendFloat(last[:0], l.t.events[r.event].percent(value), 'f', 2, 64), '%')
			}
			return append(dst, last...)
		}})
}

func (l *layout) addKey(k Key) {
	t, info := l.t, k.info()
	c := column{title: info.title, alignRight: info.number, fixed: info.number, tail: k == KeyCgroup || k == KeyImage}
	number, n := func(r *row) uint32 { return r.group }, len(t.groups)
	switch k {
	case KeySym:
		c.spare = symbolSpare
		fallthrough
	case KeySrcline, KeySrcfile, KeyBPF, KeyBPFLoader:
		number, n = func(r *row) uint32 { return r.key }, len(t.keys.list)
	case KeyDSO:
		number, n = func(r *row) uint32 { return t.keys.dso[r.key] }, len(t.keys.dsos)
	case KeyEvent:
		number, n = func(r *row) uint32 { return r.event }, len(t.events)
	}
	cells := make([]cell, n)
	c.cell = func(r *row) *cell {
		x := &cells[number(r)]
		if x.width == 0 {
			*x = t.cell(r, k)
		}
		return x
	}
	l.columns = append(l.columns, c)
}

// cell is what r shows in the column of a key.
func (t *table) cell(r *row, k Key) cell {
	var c cell
	switch k {
	case KeyEvent:
		c.text = t.p.Events[r.event].Name
	case KeyDSO:
		c.text = cmp.Or(t.keys.list[r.key].dso, unknown)
	case KeySrcline:
		c.text = t.keys.list[r.key].line()
	case KeySrcfile:
		c.text = t.keys.list[r.key].file()
	case KeyBPF:
		c.text = orDash(t.keys.list[r.key].program)
	case KeyBPFLoader:
		c.text = orDash(t.keys.list[r.key].loader)
	case KeySym:
		f := &t.keys.list[r.key]
		c.mark, c.text = f.level(), f.symbol()
	default:
		c.text = k.label(&t.groups[r.group])
	}
	c.text = profile.Printable(c.text)
	c.width = textWidth(c.mark) + textWidth(c.text)
	return c
}

// fit makes columns as wide as their texts, then takes from the widest until
// the line fits the terminal.
func (l *layout) fit(rows []*row) {
	line := 0
	for i := range l.columns {
		c := &l.columns[i]
		c.width = len(c.title)
		if !c.percent { // whose title is wider than 100.00%
			l.fitColumn(c, rows)
		}
		line += 2 + c.width
	}
	for ; l.t.o.Width > 0 && line > l.t.o.Width; line-- {
		widest := l.widest()
		if widest == nil {
			return
		}
		widest.width--
	}
}

// fitColumn makes c as wide as what the rows have in it. If these are all rows,
// it goes through them as they lie in memory.
func (l *layout) fitColumn(c *column, rows []*row) {
	all := l.t.rows
	for i, r := range rows {
		if len(rows) == len(all) {
			r = &all[i]
		}
		if c.cell != nil {
			c.width = max(c.width, c.cell(r).width)
			continue
		}
		l.digits = c.number(l.digits[:0], r)
		c.width = max(c.width, len(l.digits))
	}
}

func (l *layout) widest() *column {
	var widest *column
	for i := range l.columns {
		c := &l.columns[i]
		if !c.fixed && c.width > max(len(c.title), minColumn) &&
			(widest == nil || c.width-c.spare >= widest.width-widest.spare) {
			widest = c
		}
	}
	return widest
}

// minColumn leaves enough of a name to recognise it.
const minColumn = 8

// symbolSpare keeps the name of the function readable longest.
const symbolSpare = 16

// maxDots bounds the rule below the last title, whose texts may be very long.
const maxDots = 34

func (l *layout) writeTitles(out *bufio.Writer) {
	out.WriteByte('#')
	for i := range l.columns {
		out.WriteByte(' ')
		if i > 0 {
			out.WriteByte(' ')
		}
		title := l.columns[i].title
		out.Write(l.appendCell(nil, i, &cell{text: title, width: len(title)}))
	}
	out.WriteString("\n#")
	for i := range l.columns {
		c := &l.columns[i]
		width := c.width
		if i == len(l.columns)-1 {
			width = min(width, max(maxDots, len(c.title)))
		}
		out.WriteByte(' ')
		if i > 0 {
			out.WriteByte(' ')
		}
		out.WriteString(strings.Repeat(".", width))
	}
	out.WriteString("\n#\n")
}

// writeRow puts a line together before it writes it: most tables have tens of
// thousands of them, and a line many small parts.
func (l *layout) writeRow(out *bufio.Writer, r *row) {
	line := l.line[:0]
	for i := range l.columns {
		c := &l.columns[i]
		line = append(line, "  "...)
		if c.cell != nil {
			line = l.appendCell(line, i, c.cell(r))
			continue
		}
		l.digits = c.number(l.digits[:0], r)
		line = appendSpaces(line, c.width-len(l.digits))
		line = append(line, l.digits...)
	}
	l.line = append(line, '\n')
	out.Write(l.line)
}

// appendCell cuts x to the width of the column, and pads it if another one
// follows.
func (l *layout) appendCell(dst []byte, i int, x *cell) []byte {
	c := &l.columns[i]
	if x.width > c.width {
		*x = cell{text: cut(x.mark+x.text, c.width, c.tail), width: c.width}
	}
	if c.alignRight {
		dst = appendSpaces(dst, c.width-x.width)
	}
	dst = append(dst, x.mark...)
	dst = append(dst, x.text...)
	if !c.alignRight && i < len(l.columns)-1 {
		dst = appendSpaces(dst, c.width-x.width)
	}
	return dst
}

func appendSpaces(dst []byte, n int) []byte {
	const spaces = "                                                                "
	for ; n > len(spaces); n -= len(spaces) {
		dst = append(dst, spaces...)
	}
	return append(dst, spaces[:max(n, 0)]...)
}

// textWidth is how many columns a terminal takes for printable text. Letters
// of double width count as one: their columns are ragged, not wrong.
func textWidth(s string) int { return utf8.RuneCountInString(s) }

// cut shortens s to width, at its end or, with tail, at its beginning.
func cut(s string, width int, tail bool) string {
	n := textWidth(s)
	if n <= width {
		return s
	}
	if width <= 1 {
		return "…"
	}
	runes := []rune(s)
	if tail {
		return "…" + string(runes[n-width+1:])
	}
	return string(runes[:width-1]) + "…"
}
