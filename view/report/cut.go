// SPDX-License-Identifier: Apache-2.0

package report

import "unicode/utf8"

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
