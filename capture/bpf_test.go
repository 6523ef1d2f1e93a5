// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/linux/bpf/testprogs"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

func loadSeven(t *testing.T) (*testprogs.Loaded, uint32) {
	t.Helper()
	p, err := testprogs.Seven()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	id, err := p.ID()
	if err != nil {
		t.Fatal(err)
	}
	return p, id
}

// bpfOf is what a recording says of BPF programs.
type bpfOf struct {
	programs map[uint32]*perfdata.BPFProgram
	btf      map[uint32][]byte
	lives    map[uint32]*perfdata.BPFLife
	symbols  map[uint64]*perf.Ksymbol // that came, by address
}

func readBPF(t *testing.T, path string) *bpfOf {
	t.Helper()
	b := &bpfOf{map[uint32]*perfdata.BPFProgram{}, map[uint32][]byte{}, map[uint32]*perfdata.BPFLife{}, map[uint64]*perf.Ksymbol{}}
	for _, rec := range byTime(t, path) {
		if k, ok := rec.(*perf.Ksymbol); ok && k.Flags&perf.KsymbolUnregister == 0 {
			b.symbols[k.Addr] = k
		}
	}
	r, err := perfdata.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f := r.Features()
	programs, err := perfdata.DecodeBPFPrograms(f.BPFProgInfo, r.Order())
	if err != nil {
		t.Fatal(err)
	}
	for i := range programs {
		b.programs[programs[i].ID] = &programs[i]
	}
	btf, err := perfdata.DecodeBPFBTF(f.BPFBTF, r.Order())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range btf {
		b.btf[e.ID] = e.Data
	}
	lives, err := perfdata.DecodeGantryBPF(f.Gantry)
	if err != nil {
		t.Fatal(err)
	}
	for i := range lives {
		b.lives[lives[i].ID] = &lives[i]
	}
	return b
}

// checkSeven asserts that all subprograms of a program of testprogs.Seven are
// named, with lines.
func (b *bpfOf) checkSeven(t *testing.T, id uint32) {
	t.Helper()
	p := b.programs[id]
	if p == nil {
		t.Fatalf("no details of program %d: %+v", id, b.lives[id])
	}
	var names []string
	for _, addr := range p.KSyms {
		if k := b.symbols[addr]; k != nil {
			names = append(names, k.Name[len("bpf_prog_0123456789abcdef_"):])
		}
	}
	if !slices.Equal(names, testprogs.SevenFunctions) {
		t.Errorf("program %d has the symbols %q, want %q", id, names, testprogs.SevenFunctions)
	}
	types, err := perfdata.ParseBTF(b.btf[p.BTFID], perf.LittleEndian)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Lines) == 0 || len(p.Lines) != len(p.JITedLines) || !strings.HasSuffix(types.String(p.Lines[0].File), "testprogs.bpf.c") {
		t.Errorf("program %d has %d lines, of the code %d", id, len(p.Lines), len(p.JITedLines))
	}
}

func TestRecordsBPFPrograms(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.Tool("perf"))
	_, before := loadSeven(t)
	var during uint32
	rec := recordWhile(t, Options{Target: Target{All: true}}, func() {
		p, err := testprogs.Seven()
		if err != nil {
			t.Error(err)
			return
		}
		defer p.Close()
		if during, err = p.ID(); err != nil {
			t.Error(err)
		}
		if err := p.Run(1000); err != nil {
			t.Error(err)
		}
	})
	b := readBPF(t, rec.path)
	b.checkSeven(t, before)
	b.checkSeven(t, during)
	if l := b.lives[before]; l == nil || !l.Before || l.Unloaded != 0 || l.Route != perfdata.BPFRouteStatus {
		t.Errorf("the one of before: %+v", l)
	}
	l := b.lives[during]
	if l == nil || l.Before || l.Loaded == 0 || l.Unloaded <= l.Loaded || l.Loader == nil || int(l.Loader.PID) != os.Getpid() || l.Loader.Cgroup == 0 {
		t.Errorf("the one of the recording: %+v", l)
	}
	// perf reads the same.
	report := perfOutput(t, "report", "-i", rec.path, "-I", "--header-only")
	for _, id := range []uint32{before, during} {
		if !strings.Contains(report, "# bpf_prog_info "+strconv.Itoa(int(id))+":\n") {
			t.Errorf("perf report knows no program %d:\n%s", id, report)
		}
	}
	events := perfOutput(t, "script", "-i", rec.path, "--show-bpf-events")
	for _, id := range []uint32{before, during} {
		if !strings.Contains(events, "PERF_RECORD_BPF_EVENT type 1, flags 0, id "+strconv.Itoa(int(id))+"\n") {
			t.Errorf("perf script shows no load of program %d", id)
		}
	}
}

func perfOutput(t *testing.T, args ...string) string {
	t.Helper()
	out, stderr, err := testutil.RunPerf(t, func() *exec.Cmd { return exec.Command("perf", args...) })
	if err != nil {
		t.Fatalf("perf %s: %v\n%s", args[0], err, stderr)
	}
	return string(out)
}

func TestNoBPFEvent(t *testing.T) {
	testutil.Require(t, testutil.Root)
	_, before := loadSeven(t)
	rec := recordWhile(t, Options{Target: Target{All: true}, NoBPFEvent: true}, func() {})
	b := readBPF(t, rec.path)
	if b.programs[before] != nil || b.lives[before] != nil {
		t.Errorf("program %d is recorded", before)
	}
}
