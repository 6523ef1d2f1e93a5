// SPDX-License-Identifier: Apache-2.0

package bpfinfo

import (
	"errors"
	"math"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// twoFunctions is a program of a main function and one more, of 4 bytes of code
// each, as the kernel tells of it.
func twoFunctions() (perfdata.BPFProgram, perfdata.BPFBTF) {
	data, off := testutil.MakeBTF([]string{"handle_packets_fast", "mix"}, "a.bpf.c", "\treturn mix(x);", "\tx *= 3;")
	line := func(insn uint32, text string, n uint32) perfdata.BPFLine {
		return perfdata.BPFLine{Insn: insn, File: off["a.bpf.c"], Text: off[text], LineCol: n<<10 | 2}
	}
	return perfdata.BPFProgram{
		ID: 5, Name: "handle_packets_", BTFID: 9, JITed: []byte{1, 2, 3, 4, 5, 6, 7, 8},
		KSyms: []uint64{0x1000, 0x2000}, FuncLens: []uint32{4, 4},
		Funcs:      []perfdata.BPFFunc{{Insn: 0, Type: 1}, {Insn: 2, Type: 2}},
		Lines:      []perfdata.BPFLine{line(0, "\treturn mix(x);", 7), line(2, "\tx *= 3;", 3), line(3, "\tx *= 3;", 4)},
		JITedLines: []uint64{0x1001, 0x2000, 0x2002},
	}, perfdata.BPFBTF{ID: 9, Data: data}
}

func TestLines(t *testing.T) {
	prog, types := twoFunctions()
	all, err := New([]perfdata.BPFProgram{prog}, []perfdata.BPFBTF{types}, []perfdata.BPFProgramLife{{ID: 5, UID: 3}, {ID: 6}}, perf.LittleEndian)
	if err != nil {
		t.Fatal(err)
	}
	p := all.Program(5)
	if p == nil || p.FullName() != "handle_packets_fast" || p.Life == nil || p.Life.UID != 3 || all.Len() != 1 || all.Program(6) != nil {
		t.Fatalf("%+v", p)
	}
	for addr, want := range map[uint64]uint32{0xfff: 0, 0x1000: 0, 0x1001: 7, 0x1003: 7, 0x1004: 0, 0x1fff: 0, 0x2000: 3, 0x2001: 3, 0x2003: 4, 0x2004: 0} {
		if l, _ := p.Line(addr); l.Line != want {
			t.Errorf("%#x is line %d, want %d", addr, l.Line, want)
		}
	}
	l, ok := p.Line(0x2001)
	if want := (Line{File: "a.bpf.c", Line: 3, Column: 2, Text: "\tx *= 3;"}); !ok || l != want {
		t.Errorf("%+v, want %+v", l, want)
	}
	sub, ok := p.Sub(0x2003)
	if !ok || sub.Name != "mix" || string(sub.Code()) != "\x05\x06\x07\x08" {
		t.Errorf("%+v", sub)
	}
}

// What the kernel, or a file, tells need not fit together.
func TestDetailsThatLie(t *testing.T) {
	for name, change := range map[string]func(*perfdata.BPFProgram){
		"code shorter than its functions": func(p *perfdata.BPFProgram) { p.FuncLens = []uint32{4, math.MaxUint32} },
		"no lengths":                      func(p *perfdata.BPFProgram) { p.FuncLens = nil },
		"end of the address space":        func(p *perfdata.BPFProgram) { p.KSyms[0] = math.MaxUint64 },
		"types that are none":             func(p *perfdata.BPFProgram) { p.Funcs[0].Type, p.Funcs[1].Type = math.MaxUint32, 0 },
		"strings out of range":            func(p *perfdata.BPFProgram) { p.Lines[0].File, p.Lines[0].Text = math.MaxUint32, 1<<20 },
		"more addresses than lines":       func(p *perfdata.BPFProgram) { p.Lines = p.Lines[:1] },
		"lines in no order":               func(p *perfdata.BPFProgram) { p.JITedLines = []uint64{0x2002, 0, 0x1001} },
		"another's BTF":                   func(p *perfdata.BPFProgram) { p.BTFID = 10 },
	} {
		t.Run(name, func(t *testing.T) {
			prog, types := twoFunctions()
			change(&prog)
			all, err := New([]perfdata.BPFProgram{prog}, []perfdata.BPFBTF{types}, nil, perf.LittleEndian)
			if err != nil {
				t.Fatal(err)
			}
			askAll(t, all.Program(5))
		})
	}
}

// askAll asks for everything, and checks that it is within what there is.
func askAll(t *testing.T, p *Program) {
	t.Helper()
	p.FullName()
	code := 0
	for _, s := range p.Subs() {
		if code += len(s.Code()); s.End < s.Start || s.Code() != nil && uint64(len(s.Code())) != s.End-s.Start {
			t.Errorf("a subprogram from %#x to %#x has %d bytes of code", s.Start, s.End, len(s.Code()))
		}
		for _, addr := range []uint64{s.Start, s.Start + 1, s.End - 1, s.End} {
			if l, ok := p.Line(addr); ok && (len(l.File) > 4096 || len(l.Text) > 4096) {
				t.Errorf("a line of %d bytes", len(l.Text))
			}
		}
	}
	if code > len(p.JITed) {
		t.Errorf("%d bytes of code of %d", code, len(p.JITed))
	}
}

// A BTF that cannot be read is told, and its programs have no lines.
func TestBadBTF(t *testing.T) {
	prog, types := twoFunctions()
	types.Data = types.Data[:len(types.Data)-1]
	all, err := New([]perfdata.BPFProgram{prog}, []perfdata.BPFBTF{types}, nil, perf.LittleEndian)
	if !errors.Is(err, perfdata.ErrTruncated) {
		t.Errorf("%v, want ErrTruncated", err)
	}
	p := all.Program(5)
	if l, ok := p.Line(0x1001); !ok || l.Line != 7 || l.File != "" || p.FullName() != "handle_packets_" {
		t.Errorf("%+v of %s", l, p.FullName())
	}
	askAll(t, p)
}

func FuzzPrograms(f *testing.F) {
	prog, types := twoFunctions()
	f.Add(perfdata.AppendBPFPrograms(nil, perf.LittleEndian, []perfdata.BPFProgram{prog}), perfdata.AppendBPFBTF(nil, perf.LittleEndian, []perfdata.BPFBTF{types}))
	f.Add(perfdata.AppendBPFPrograms(nil, perf.LittleEndian, []perfdata.BPFProgram{{ID: 1, Name: "x"}}), []byte{1})
	f.Fuzz(func(t *testing.T, info, btf []byte) {
		all, _ := Read(&perfdata.Features{BPFProgInfo: info, BPFBTF: btf}, perf.LittleEndian)
		if all == nil {
			return
		}
		for _, p := range all.byID {
			askAll(t, p)
		}
	})
}
