// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/disasm"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
	"github.com/gantry-tools/gantry/view/report"
)

const (
	loadedAt = 0xffffffffc0001000
	helperAt = 0xffffffffc0002000
)

// code is push %rbp; mov %rsp,%rbp; call helper; test %eax,%eax; jne to the call;
// adcx, which only objdump knows; leave; ret.
func code() []byte {
	return []byte{0x55, 0x48, 0x89, 0xe5, 0xe8, 0xf7, 0x0f, 0, 0, 0x85, 0xc0, 0x75, 0xf7, 0x66, 0x0f, 0x38, 0xf6, 0xc1, 0xc9, 0xc3}
}

// record makes a recording of a BPF program that is loaded twice, and unloaded.
func record(t *testing.T, change func(*perfdata.BPFProgram)) *perfdata.Reader {
	t.Helper()
	path := filepath.Join(t.TempDir(), "perf.data")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ev := perf.NewEvent(perf.Attr{
		Type: perf.TypeSoftware, Config: perf.SWCPUClock, SampleCount: 1000,
		SampleType: perf.SampleIdentifier | perf.SampleIP | perf.SampleTID | perf.SampleTime | perf.SampleCPU,
		Flags:      perf.AttrSampleIDAll,
	}, "cpu-clock", 7)
	w, err := perfdata.NewWriter(f, []*perf.Event{ev}, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := uint64(1000)
	add := func(rec perf.Record) {
		now++
		if s, ok := rec.(*perf.Sample); ok {
			s.ID, s.Time = 7, now
		} else {
			*perf.SampleIDOf(rec) = perf.SampleIDInfo{ID: 7, Time: now}
		}
		if err := w.WriteRecord(rec, ev); err != nil {
			t.Fatal(err)
		}
	}
	const name = "bpf_prog_aaaaaaaaaaaaaaaa_work\x1b"
	size := uint32(len(code()))
	for load, hits := range [][]uint64{{0, 9, 9, 10, 13}, {9, 4}} {
		addr := loadedAt + uint64(load)*0x40
		add(&perf.Ksymbol{Addr: addr, Len: size, KsymType: perf.KsymbolBPF, Name: name})
		add(&perf.BPFEvent{EventType: perf.BPFEventProgLoad, ID: uint32(5 + load)})
		for _, off := range hits {
			add(&perf.Sample{RecordMisc: perf.RecordMisc{Misc: perf.MiscKernel}, PID: 1, TID: 1, IP: addr + off})
		}
		add(&perf.Ksymbol{Addr: addr, Len: size, KsymType: perf.KsymbolBPF, Flags: perf.KsymbolUnregister, Name: name})
	}
	data, off := testutil.MakeBTF([]string{"work", "helper"}, "/src/a.bpf.c", "\tif (helper(x))\x1b[2J")
	prog := perfdata.BPFProgram{
		ID: 6, Name: "work", BTFID: 1, KSyms: []uint64{loadedAt + 0x40, helperAt + 0x40}, FuncLens: []uint32{size, 8}, JITed: code(),
		Funcs:      []perfdata.BPFFunc{{Type: 1}, {Type: 2}},
		Lines:      []perfdata.BPFLine{{File: off["/src/a.bpf.c"], Text: off["\tif (helper(x))\x1b[2J"], LineCol: 12 << 10}},
		JITedLines: []uint64{loadedAt + 0x44},
	}
	if change != nil {
		change(&prog)
	}
	o := perf.LittleEndian
	features := &perfdata.Features{
		Arch: "x86_64", BPFProgInfo: perfdata.AppendBPFPrograms(nil, o, []perfdata.BPFProgram{prog}),
		BPFBTF: perfdata.AppendBPFBTF(nil, o, []perfdata.BPFBTF{{ID: 1, Data: data}}),
	}
	if err := w.Close(features); err != nil {
		t.Fatal(err)
	}
	r, err := perfdata.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func functions(t *testing.T, r *perfdata.Reader, o *Options) ([]*Function, int) {
	t.Helper()
	s := analysis.NewSession(r, nil)
	p, err := s.Collect(analysis.CollectOptions{Symbols: true, Addresses: true, Places: true})
	if err != nil {
		t.Fatal(err)
	}
	return Functions(p, s, o)
}

func textOf(t *testing.T, r *perfdata.Reader, o *Options) string {
	t.Helper()
	list, _ := functions(t, r, o)
	if len(list) != 1 {
		t.Fatalf("%d functions", len(list))
	}
	var b bytes.Buffer
	if err := Text(&b, List(list[0], perf.AMD64, o), o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Two loads of the same code are one function, long after both are gone; what
// names and source say to a terminal is spelled out.
func TestText(t *testing.T) {
	want := strings.TrimPrefix(`
# Function: bpf_prog_aaaaaaaaaaaaaaaa_work\x1b
# Program:  work\x1b#5 work#6
# Loader:   [unknown]
# Samples:  7 of event 'cpu-clock', 100.00% of all
# Skid:     samples may stand some instructions behind the one that took the
#           time: the event is not precise
# Code:     1 instruction shown as data: install objdump (binutils)
#
# Perc.  Samples  Address    Code
# .....  .......  .......    ....
 14.29%        1       +0    push   %rbp
                       +1    mov    %rsp,%rbp
                           ; a.bpf.c:12  if (helper(x))\x1b[2J
 14.29%        1       +4  > callq  helper
 57.14%        4       +9    test   %eax,%eax
                       +b    jne    +4
 14.29%        1       +d    .byte  0x66,0x0f,0x38,0xf6,0xc1
                      +12    leaveq
                      +13    retq

`, "\n")
	if diff := cmp.Diff(want, textOf(t, record(t, nil), &Options{Width: 80, Skid: map[string]bool{"cpu-clock": true}})); diff != "" {
		t.Error(diff)
	}
}

// What gantry's disassembler does not know, another may.
func TestTextByObjdump(t *testing.T) {
	better := func(_ perf.Arch, code []byte, addr uint64) ([]disasm.Insn, error) {
		return []disasm.Insn{{Addr: addr, Size: len(code), Text: "all"}}, nil
	}
	got := textOf(t, record(t, nil), &Options{Disassemble: better})
	for _, want := range []string{"# Code:     shown by objdump: gantry does not know 1 instruction\n", "100.00%        7       +0    all\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	worse := func(perf.Arch, []byte, uint64) ([]disasm.Insn, error) { return nil, errors.New("no such machine") }
	got = textOf(t, record(t, nil), &Options{Disassemble: worse})
	if !strings.Contains(got, "objdump does not help: no such machine") || !strings.Contains(got, ".byte  0x66") {
		t.Error(got)
	}
}

// Without the code, addresses have their samples; none is lost where the code
// ends before its samples.
func TestTextWithoutCode(t *testing.T) {
	for name, change := range map[string]func(*perfdata.BPFProgram){
		"no code":           func(p *perfdata.BPFProgram) { p.JITed = nil },
		"lengths that lie":  func(p *perfdata.BPFProgram) { p.FuncLens[0] = 1 << 31 },
		"another's details": func(p *perfdata.BPFProgram) { p.ID = 99 },
	} {
		got := textOf(t, record(t, change), &Options{})
		if !strings.Contains(got, "# No code:  its code was not kept\n") || !strings.Contains(got, " 42.86%        3       +9\n") {
			t.Errorf("%s:\n%s", name, got)
		}
	}
	got := textOf(t, record(t, func(p *perfdata.BPFProgram) { p.FuncLens[0], p.JITed = 4, p.JITed[:4] }), &Options{})
	if !strings.Contains(got, "  mov    %rsp,%rbp\n") || !strings.Contains(got, " 42.86%        3       +9\n") {
		t.Error(got)
	}
}

func TestJSON(t *testing.T) {
	list, _ := functions(t, record(t, nil), &Options{})
	var b bytes.Buffer
	if err := JSON(&b, list, perf.AMD64, &Options{}); err != nil {
		t.Fatal(err)
	}
	var out struct{ Functions []jsonFunction }
	if err := json.Unmarshal(b.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	f := out.Functions[0]
	want := jsonLine{
		Addr: loadedAt + 0x44, Offset: 4, Size: 5, Text: "callq 0xffffffffc0002040", Flow: "call", Label: true,
		Target:  &jsonTarget{Addr: helperAt + 0x40, Name: "helper"},
		Samples: 1, Value: 1000, Percent: 100. / 7, Calls: []jsonCall{{Function: f.Name, File: "/src/a.bpf.c", Line: 12}},
		Source: "\tif (helper(x))\x1b[2J",
	}
	if diff := cmp.Diff(want, f.Instructions[2]); diff != "" || f.Samples != 7 || f.Size != 20 || len(f.Programs) != 2 {
		t.Errorf("%+v\n%s", f, diff)
	}
}

func TestLimits(t *testing.T) {
	r := record(t, nil)
	if list, hidden := functions(t, r, &Options{Filter: report.Filter{Symbol: []string{"other*"}}}); len(list)+hidden != 0 {
		t.Errorf("%d functions, %d hidden", len(list), hidden)
	}
	r = record(t, nil)
	if list, hidden := functions(t, r, &Options{PercentLimit: 100.1}); len(list) != 0 || hidden != 1 {
		t.Errorf("%d functions, %d hidden", len(list), hidden)
	}
}
