// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// Where the programs of these tests are: two that get the same addresses, one
// after the other.
const (
	bpfMain = 0xffffffffc0001000
	bpfSub  = 0xffffffffc0002000
	bpfElse = 0xffffffffc0003000
)

// bpfSections are the details of the programs: 5 has two functions and lines, 6
// lines, and 7 nothing.
func bpfSections(t *testing.T) *perfdata.Features {
	t.Helper()
	data, off := testutil.MakeBTF([]string{"first", "helper", "second"}, "/src/a.bpf.c", "x = 1;")
	line := func(n uint32) perfdata.BPFLine {
		return perfdata.BPFLine{File: off["/src/a.bpf.c"], Text: off["x = 1;"], LineCol: n << 10}
	}
	progs := []perfdata.BPFProgram{{
		ID: 5, Name: "first", BTFID: 1, KSyms: []uint64{bpfMain, bpfSub}, FuncLens: []uint32{32, 32},
		Funcs: []perfdata.BPFFunc{{Type: 1}, {Type: 2}},
		Lines: []perfdata.BPFLine{line(3), line(4), line(9)}, JITedLines: []uint64{bpfMain, bpfMain + 8, bpfSub},
	}, {
		ID: 6, Name: "second", BTFID: 1, KSyms: []uint64{bpfMain}, FuncLens: []uint32{32}, Funcs: []perfdata.BPFFunc{{Type: 3}},
		Lines: []perfdata.BPFLine{line(20)}, JITedLines: []uint64{bpfMain},
	}}
	o := perf.LittleEndian
	return &perfdata.Features{
		BPFProgInfo: perfdata.AppendBPFPrograms(nil, o, progs),
		BPFBTF:      perfdata.AppendBPFBTF(nil, o, []perfdata.BPFBTF{{ID: 1, Data: data}}),
		Gantry: []byte(`{"version":1,"host_namespaces":{"pid":4026531836,"mnt":4026531841},
"containers":[{"id":"0123456789abcdef","name":"web","cgroup":77,"cgroup_path":"/web"}],
"bpf":[{"id":5,"loader":{"pid":9,"cgroup":77,"namespaces":{"pid":4026533000,"mnt":4026533001}}},
{"id":6,"loader":{"pid":1,"cgroup":1,"namespaces":{"pid":4026531836,"mnt":4026531841}}}]}`),
	}
}

func ksymbol(tid int32, addr uint64, flags uint16, name string) *perf.Ksymbol {
	k := &perf.Ksymbol{Addr: addr, Len: 32, KsymType: perf.KsymbolBPF, Flags: flags, Name: name}
	k.SampleID.TID = tid
	return k
}

func bpfEvent(tid int32, id uint32, what uint16) *perf.BPFEvent {
	e := &perf.BPFEvent{EventType: what, ID: id}
	e.SampleID.TID = tid
	return e
}

func kernelSample(ip uint64, chain ...uint64) *perf.Sample {
	s := sample(1, ip, chain...)
	s.Misc = perf.MiscKernel
	return s
}

// bpfRecording has two tasks that load programs at the same time, and a program
// that is unloaded and followed by another at its address.
func bpfRecording(t *testing.T, st perf.SampleType) *Session {
	t.Helper()
	chain := func(ips ...uint64) []uint64 { return append([]uint64{perf.ContextKernel}, ips...) }
	r := newRecording(t, st)
	r.add(
		ksymbol(10, bpfMain, 0, "bpf_prog_aaaaaaaaaaaaaaaa_first"), ksymbol(11, bpfElse, 0, "bpf_prog_cccccccccccccccc_other"),
		ksymbol(10, bpfSub, 0, "bpf_prog_bbbbbbbbbbbbbbbb_helper"), bpfEvent(11, 7, perf.BPFEventProgLoad), bpfEvent(10, 5, perf.BPFEventProgLoad),
		ksymbol(10, 0xffffffffc0009000, 0, "bpf_trampoline_42"),
		kernelSample(bpfMain+9, chain(bpfMain+9)...), kernelSample(bpfSub+1, chain(bpfSub+1, bpfMain+8)...), kernelSample(bpfElse+1, chain(bpfElse+1)...),
		ksymbol(12, bpfMain, perf.KsymbolUnregister, "bpf_prog_aaaaaaaaaaaaaaaa_first"), ksymbol(12, bpfSub, perf.KsymbolUnregister, "bpf_prog_bbbbbbbbbbbbbbbb_helper"),
		bpfEvent(12, 5, perf.BPFEventProgUnload),
		ksymbol(12, bpfMain, 0, "bpf_prog_dddddddddddddddd_second"), bpfEvent(12, 6, perf.BPFEventProgLoad),
		kernelSample(bpfMain+9, chain(bpfMain+9)...), kernelSample(bpfSub+1, chain(bpfSub+1)...),
	)
	return r.open(bpfSections(t), nil)
}

// bpfRows are the samples with what is known of the programs of their frames.
func bpfRows(p *profile.Profile) map[string]uint64 {
	out := make(map[string]uint64)
	for s := range p.Samples() {
		var frames []string
		for _, id := range p.Stack(s.Stack) {
			f := p.Frame(id)
			frames = append(frames, strings.TrimSpace(fmt.Sprintf("%s %s %s %s:%d", f.Name, f.Program, f.Loader, f.File, f.Line)))
		}
		out[strings.Join(frames, "; ")] += s.Count
	}
	return out
}

func TestBPFPrograms(t *testing.T) {
	p, err := bpfRecording(t, perf.SampleCallchain).Collect(CollectOptions{Symbols: true, Stacks: true, Lines: true})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{
		"bpf_prog_aaaaaaaaaaaaaaaa_first first#5 web /src/a.bpf.c:4": 1,
		// The caller is looked up in its call.
		"bpf_prog_bbbbbbbbbbbbbbbb_helper first#5 web /src/a.bpf.c:9; bpf_prog_aaaaaaaaaaaaaaaa_first first#5 web /src/a.bpf.c:3": 1,
		"bpf_prog_cccccccccccccccc_other other#7 [unknown] :0":                                                                    1,
		"bpf_prog_dddddddddddddddd_second second#6 [host] /src/a.bpf.c:20":                                                        1,
		":0": 1, // nothing was there any more
	}
	if diff := cmp.Diff(want, bpfRows(p)); diff != "" {
		t.Error(diff)
	}
}

// Without stacks and lines it is the same, by another way.
func TestBPFProgramsOfLeaves(t *testing.T) {
	p, err := bpfRecording(t, 0).Collect(CollectOptions{Symbols: true})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{
		"bpf_prog_aaaaaaaaaaaaaaaa_first first#5 web :0": 1, "bpf_prog_bbbbbbbbbbbbbbbb_helper first#5 web :0": 1,
		"bpf_prog_cccccccccccccccc_other other#7 [unknown] :0": 1, "bpf_prog_dddddddddddddddd_second second#6 [host] :0": 1, ":0": 1,
	}
	if diff := cmp.Diff(want, bpfRows(p)); diff != "" {
		t.Error(diff)
	}
}

// Damaged details are missed, told, and harm nothing else.
func TestBPFDetailsDamaged(t *testing.T) {
	r := newRecording(t, 0)
	r.add(ksymbol(10, bpfMain, 0, "bpf_prog_aaaaaaaaaaaaaaaa_first"), bpfEvent(10, 5, perf.BPFEventProgLoad), kernelSample(bpfMain+9))
	f := bpfSections(t)
	f.BPFProgInfo = f.BPFProgInfo[:len(f.BPFProgInfo)/2]
	f.BPFBTF[12] = 0
	s := r.open(f, nil)
	p, err := s.Collect(CollectOptions{Symbols: true, Lines: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := bpfRows(p); len(got) != 1 || got["bpf_prog_aaaaaaaaaaaaaaaa_first first#5 web :0"]+got["bpf_prog_aaaaaaaaaaaaaaaa_first first#5 [unknown] :0"] != 1 {
		t.Errorf("%v", got)
	}
	if w := strings.Join(s.Warnings(), "\n"); !strings.Contains(w, "BPF programs may lack names and lines") {
		t.Errorf("warnings %q", w)
	}
}

// One address at a time, as scripts ask.
func TestCallsInBPF(t *testing.T) {
	s := bpfRecording(t, 0)
	var got []string
	for {
		it, err := s.Next()
		if err != nil {
			break
		}
		if it.Sample == nil {
			continue
		}
		for _, c := range s.Calls(nil, it.Thread, it.Sample.IP, true) {
			got = append(got, fmt.Sprintf("%s %s:%d", c.Name, c.File, c.Line))
		}
	}
	want := []string{
		"bpf_prog_aaaaaaaaaaaaaaaa_first /src/a.bpf.c:4", "bpf_prog_bbbbbbbbbbbbbbbb_helper /src/a.bpf.c:9", "bpf_prog_dddddddddddddddd_second /src/a.bpf.c:20",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
