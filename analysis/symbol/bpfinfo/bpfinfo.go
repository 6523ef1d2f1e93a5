// SPDX-License-Identifier: Apache-2.0

// Package bpfinfo names what is in the machine code of BPF programs: it reads
// what a recording keeps of each program that was loaded (the sections
// BPF_PROG_INFO and BPF_BTF) and finds for an address the subprogram, the line
// of its source with its text, and the code.
//
// Programs are known by the id that the kernel gave them. It gives no id twice
// in one recording, whereas addresses are reused at once: which program was at
// an address when, KSYMBOL and BPF_EVENT records tell.
//
// Details come from whoever may load BPF programs, and from files. Nothing of
// them is trusted: arrays may be of different lengths, or lie.
package bpfinfo

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// Programs are the BPF programs of a recording. nil has none. It is not safe for
// use by several goroutines.
type Programs struct {
	byID map[uint32]*Program
}

// Program is one program.
type Program struct {
	*perfdata.BPFProgram
	// Life is what gantry's recorder knew of it; nil if another recorded.
	Life *perfdata.BPFProgramLife

	types *perfdata.BTF // nil if it has none
	ready bool          // subs and lines are made
	subs  []Sub
	lines []line // in the order of addresses
}

// Sub is a subprogram; the main program is the first.
type Sub struct {
	Start, End uint64
	// Name is the function's in the source, "" if the program has no BTF.
	Name string
	code []byte
}

// line is where the code of a line begins.
type line struct {
	addr uint64
	n    int // of Lines
}

// Line is a place in the source of a program.
type Line struct {
	File         string // as the compiler knew it
	Line, Column uint32
	Text         string // the line itself, as the compiler saw it
}

// Read reads the sections of a recording: those of perf and, for lives, that of
// gantry. An error tells what of them is damaged; the rest is there.
func Read(f *perfdata.Features, o perf.Order) (*Programs, error) {
	if len(f.BPFProgInfo) == 0 {
		return nil, nil
	}
	progs, err := perfdata.DecodeBPFPrograms(f.BPFProgInfo, o)
	btfs, errBTF := perfdata.DecodeBPFBTF(f.BPFBTF, o)
	if len(f.BPFBTF) == 0 {
		errBTF = nil
	}
	lives, errLives := perfdata.DecodeGantryBPF(f.Gantry)
	p, errNames := New(progs, btfs, lives, o)
	return p, errors.Join(err, errBTF, errLives, errNames)
}

// New makes Programs of what was decoded, with BTF in the order o. It keeps what
// it is given. An error tells of the first BTF that cannot be read.
func New(progs []perfdata.BPFProgram, btfs []perfdata.BPFBTF, lives []perfdata.BPFProgramLife,
	o perf.Order) (*Programs, error) {
	p := &Programs{byID: make(map[uint32]*Program, len(progs))}
	var bad error
	types := make(map[uint32]*perfdata.BTF, len(btfs))
	for i := range btfs {
		names, err := perfdata.ParseBTF(btfs[i].Data, o)
		types[btfs[i].ID] = names
		if err != nil && bad == nil {
			bad = fmt.Errorf("BTF %d: %w", btfs[i].ID, err)
		}
	}
	for i := range progs {
		prog := &Program{BPFProgram: &progs[i]}
		if progs[i].BTFID != 0 {
			prog.types = types[progs[i].BTFID]
		}
		p.byID[prog.ID] = prog
	}
	for i := range lives {
		if prog := p.byID[lives[i].ID]; prog != nil {
			prog.Life = &lives[i]
		}
	}
	return p, bad
}

// maxSubs bounds the subprograms of a program. The kernel allows 256.
const maxSubs = 1024

// layOut finds out where the subprograms and the lines are, at the first look-up.
func (p *Program) layOut() {
	if p.ready {
		return
	}
	p.ready = true
	code := p.JITed
	for i, start := range p.KSyms[:min(len(p.KSyms), len(p.FuncLens), maxSubs)] {
		size := uint64(p.FuncLens[i])
		s := Sub{Start: start, End: start + size}
		if s.End < start {
			break
		}
		if size <= uint64(len(code)) {
			s.code, code = code[:size:size], code[size:]
		} else {
			code = nil // the lengths are not those of the code
		}
		if i < len(p.Funcs) {
			s.Name = p.types.Func(p.Funcs[i].Type)
		}
		p.subs = append(p.subs, s)
	}
	for i := range min(len(p.JITedLines), len(p.Lines)) {
		p.lines = append(p.lines, line{p.JITedLines[i], i})
	}
	slices.SortStableFunc(p.lines, func(a, b line) int {
		switch {
		case a.addr < b.addr:
			return -1
		case a.addr > b.addr:
			return 1
		}
		return 0
	})
}

// Program is the program with an id; nil if nothing is known of it.
func (p *Programs) Program(id uint32) *Program {
	if p == nil {
		return nil
	}
	return p.byID[id]
}

// Len is the number of programs.
func (p *Programs) Len() int {
	if p == nil {
		return 0
	}
	return len(p.byID)
}

// FullName is the name of the program in its source. The kernel's own is cut to
// 15 bytes; that of the main function is not.
func (p *Program) FullName() string {
	p.layOut()
	if len(p.subs) > 0 && (p.Name == "" || strings.HasPrefix(p.subs[0].Name, p.Name)) && p.subs[0].Name != "" {
		return p.subs[0].Name
	}
	return p.Name
}

// Subs are the subprograms; the main program is the first. They must not be
// changed.
func (p *Program) Subs() []Sub {
	p.layOut()
	return p.subs
}

// Sub is the subprogram that an address lies in.
func (p *Program) Sub(addr uint64) (*Sub, bool) {
	p.layOut()
	for i := range p.subs {
		if s := &p.subs[i]; addr >= s.Start && addr < s.End {
			return s, true
		}
	}
	return nil, false
}

// Code is the machine code of the subprogram; nil if it was not kept. It must
// not be changed.
func (s *Sub) Code() []byte { return s.code }

// Line is the line of source that an address of the program's code was made of.
func (p *Program) Line(addr uint64) (Line, bool) {
	sub, ok := p.Sub(addr)
	if !ok {
		return Line{}, false
	}
	i, found := slices.BinarySearchFunc(p.lines, addr, func(l line, addr uint64) int {
		if l.addr <= addr {
			return -1
		}
		return 1
	})
	_ = found // no line is equal: i is the first behind addr
	if i == 0 || p.lines[i-1].addr < sub.Start {
		return Line{}, false
	}
	l := &p.Lines[p.lines[i-1].n]
	return Line{File: p.types.String(l.File), Line: l.Line(), Column: l.Column(), Text: p.types.String(l.Text)}, true
}
