// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gantry-tools/gantry/analysis/disasm"
	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/analysis/symbol"
)

// Text writes a listing as perf annotate --stdio does: a line for each
// instruction, with its samples, and the source where it changes.
func Text(w io.Writer, l *Listing, o *Options) error {
	t := &text{out: bufio.NewWriter(w), l: l, width: o.Width}
	t.head(o)
	t.titles()
	var last []symbol.Call
	for i := range l.Lines {
		line := &l.Lines[i]
		t.source(line, last)
		last = line.Calls
		t.line(line)
	}
	t.out.WriteByte('\n')
	return t.out.Flush()
}

type text struct {
	out   *bufio.Writer
	l     *Listing
	width int
	addrs int // columns of addresses
}

// Columns of a line.
const (
	percentColumn = 7 // 100.00%
	samplesColumn = 7
	minAddress    = 7
)

// put writes a line, cut to the width.
func (t *text) put(s string) {
	s = strings.TrimRight(s, " ")
	if t.width > 1 && utf8.RuneCountInString(s) > t.width {
		s = string([]rune(s)[:t.width-1]) + "…"
	}
	t.out.WriteString(s)
	t.out.WriteByte('\n')
}

func (t *text) head(o *Options) {
	l := t.l
	head := func(name, format string, a ...any) {
		t.put(fmt.Sprintf("# %-9s %s", name, profile.Printable(fmt.Sprintf(format, a...))))
	}
	head("Function:", "%s", l.Name)
	switch {
	case len(l.Loads) > 0:
		programs, loaders := l.loads()
		head("Program:", "%s", programs)
		head("Loader:", "%s", loaders)
	case l.BuildID.IsZero():
		head("Object:", "%s", l.Path)
	default:
		head("Object:", "%s", l.Path)
		head("Build-id:", "%s", l.BuildID)
	}
	head("Samples:", "%d of event '%s', %.2f%% of all", l.Weight.Samples, l.Event, l.Percent())
	if o.Skid[l.Event] {
		head("Skid:", "samples may stand some instructions behind the one that took the")
		head("", "time: the event is not precise")
	}
	if l.Err != nil {
		head("No code:", "%v", l.Err)
	}
	if l.Note != "" {
		head("Code:", "%s", l.Note)
	}
	t.put("#")
}

// maxLoads bounds the programs, and their loaders, that are named.
const maxLoads = 4

// loads names the programs, and the containers that loaded them.
func (f *Function) loads() (programs, loaders string) {
	var p, c []string
	for _, l := range f.Loads {
		p = append(p, l.Program)
		if !slices.Contains(c, l.Loader) {
			c = append(c, l.Loader)
		}
	}
	return some(p), some(c)
}

func some(list []string) string {
	if n := len(list); n > maxLoads {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:maxLoads], " "), n-maxLoads)
	}
	return strings.Join(list, " ")
}

// short tells that addresses are shown by their distance from the function's
// start: those of the kernel are long, and those of BPF programs change.
func (t *text) short() bool { return t.l.Kernel }

func (t *text) address(addr uint64) string {
	if t.short() {
		return fmt.Sprintf("+%x", addr-t.l.Start)
	}
	return fmt.Sprintf("%x", addr)
}

func (t *text) titles() {
	t.addrs = minAddress
	if n := len(t.l.Lines); n > 0 {
		t.addrs = max(t.addrs, len(t.address(t.l.Lines[n-1].Addr)))
	}
	t.put(fmt.Sprintf("# %5s  %7s  %*s    %s", "Perc.", "Samples", t.addrs, "Address", "Code"))
	t.put(fmt.Sprintf("# %s  %s  %s    %s", strings.Repeat(".", percentColumn-2), strings.Repeat(".", samplesColumn),
		strings.Repeat(".", t.addrs), "...."))
}

// line writes an instruction.
func (t *text) line(line *Line) {
	head := strings.Repeat(" ", percentColumn+2+samplesColumn)
	if line.Weight.Samples > 0 {
		head = fmt.Sprintf("%6.2f%%  %7d", share(line.Weight, t.l.Weight), line.Weight.Samples)
	}
	mark := "  "
	if line.Label {
		mark = "> "
	}
	t.put(fmt.Sprintf("%s  %*s  %s%s", head, t.addrs, t.address(line.Addr), mark, t.code(line)))
}

// code is the assembler with names for the targets.
func (t *text) code(line *Line) string {
	if line.Insn.Size == 0 {
		return ""
	}
	code, hex := profile.Printable(line.Insn.Text), fmt.Sprintf("0x%x", line.Target)
	op, args, _ := strings.Cut(code, " ")
	code = strings.TrimRight(fmt.Sprintf("%-6s %s", op, args), " ")
	target := t.target(line)
	switch {
	case target == "":
		return code
	case line.Flow != disasm.Next && strings.Contains(code, hex):
		return strings.Replace(code, hex, target, 1)
	}
	return code + "  # " + target
}

// target is what an instruction leads to, "" if it is nothing.
func (t *text) target(line *Line) string {
	switch {
	case line.Target == 0:
		return ""
	case line.Own:
		return t.address(line.Target)
	case line.Name == "":
		return fmt.Sprintf("%x", line.Target)
	case line.Offset == 0:
		return profile.Printable(line.Name)
	}
	return fmt.Sprintf("%s+0x%x", profile.Printable(line.Name), line.Offset)
}

// source writes the lines of source of an instruction that are not those of the
// one before: the function's own, then, if they changed, the calls that were
// inlined there.
func (t *text) source(line *Line, last []symbol.Call) {
	calls := line.Calls
	if len(calls) == 0 || slices.Equal(calls, last) {
		return
	}
	indent := strings.Repeat(" ", percentColumn+2+samplesColumn+2+t.addrs+2)
	for n := 1; n < len(calls); n++ {
		outer, inner := &calls[len(calls)-n], &calls[len(calls)-n-1]
		if known := len(last) - n; known > 0 && last[known] == *outer && last[known-1].Name == inner.Name {
			continue
		}
		t.put(fmt.Sprintf("%s; at %s inlined %s", indent, place(outer), profile.Printable(inner.Name)))
	}
	t.put(fmt.Sprintf("%s; %s  %s", indent, place(&calls[0]), clean(line.Source)))
}

func place(c *symbol.Call) string {
	if c.File == "" {
		return "?"
	}
	return fmt.Sprintf("%s:%d", profile.Printable(path.Base(c.File)), c.Line)
}

// clean makes a line of source fit to be shown.
func clean(s string) string {
	return profile.Printable(strings.TrimSpace(strings.ReplaceAll(s, "\t", " ")))
}
