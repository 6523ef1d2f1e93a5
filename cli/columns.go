// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// tableWidth is the width that a table is cut to, 0 for none: that of the terminal,
// or COLUMNS. Nothing is cut into a pipe or a file.
func tableWidth(w io.Writer) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	return terminalWidth(w)
}

// cutting is where a cell may lose text to make the table fit.
type cutting uint8

const (
	cutNever cutting = iota
	cutEnd
	cutBegin // of paths: the end tells more
)

// minCut is what a cut column keeps at least, if its title is not longer.
const minCut = 6

// gap is between two columns.
const gap = "  "

// column is a column of a table, top to bottom.
type column struct {
	title string
	cells []string
	cut   cutting
	keep  int  // width that is not cut
	right bool // aligned, for numbers
}

func (c *column) least() int {
	return max(minCut, c.keep, utf8.RuneCountInString(c.title))
}

func (c *column) empty() bool {
	return !slices.ContainsFunc(c.cells, func(s string) bool { return s != "" })
}

func (c *column) width() int {
	n := utf8.RuneCountInString(c.title)
	for _, s := range c.cells {
		n = max(n, utf8.RuneCountInString(s))
	}
	return n
}

// writeColumns writes a table, cut to width columns if that is not 0. Cells
// must be printable; an empty one is written as "-".
func writeColumns(w io.Writer, cols []column, width int) error {
	for i := range cols {
		for j, s := range cols[i].cells {
			if s == "" {
				cols[i].cells[j] = "-"
			}
		}
	}
	widths := fit(cols, width)
	b := bufio.NewWriter(w)
	writeRow(b, cols, widths, func(c *column) string { return c.title })
	for row := range cols[0].cells {
		writeRow(b, cols, widths, func(c *column) string { return c.cells[row] })
	}
	return b.Flush()
}

func writeRow(b *bufio.Writer, cols []column, widths []int, cell func(*column) string) {
	var line strings.Builder
	for i := range cols {
		c := &cols[i]
		s := shorten(cell(c), widths[i], c.cut)
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(s))
		if i > 0 {
			line.WriteString(gap)
		}
		if c.right {
			line.WriteString(pad + s)
		} else {
			line.WriteString(s + pad)
		}
	}
	fmt.Fprintln(b, strings.TrimRight(line.String(), " "))
}

// fit is the width of each column: as wide as it wants, and the widest of
// those that may be cut the narrower, the more the table is too wide.
func fit(cols []column, width int) []int {
	widths := make([]int, len(cols))
	total := len(gap) * (len(cols) - 1)
	for i := range cols {
		widths[i] = cols[i].width()
		total += widths[i]
	}
	for ; width > 0 && total > width; total-- {
		widest := -1
		for i := range cols {
			if cols[i].cut != cutNever && widths[i] > cols[i].least() && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}

// shorten cuts s to width, unless that is 0.
func shorten(s string, width int, where cutting) string {
	n := utf8.RuneCountInString(s)
	if n <= width || width == 0 {
		return s
	}
	runes := []rune(s)
	if where == cutBegin {
		return "…" + string(runes[n-width+1:])
	}
	return string(runes[:width-1]) + "…"
}
