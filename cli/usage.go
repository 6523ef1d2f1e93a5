// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"

	"github.com/spf13/pflag"
)

// The help of a command fits a terminal of helpWidth columns, with what a flag
// does from column helpIndent on.
const (
	helpWidth  = 80
	helpIndent = 26
)

// flagUsages are the flags of a set and what they do. A flag with a long
// value has a line of its own, so that it does not push all others to the
// right as pflag's table does.
func flagUsages(flags *pflag.FlagSet) string {
	var b strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		one := pflag.NewFlagSet("", pflag.ContinueOnError)
		one.AddFlag(f)
		_, usage := pflag.UnquoteUsage(f)
		left, right, ok := strings.Cut(one.FlagUsages(), "   "+usage)
		if !ok { // hidden
			return
		}
		left = strings.TrimRight(left, " ")
		pad := helpIndent - len(left)
		if pad < 2 {
			left += "\n"
			pad = helpIndent
		}
		b.WriteString(left + strings.Repeat(" ", pad))
		b.WriteString(wrap(usage+strings.TrimSuffix(right, "\n"), helpIndent, helpWidth) + "\n")
	})
	return b.String()
}

// wrap breaks text at blanks so that it fits width columns, of which the first
// indent are taken on every line: by what is printed before it, or by blanks.
// Blanks at the start of text stay and count as printed.
func wrap(text string, indent, width int) string {
	lead := text[:len(text)-len(strings.TrimLeft(text, " "))]
	columns := width - indent
	if lead != "" {
		columns = width
	}
	var b strings.Builder
	b.WriteString(lead)
	column, limit := len(lead), columns
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > limit:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column, limit = indent, width
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
