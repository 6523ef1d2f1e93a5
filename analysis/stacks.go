// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"fmt"
	"io"
	"strings"

	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/analysis/timeline"
	"github.com/gantry-tools/gantry/analysis/unwind"
	"github.com/gantry-tools/gantry/perf"
)

// Values of perf.Regs.ABI, from enum perf_sample_regs_abi.
const (
	regsNone = 0
	regs64   = 2
)

// stacks unwinds the user stacks that were recorded as memory.
type stacks struct {
	s       *Session
	arch    perf.Arch
	unwound *unwind.Unwinder
	frames  []uint64
	maps    *timeline.Maps // those of the sample's process

	binaries []*unwind.Binary // by timeline.File.Index; none for generated code
	known    []bool
	byFile   map[symbol.Ref]*unwind.Binary // by Shared
	compat   uint64                        // samples of 32-bit tasks
	foreign  uint64                        // samples of an architecture that cannot be unwound
}

// UserStack unwinds the user stack that was recorded as memory with a sample
// that Next has just given. It returns the addresses of its frames, leaf first:
// where the task was, and for callers an address in the call. It is nil if the
// sample has no such stack. The slice is valid until the next call.
func (s *Session) UserStack(it *Item) []uint64 {
	sm := it.Sample
	if it.Event.Layout.SampleType&perf.SampleStackUser == 0 || it.Thread == nil || sm.RegsUser.ABI == regsNone {
		return nil
	}
	return s.stacks.unwind(s, it)
}

func (st *stacks) unwind(s *Session, it *Item) []uint64 {
	sm := it.Sample
	if st.unwound == nil {
		st.s, st.arch = s, archOf(s, it.Event.Layout.RegsUser)
		st.byFile = make(map[symbol.Ref]*unwind.Binary)
		if st.arch != perf.NoArch {
			st.unwound = unwind.New(st.arch)
		}
	}
	switch {
	case st.unwound == nil:
		st.foreign++
		return nil
	case sm.RegsUser.ABI != regs64:
		st.compat++
		return nil
	}
	st.maps = it.Thread.Process.Maps()
	st.frames, _ = st.unwound.Unwind(st.frames[:0], &unwind.Stack{
		Mask: it.Event.Layout.RegsUser, Values: sm.RegsUser.Values,
		Memory: sm.StackUser[:min(sm.StackDyn, uint64(len(sm.StackUser)))],
	}, st)
	return st.frames
}

// archOf is the architecture that was recorded: as the recording says, or as
// its registers look.
func archOf(s *Session, mask uint64) perf.Arch {
	if arch := s.r.Features().Arch; arch != "" {
		return perf.ArchOf(arch)
	}
	const arm64PC = 1 << 32
	if mask&arm64PC != 0 {
		return perf.ARM64
	}
	return perf.AMD64
}

// Find implements unwind.Space for the process of the sample.
func (st *stacks) Find(addr uint64) (unwind.Mapping, bool) {
	m := st.maps.Find(addr)
	if m == nil {
		return unwind.Mapping{}, false
	}
	return unwind.Mapping{Start: m.Start, End: m.End, Offset: m.PgOff, Binary: st.binary(m.File)}, true
}

// binary is the call frame information of a file.
func (st *stacks) binary(f *timeline.File) *unwind.Binary {
	for len(st.binaries) <= f.Index {
		st.binaries, st.known = append(st.binaries, nil), append(st.known, false)
	}
	if st.known[f.Index] {
		return st.binaries[f.Index]
	}
	st.known[f.Index] = true
	if !openable(f.Path) || timeline.IsPerfMap(f.Path) {
		return nil
	}
	ref := st.s.ref(f)
	b := st.byFile[ref.Shared()]
	if b == nil || ref.BuildID.IsZero() {
		b = unwind.NewBinary(st.arch, func() (unwind.File, int64, error) { return st.s.resolver.Open(ref) })
		b.Separate(func(use func(io.ReaderAt, int64) error) error {
			return st.s.resolver.SeparateDebug(ref,
				func(f io.ReaderAt, size int64, _ string) error { return use(f, size) })
		})
		st.byFile[ref.Shared()] = b
	}
	st.binaries[f.Index] = b
	return b
}

// StackCounts say how unwinding the stacks went that were recorded as memory.
type StackCounts struct {
	unwind.Stats
	// Foreign are stacks of an architecture that cannot be unwound, Compat
	// those of 32-bit tasks: neither has frames.
	Foreign, Compat uint64
}

// StackCounts are those of the recording so far.
func (s *Session) StackCounts() StackCounts {
	c := StackCounts{Foreign: s.stacks.foreign, Compat: s.stacks.compat}
	if u := s.stacks.unwound; u != nil {
		c.Stats = u.Stats
	}
	return c
}

// stackWarnings tell why stacks are shorter than they were.
func (s *Session) stackWarnings() []string {
	c := s.StackCounts()
	var out []string
	if c.Foreign > 0 {
		out = append(out, fmt.Sprintf("%d user stacks were not unwound: those of %q cannot be, only of x86_64 and "+
			"aarch64", c.Foreign, s.r.Features().Arch))
	}
	if c.Compat > 0 {
		out = append(out, fmt.Sprintf("%d user stacks of 32-bit programs were not unwound", c.Compat))
	}
	total, short := uint64(0), uint64(0)
	var why []string
	for _, end := range unwind.Ends() {
		n := c.Ends[end]
		if total += n; n > 0 && end != unwind.Complete {
			short += n
			why = append(why, fmt.Sprintf("%s %d", end, n))
		}
	}
	if short > 0 {
		out = append(out, fmt.Sprintf("%d of %d user stacks end early: %s", short, total, strings.Join(why, ", ")))
	}
	if c.Guessed > 0 {
		out = append(out, fmt.Sprintf("%d of %d user stacks were followed by frame pointers where there is no call "+
			"frame information; callers may be missing in them", c.Guessed, total))
	}
	return out
}
