// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// noteForeign says which BPF programs of others are attached to the tracepoints
// that are recorded. What such a program returns decides for all who use the
// tracepoint (trace_call_bpf in kernel/trace/bpf_trace.c): with 0, as most do,
// nobody else gets a sample.
func (r *Recorder) noteForeign() {
	told := make(map[uint64]bool) // by tracepoint
	for _, ev := range r.set.samplers() {
		if ev.Attr.Type != perf.TypeTracepoint || told[ev.Attr.Config] {
			continue
		}
		told[ev.Attr.Config] = true
		ids, err := sys.PerfQueryBPF(ev.FD())
		if err != nil || len(ids) == 0 {
			continue // not permitted: nothing can be told
		}
		name := "a tracepoint"
		if of := r.set.event(ev.ID); of != nil {
			name = of.Name
		}
		note := fmt.Sprintf("%s: BPF programs of others are attached to it (%s): samples that they drop are not "+
			"recorded, "+
			"by nobody", name, programNames(ids))
		r.result.Foreign = true
		if !slices.Contains(r.result.Notes, note) {
			r.result.note("%s", note)
		}
	}
}

// programNames are the ids and names of programs.
func programNames(ids []uint32) string {
	var list []string
	for _, id := range ids {
		text := fmt.Sprintf("id %d", id)
		if p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id)); err == nil {
			if info, err := p.Info(); err == nil && info.Name != "" {
				text += " " + info.Name
			}
			p.Close()
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}
