// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import "strings"

// formatSyntax writes a parsed spec so that parsing gives the same again.
func formatSyntax(list []groupSyntax) string {
	var b strings.Builder
	for i := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		list[i].format(&b)
	}
	return b.String()
}

func (g *groupSyntax) format(b *strings.Builder) {
	if g.braces {
		b.WriteByte('{')
	}
	for i := range g.events {
		if i > 0 {
			b.WriteByte(',')
		}
		g.events[i].format(b)
	}
	if g.braces {
		b.WriteByte('}')
	}
	if g.mods.text != "" {
		b.WriteString(":" + g.mods.text)
	}
}
