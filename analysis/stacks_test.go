// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/analysis/unwind"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// newDumps begins a recording of stacks as memory, with the registers bp, sp
// and ip (bits 6 to 8 of enum perf_event_x86_regs).
func newDumps(t *testing.T) *recording {
	t.Helper()
	attr := perf.Attr{
		Type: perf.TypeSoftware, Config: perf.SWCPUClock, SampleCount: 1000,
		SampleType: perf.SampleIdentifier | perf.SampleIP | perf.SampleTID | perf.SampleTime | perf.SampleCPU |
			perf.SampleCallchain | perf.SampleRegsUser | perf.SampleStackUser,
		Flags:          perf.AttrSampleIDAll | perf.AttrBuildID,
		SampleRegsUser: 7 << 6, SampleStackUser: 64,
	}
	r := &recording{t: t, ev: perf.NewEvent(attr, "cpu-clock", 7), f: new(memFile), now: 1000}
	var err error
	if r.w, err = perfdata.NewWriter(r.f, []*perf.Event{r.ev}, nil); err != nil {
		t.Fatal(err)
	}
	return r
}

const dumpedSP = 0x7ffe00001000

// dump adds a stack to a sample, of which all words but the last count.
func dump(sm *perf.Sample, bp uint64, words ...uint64) *perf.Sample {
	sm.RegsUser = perf.Regs{ABI: 2, Values: []uint64{bp, dumpedSP, sm.IP}}
	for _, w := range words {
		sm.StackUser = perf.LittleEndian.AppendUint64(sm.StackUser, w)
	}
	sm.StackDyn = uint64(len(sm.StackUser) - 8)
	return sm
}

// TestUserStack unwinds by the program's call frame information.
func TestUserStack(t *testing.T) {
	testutil.Require(t, testutil.Tool("gcc"), testutil.Arch("amd64"))
	prog := compile(t, "alpha_hot")
	const base = 0x7f0000000000
	for _, files := range []openFiles{{prog.id.String(): prog.path}} {
		r := newDumps(t)
		entry := uint64(base) + prog.pgoff
		r.add(comm(1, "a"), mapped(1, base, "/app/server", prog.id))
		// Called by itself, and that by nobody; then from the kernel.
		r.add(dump(sample(1, entry), 0, entry+1, 0, 0x77))
		inKernel := dump(sample(1, entry, perf.ContextKernel, 0xffffffff81000010, perf.ContextUser, 0x1234), 0, entry+1, 0, 0x77)
		inKernel.Misc, inKernel.IP = perf.MiscKernel, 0xffffffff81000010
		r.add(inKernel)
		s := r.open(&perfdata.Features{Arch: "x86_64"}, &Options{Binaries: []symbol.Opener{files}})
		var got [][]uint64
		for {
			it, err := s.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if it.Sample != nil {
				got = append(got, slices.Clone(s.UserStack(it)))
			}
		}
		want := []uint64{entry, entry}
		if diff := cmp.Diff([][]uint64{want, want}, got); diff != "" {
			t.Errorf("%d files: %s", len(files), diff)
		}
		if c := s.StackCounts(); c.Ends[unwind.Complete] != 2 || c.Guessed != 0 || len(s.Warnings()) != 0 {
			t.Errorf("%d files: %+v, warnings %q", len(files), c, s.Warnings())
		}
	}
}

// TestDumpedCallchains: the kernel's part of a call chain stays in front of
// what is unwound; a user part is replaced; generated code is followed by its
// frame pointers, which is told.
func TestDumpedCallchains(t *testing.T) {
	const code = 0x10000
	r := newDumps(t)
	r.add(comm(1, "node"), &perf.Mmap2{PID: 1, TID: 1, Addr: code, Len: 0x1000, Prot: 5, Filename: "//anon"})
	sm := dump(sample(1, code+0x10, perf.ContextKernel, 0xffffffff81000010, perf.ContextUser, 0x1234), dumpedSP+8, 1, 0, code+0x20, 0)
	sm.Misc, sm.IP = perf.MiscKernel, 0xffffffff81000010
	r.add(sm)
	compat := dump(sample(1, code+0x10), 0, 1, 2)
	compat.RegsUser.ABI = 1
	r.add(compat)
	s := r.open(&perfdata.Features{Arch: "x86_64"}, nil)
	p, err := s.Collect(CollectOptions{Fields: profile.FieldComm, Symbols: true, Stacks: true, Addresses: true})
	if err != nil {
		t.Fatal(err)
	}
	var stacks [][]uint64
	for sm := range p.Samples() {
		var stack []uint64
		for _, id := range p.Stack(sm.Stack) {
			stack = append(stack, p.Frame(id).Addr)
		}
		stacks = append(stacks, stack)
	}
	slices.SortFunc(stacks, func(a, b []uint64) int { return len(a) - len(b) })
	want := [][]uint64{{code + 0x10}, {0xffffffff81000010, code + 0x10, code + 0x1f}}
	if diff := cmp.Diff(want, stacks); diff != "" {
		t.Error(diff)
	}
	w := strings.Join(s.Warnings(), "\n")
	if !strings.Contains(w, "1 of 1 user stacks were followed by frame pointers") || !strings.Contains(w, "1 user stacks of 32-bit programs") {
		t.Errorf("warnings %q", w)
	}
}
