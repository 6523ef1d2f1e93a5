// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gantry-tools/gantry/analysis/profile"
)

//go:embed ui/flame.css
var flameCSS string

//go:embed ui/flame.js
var flameJS string

// What a viewer without scripts sees, and where the script starts from.
const (
	svgWidth    = 1200
	svgMargin   = 12
	svgRow      = 18  // height of a box, with the gap below it
	svgChar     = 6.6 // width of a letter of the boxes' font
	svgLegendY  = 64
	svgLegend   = 20 // height of a line of the legend
	svgBar      = 26 // the line of details at the bottom
	svgMaxChips = 10 // as many as there are colours
)

// SVG writes a flame graph as one file that needs no other: open it in a
// browser to zoom, search and read; it also shows as a plain picture. The root
// is at the top, the levels of Options.Roots first. It draws one event, the
// first that has samples and passes the filter.
func SVG(w io.Writer, p *profile.Profile, o *Options) error {
	o = o.orDefault()
	s := svgWriter{out: bufio.NewWriterSize(w, 1<<16), p: p, o: o, f: newFlame(p, o)}
	names := make([]string, len(s.f.roots))
	for i := range names {
		names[i] = s.f.roots[i].name
	}
	s.hues = chooseHues(names)
	s.chips()
	s.write()
	if err := s.out.Flush(); err != nil {
		return fmt.Errorf("write svg: %w", err)
	}
	return nil
}

type svgWriter struct {
	out   *bufio.Writer
	p     *profile.Profile
	o     *Options
	f     *flame
	hues  []int // of the roots, see chooseHues
	chip  []svgChip
	lines int // of the legend
}

// svgChip is one entry of the legend.
type svgChip struct {
	class, text string
	x, y        int
}

func (s *svgWriter) write() {
	top := svgLegendY + s.lines*svgLegend + 4
	height := top + max(s.f.depth, 1)*svgRow + 8 + svgBar
	fmt.Fprintf(s.out, `<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" version="1.1" width="%d" height="%d" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="11">
<style><![CDATA[
%s%s]]></style>
<rect id="paper" width="100%%" height="100%%"/>
<text id="title" x="%d" y="28">%s</text>
<text id="sub" x="%d" y="48">%s</text>
`, svgWidth, height, flameCSS, s.colours(), svgMargin, xmlText(s.title()), svgMargin, xmlText(s.subtitle()))
	fmt.Fprintf(s.out, "<g id=\"legend\" data-level=\"%d\">\n", s.f.level)
	for _, c := range s.chip {
		fmt.Fprintf(s.out, "<g class=\"chip %s\" transform=\"translate(%d,%d)\"><rect y=\"2\" width=\"11\" "+
			"height=\"11\" rx=\"2\"/><text x=\"17\" y=\"11.5\">%s</text></g>\n",
			c.class, c.x, c.y, xmlText(c.text))
	}
	fmt.Fprintf(s.out, "</g>\n<svg id=\"frames\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\">\n",
		svgMargin, top, svgWidth-2*svgMargin, max(s.f.depth, 1)*svgRow)
	for i := range s.f.boxes {
		s.box(&s.f.boxes[i])
	}
	if len(s.f.boxes) == 0 {
		s.out.WriteString("<text x=\"0\" y=\"13\">no samples</text>\n")
	}
	fmt.Fprintf(s.out, "</svg>\n<g id=\"bar\" transform=\"translate(0,%d)\"><rect width=\"100%%\" "+
		"height=\"%d\"/><text id=\"details\" x=\"%d\" y=\"17\"></text></g>\n",
		height-svgBar, svgBar, svgMargin)
	fmt.Fprintf(s.out, "<script><![CDATA[\n%s]]></script>\n</svg>\n", flameJS)
}

func (s *svgWriter) title() string {
	if s.o.Title != "" {
		return s.o.Title
	}
	title := "gantry flame graph"
	if len(s.p.Events) > 0 {
		title = s.p.Events[s.f.event].Name
	}
	if len(s.o.Roots) > 0 {
		title += " by " + string(s.o.Roots[0])
	}
	return title
}

// subtitle says what was measured, and what the picture leaves out.
func (s *svgWriter) subtitle() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	event := ""
	if len(s.p.Events) > 0 {
		event = s.p.Events[s.f.event].Name
	}
	add("%s: %s samples", event, grouped(s.f.total.samples))
	if d := s.p.Meta.Duration; d > 0 {
		add("%s", d.Round(10*time.Millisecond))
	}
	if s.p.Meta.Hostname != "" {
		add("host %s", s.p.Meta.Hostname)
	}
	add("%s lost", grouped(s.p.TotalLost(event)))
	if s.f.total.unresolved > 0 {
		add("%s unresolved", percentText(s.f.total.unresolved, s.f.total.samples))
	}
	if s.f.cut > 0 {
		add("%s below %.2f%% not drawn (%s)", plural(uint64(s.f.cut), "branch", "branches"), 100*flameMinShare,
			percentText(s.f.cutValue, s.f.total.value))
	}
	if s.f.others > 0 {
		add("%s not drawn", plural(uint64(s.f.others), "other event", "other events"))
	}
	if !s.o.Filter.empty() {
		add("only %s", s.o.Filter.String())
	}
	return strings.Join(parts, " · ")
}

// chips lays out the legend, as the script does again for the real width.
func (s *svgWriter) chips() {
	x, shown := svgMargin, min(len(s.f.roots), svgMaxChips)
	s.lines = 1
	place := func(class, text string) {
		w := 30 + int(float64(textWidth(profile.Printable(text)))*svgChar)
		if x > svgMargin && x+w > svgWidth-svgMargin {
			x = svgMargin
			s.lines++
		}
		s.chip = append(s.chip, svgChip{class, text, x, svgLegendY + (s.lines-1)*svgLegend})
		x += w
	}
	for i, r := range s.f.roots[:shown] {
		place("root "+s.colourClass(i),
			cut(profile.Printable(r.name), 40, false)+" "+percentText(r.value, s.f.total.value))
	}
	var rest uint64
	for _, r := range s.f.roots[shown:] {
		rest += r.value
	}
	if n := len(s.f.roots) - shown; n > 0 {
		place("more", fmt.Sprintf("%d more %s", n, percentText(rest, s.f.total.value)))
	}
	place("user", "user")
	place("kernel", "kernel: darker")
}

// box draws one function or label. The numbers for the script are exact; the
// positions for viewers without scripts are rounded.
func (s *svgWriter) box(b *box) {
	total := float64(max(s.f.total.value, 1))
	x, w := 100*float64(b.start)/total, 100*float64(b.value)/total
	y := b.depth * svgRow
	fmt.Fprintf(s.out, "<g class=\"%s\" data-b=\"%d,%d,%d\"><title>%s\n%s</title><rect x=\"%.3f%%\" y=\"%d\" "+
		"width=\"%.3f%%\" height=\"%d\"/>",
		s.boxClass(b), b.depth, b.start, b.value, xmlText(b.name), xmlText(s.boxText(b)), x, y, w, svgRow-1)
	if name := fitName(b.name, w/100*(svgWidth-2*svgMargin)); name != "" {
		fmt.Fprintf(s.out, "<text x=\"%.3f%%\" dx=\"4\" y=\"%d\">%s</text>", x, y+12, xmlText(name))
	}
	s.out.WriteString("</g>\n")
}

// boxText is what a tooltip says below the name.
func (s *svgWriter) boxText(b *box) string {
	text := percentText(b.value, s.f.total.value)
	if !b.rest {
		text = fmt.Sprintf("%s samples, %s", grouped(b.count), text)
	}
	if b.root >= 0 && b.depth > s.f.level {
		r := &s.f.roots[b.root]
		text += fmt.Sprintf(", %s of %s", percentText(b.value, r.value), r.name)
	}
	if b.dso != "" {
		text += ", in " + b.dso
	}
	return text
}

// fitName is how much of a name a box of so many pixels shows. A path in front
// of the name, as Go has it, goes first.
func fitName(name string, px float64) string {
	name = profile.Printable(name)
	letters := int((px - 8) / svgChar)
	if letters < 3 {
		return ""
	}
	if textWidth(name) > letters {
		end := len(name)
		if i := strings.IndexAny(name, "(<[ "); i > 0 {
			end = i
		}
		name = name[strings.LastIndexByte(name[:end], '/')+1:]
	}
	return cut(name, letters, false)
}

func percentText(part, whole uint64) string { return fmt.Sprintf("%.2f%%", share(part, whole)) }

// grouped writes 1234567 as 1,234,567.
func grouped(n uint64) string {
	digits := fmt.Sprint(n)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// xmlText makes any bytes safe as text and in attributes. Names never come
// into the script: it reads them back from the document, as text.
func xmlText(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'",
		"&#39;").Replace(profile.Printable(s))
}
