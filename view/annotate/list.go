// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/gantry-tools/gantry/analysis/disasm"
	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/perf"
)

// Listing is a function with its code.
type Listing struct {
	*Function
	// Err says why there is no code. Then Lines have nothing but addresses.
	Err   error
	Lines []Line
	// Note says how the code was disassembled, if not by package disasm alone.
	Note string
}

// Line is an instruction.
type Line struct {
	Addr uint64
	Weight
	disasm.Insn
	// Label: an instruction of the function jumps here.
	Label bool
	// Name is what Target lies in, "" if not known, and Offset how far behind
	// its start. Own: it is the function itself.
	Name   string
	Offset uint64
	Own    bool
	// Calls are the lines of source, as symbol.Lines gives them, and Source the
	// text of the first.
	Calls  []symbol.Call
	Source string
}

// List puts the code of a function together. Its samples are those of the
// function, all of them.
func List(f *Function, arch perf.Arch, o *Options) *Listing {
	l := &Listing{Function: f}
	code, err := f.Code()
	if err == nil && arch == perf.NoArch {
		err = fmt.Errorf("code of this machine cannot be shown, only that of x86-64 and arm64")
	}
	if err != nil {
		l.Err = err
		l.addRest(0)
		return l
	}
	for _, in := range l.disassemble(arch, code, o) {
		l.Lines = append(l.Lines, Line{Addr: in.Addr, Insn: in})
	}
	l.weigh()
	l.addRest(uint64(len(code)))
	l.resolve()
	l.addSource(o)
	return l
}

// disassemble asks package disasm, and then a better one if there is something
// that it does not know.
func (l *Listing) disassemble(arch perf.Arch, code []byte, o *Options) []disasm.Insn {
	list, unknown := disasm.Disassemble(arch, code, l.Start)
	if unknown == 0 {
		return list
	}
	what := fmt.Sprintf("%d instructions", unknown)
	if unknown == 1 {
		what = "1 instruction"
	}
	if o.Disassemble == nil {
		l.Note = what + " shown as data: install objdump (binutils)"
		return list
	}
	better, err := o.Disassemble(arch, code, l.Start)
	if err != nil {
		l.Note = what + " shown as data: objdump does not help: " + err.Error()
		return list
	}
	l.Note = "shown by objdump: gantry does not know " + what
	return better
}

// weigh gives each sample to the instruction that its address lies in.
func (l *Listing) weigh() {
	for off, w := range l.at {
		addr := l.Start + off
		i := sort.Search(len(l.Lines), func(i int) bool { return l.Lines[i].Addr > addr }) - 1
		if i < 0 || addr-l.Lines[i].Addr >= uint64(l.Lines[i].Size) {
			continue // behind the code
		}
		l.Lines[i].Samples += w.Samples
		l.Lines[i].Value += w.Value
	}
}

// addRest adds the addresses behind size bytes of code, of which nothing is
// known.
func (l *Listing) addRest(size uint64) {
	for _, off := range slices.Sorted(maps.Keys(l.at)) {
		if off >= size {
			l.Lines = append(l.Lines, Line{Addr: l.Start + off, Weight: l.at[off]})
		}
	}
}

// resolve names what instructions lead to.
func (l *Listing) resolve() {
	at := make(map[uint64]int, len(l.Lines))
	for i := range l.Lines {
		at[l.Lines[i].Addr] = i
	}
	for i := range l.Lines {
		line := &l.Lines[i]
		switch {
		case line.Target == 0:
		case line.Target >= l.Start && line.Target < l.End:
			line.Own, line.Offset = true, line.Target-l.Start
			if line.Flow == disasm.Jump {
				if to, ok := at[line.Target]; ok {
					l.Lines[to].Label = true
				}
			}
		default:
			line.Name, line.Offset = l.Function.Target(line.Target)
		}
	}
}

// addSource finds the lines of source, where they change.
func (l *Listing) addSource(o *Options) {
	texts := sources{f: l.Function, files: make(map[string]*sourceFile)}
	var calls []symbol.Call
	for i := range l.Lines {
		line := &l.Lines[i]
		calls = l.Calls(calls[:0], line.Addr)
		if i > 0 && slices.Equal(calls, l.Lines[i-1].Calls) {
			line.Calls, line.Source = l.Lines[i-1].Calls, l.Lines[i-1].Source
			continue
		}
		line.Calls = slices.Clone(calls)
		if o.NoSource || len(line.Calls) == 0 {
			continue
		}
		if text, ok := l.Text(line.Addr); ok {
			line.Source = text
			continue
		}
		line.Source = texts.line(&line.Calls[0])
	}
}

// sources are the files that a binary was made of, as far as they are here.
type sources struct {
	f     *Function
	files map[string]*sourceFile
	size  int64 // of all
}

// sourceFile is a file, and where each of its lines begins.
type sourceFile struct {
	text  string
	lines []uint32
}

// maxSource bounds the source that is read for one function, maxSources the
// number of files.
const (
	maxSource  = 16 << 20
	maxSources = 256
	maxLine    = 4 << 10 // of one line, as of BTF
)

func (s *sources) line(c *symbol.Call) string {
	f, ok := s.files[c.File]
	if !ok && len(s.files) < maxSources {
		f = s.read(c.File)
		s.files[c.File] = f
	}
	if f == nil || c.Line == 0 || uint64(c.Line) > uint64(len(f.lines)) {
		return ""
	}
	text, _, _ := strings.Cut(f.text[f.lines[c.Line-1]:], "\n")
	return text[:min(len(text), maxLine)]
}

// read reads a file of source, nil if there is none. A path that is not absolute
// leads nowhere: it would depend on where gantry was started.
func (s *sources) read(path string) *sourceFile {
	if !strings.HasPrefix(path, "/") {
		return nil
	}
	f, size, err := s.f.OpenSource(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	if s.size+size > maxSource {
		return nil
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); err != nil && n < len(b) || bytes.IndexByte(b, 0) >= 0 {
		return nil // not whole, or no source
	}
	s.size += size
	out := &sourceFile{text: string(b), lines: []uint32{0}}
	for i := range b {
		if b[i] == '\n' {
			out.lines = append(out.lines, uint32(i+1))
		}
	}
	return out
}
