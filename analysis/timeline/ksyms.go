// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"strings"

	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/perf"
)

func (t *Timeline) ksymbol(r *perf.Ksymbol) {
	t.ksymID++
	if r.Flags&perf.KsymbolUnregister != 0 {
		t.Ksyms.Unregister(r.Addr)
		return
	}
	t.Ksyms.Register(r.Addr, r.Len, r.Name, symbol.KsymType(r.KsymType))
	if symbol.KsymType(r.KsymType) == symbol.KsymBPF && strings.HasPrefix(r.Name, symbol.BPFPrefix) {
		t.addPart(r.SampleID.TID, r.Addr)
	}
}

// The kernel allows 256 subprograms. Parts of so many tasks wait when BPF_EVENT
// records are missing, as in recordings that did not ask for them.
const (
	maxParts = 512
	maxTasks = 1024
)

// addPart remembers a subprogram until the BPF_EVENT comes that tells which
// program it is of: the loader's next, as the kernel writes them. Other tasks
// load theirs at the same time.
func (t *Timeline) addPart(tid int32, addr uint64) {
	if t.parts == nil || len(t.parts) > maxTasks {
		t.parts = make(map[int32][]uint64)
	}
	if list := t.parts[tid]; len(list) < maxParts {
		t.parts[tid] = append(list, addr)
	}
}

// bpfEvent gives the parts of a program its id. The tags of names and programs
// do not tell: those of main programs differ on some kernels.
func (t *Timeline) bpfEvent(r *perf.BPFEvent) {
	list := t.parts[r.SampleID.TID]
	delete(t.parts, r.SampleID.TID)
	if r.EventType != perf.BPFEventProgLoad || len(list) == 0 {
		return
	}
	t.ksymID++
	for _, addr := range list {
		t.Ksyms.SetProgram(addr, r.ID)
	}
}
