// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bpfprog

import (
	"encoding/hex"
	"slices"
	"sync"

	"github.com/gantry-tools/gantry/perf/perfdata"
)

const (
	// maxDetailBytes bounds the details in a ProgramTable, in bytes.
	maxDetailBytes = 192 << 20
	// maxPrograms bounds the programs that a ProgramTable remembers.
	maxPrograms = 1 << 17
)

// A ProgramTable keeps what is known of programs, those that are gone too. Its methods
// may be called by several goroutines.
type ProgramTable struct {
	mu    sync.Mutex
	byID  map[uint32]*Program
	order []uint32
	btf   map[uint32][]byte
	bytes int
	taken uint64 // details so far
	tally Tally
}

// A Tally is how much a ProgramTable could not take.
type Tally struct {
	Loads   uint64 // programs whose load was seen
	Missed  uint64 // of these, programs without details
	Lost    uint64 // records of the kernel that were lost
	Forgot  uint64 // programs that there was no room to remember
	ByRoute map[perfdata.BPFRoute]uint64
	Notes   []string // what else went wrong
}

// A Program is one program of a ProgramTable.
type Program struct {
	perfdata.BPFProgramLife
	Details *Details // nil if they were missed
}

// NewProgramTable returns an empty ProgramTable.
func NewProgramTable() *ProgramTable {
	return &ProgramTable{byID: make(map[uint32]*Program), btf: make(map[uint32][]byte)}
}

// get finds or makes the entry of a program; nil if there are too many. mu is
// held.
func (b *ProgramTable) get(id uint32) *Program {
	p := b.byID[id]
	if p == nil {
		if len(b.byID) >= maxPrograms {
			b.tally.Forgot++
			return nil
		}
		p = &Program{BPFProgramLife: perfdata.BPFProgramLife{ID: id}}
		b.byID[id] = p
		b.order = append(b.order, id)
	}
	return p
}

// added takes note of a load. It returns false if the program is known.
func (b *ProgramTable) added(id uint32, tag [8]byte, time uint64, loader *perfdata.BPFLoader) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.get(id)
	if p == nil || p.Loaded != 0 && !p.Before {
		return false
	}
	b.tally.Loads++
	p.Before = false
	p.Loaded, p.Tag, p.Loader = time, hex.EncodeToString(tag[:]), loader
	return true
}

// setLoader corrects who loaded a program.
func (b *ProgramTable) setLoader(id uint32, loader *perfdata.BPFLoader) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.byID[id]; p != nil {
		p.Loader = loader
	}
}

// unloaded takes note that a program is gone.
func (b *ProgramTable) unloaded(id uint32, tag [8]byte, time uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.get(id); p != nil {
		p.Unloaded, p.Tag = time, hex.EncodeToString(tag[:])
	}
}

// setDetails takes what was read of a program, unless that is known; slept is how
// far the clock of its load was ahead of that of records.
func (b *ProgramTable) setDetails(d *Details, route perfdata.BPFRoute, bootOffset uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.get(d.ID)
	if p == nil || p.Details != nil {
		return
	}
	p.Tag, p.Name, p.Type, p.UID = hex.EncodeToString(d.Tag[:]), d.Name, d.Type, d.UID
	if p.Loaded == 0 && d.LoadTime > bootOffset {
		p.Loaded, p.Before = d.LoadTime-bootOffset, route == perfdata.BPFRouteStatus
	}
	size := d.size()
	known, shared := b.btf[d.BTFID]
	if !shared {
		size += len(d.BTF)
	}
	if b.bytes+size > maxDetailBytes {
		p.Missed = "there was no room for its details"
		b.tally.Missed++
		return
	}
	b.bytes += size
	if d.BTFID != 0 && d.BTF != nil {
		if shared {
			d.BTF = known
		} else {
			b.btf[d.BTFID] = d.BTF
		}
	}
	p.Details, p.Route, p.Missed = d, route, ""
	b.taken++
	if b.tally.ByRoute == nil {
		b.tally.ByRoute = make(map[perfdata.BPFRoute]uint64)
	}
	b.tally.ByRoute[route]++
}

// setMissed takes note of why a program has no details.
func (b *ProgramTable) setMissed(id uint32, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.get(id); p != nil && p.Details == nil && p.Missed == "" {
		p.Missed = why
		b.tally.Missed++
	}
}

// unknown: nothing has been read of a program.
func (b *ProgramTable) unknown(id uint32) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.byID[id]
	return p == nil || p.Details == nil && p.Missed == ""
}

// Note keeps a text for the Tally.
func (b *ProgramTable) Note(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tally.Notes = append(b.tally.Notes, text)
}

// lost counts records that the kernel had no room for.
func (b *ProgramTable) lost(n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tally.Lost += n
}

// attach sets where programs are attached, by id. Those that are gone keep what
// was known.
func (b *ProgramTable) attach(at map[uint32][]perfdata.BPFAttachment) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, list := range at {
		if p := b.byID[id]; p != nil {
			p.Attached = list
		}
	}
}

// Tally returns the counts so far.
func (b *ProgramTable) Tally() Tally {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.tally
	t.Notes = slices.Clone(t.Notes)
	t.ByRoute = make(map[perfdata.BPFRoute]uint64)
	for route, n := range b.tally.ByRoute {
		t.ByRoute[route] = n
	}
	return t
}

// Programs calls fn for each program, in the order in which they were seen. fn
// keeps nothing of it but Details, which do not change.
func (b *ProgramTable) Programs(fn func(*Program)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range b.order {
		fn(b.byID[id])
	}
}

// Program returns what is known of a program.
func (b *ProgramTable) Program(id uint32) (Program, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.byID[id]
	if p == nil {
		return Program{}, false
	}
	return *p, true
}

// List are the lives of all programs.
func (b *ProgramTable) List() []perfdata.BPFProgramLife {
	var list []perfdata.BPFProgramLife
	b.Programs(func(p *Program) { list = append(list, p.BPFProgramLife) })
	return list
}

// Sections are the features BPF_PROG_INFO and BPF_BTF with all details; nil if
// there are none. perf wants the programs by their ids.
func (b *ProgramTable) Sections() (info, btf []byte) {
	var programs []perfdata.BPFProgram
	var types []perfdata.BPFBTF
	b.Programs(func(p *Program) {
		if p.Details != nil {
			programs = append(programs, p.Details.BPFProgram)
		}
	})
	b.mu.Lock()
	for id, data := range b.btf {
		types = append(types, perfdata.BPFBTF{ID: id, Data: data})
	}
	b.mu.Unlock()
	slices.SortFunc(programs, func(a, b perfdata.BPFProgram) int { return int(int64(a.ID) - int64(b.ID)) })
	slices.SortFunc(types, func(a, b perfdata.BPFBTF) int { return int(int64(a.ID) - int64(b.ID)) })
	if len(programs) > 0 {
		info = perfdata.AppendBPFPrograms(nil, nativeOrder, programs)
	}
	if len(types) > 0 {
		btf = perfdata.AppendBPFBTF(nil, nativeOrder, types)
	}
	return info, btf
}

// Taken is how many programs have given details so far, and how many bytes of them
// there are, about.
func (b *ProgramTable) Taken() (programs uint64, size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taken, b.bytes
}

// Forget drops a program, for a ProgramTable that is kept for long.
func (b *ProgramTable) Forget(id uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.byID[id]
	if p == nil {
		return
	}
	delete(b.byID, id)
	b.order = slices.DeleteFunc(b.order, func(o uint32) bool { return o == id })
	if p.Details == nil {
		return
	}
	b.bytes -= p.Details.size()
	for _, other := range b.byID {
		if other.Details != nil && other.Details.BTFID == p.Details.BTFID {
			return
		}
	}
	b.bytes -= len(b.btf[p.Details.BTFID])
	delete(b.btf, p.Details.BTFID)
}

// size is how many bytes details take without the BTF.
func (d *Details) size() int {
	return len(d.JITed) + len(d.Xlated) + 16*len(d.Lines) + 8*len(d.JITedLines) + 512
}
