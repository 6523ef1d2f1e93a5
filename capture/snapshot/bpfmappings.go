// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"errors"
	"syscall"

	"github.com/gantry-tools/gantry/internal/linux/bpf/tasks"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/perf"
)

// fileID is what was found out about a file in user space.
type fileID struct {
	id    []byte // the build-id; empty if it has none or nobody knows
	tries int    // how often it was looked for in vain
	done  bool
}

const (
	// maxTries is how many processes that map a file are asked for it: the
	// first may have ended.
	maxTries = 8
	// magicFUSE is FUSE_SUPER_MAGIC of linux/magic.h: reading such a file
	// waits for the program that serves it.
	magicFUSE = 0x65735546
)

// Flags of a mapping (VM_* of linux/mm.h).
const (
	vmProt     = 7 // read, write, execute: as PROT_*
	vmMayShare = 0x80
	vmLocked   = 0x2000
	vmHugeTLB  = 0x400000
)

// mapFlags are the MAP_* that PERF_RECORD_MMAP2 has for a mapping.
func mapFlags(vm uint32) uint32 {
	flags := shareFlags(vm&vmMayShare != 0)
	if vm&vmLocked != 0 {
		flags |= syscall.MAP_LOCKED
	}
	if vm&vmHugeTLB != 0 {
		flags |= syscall.MAP_HUGETLB
	}
	return flags
}

// mapping writes the record of one mapping. A process without records has begun since the
// iterator passed; the live sideband has it, and what it has mapped it inherited.
func (p *pass) mapping(m *tasks.Mapping) error {
	if m.PID != p.last {
		p.last, p.want = m.PID, p.reported.has(int32(m.PID)) || p.all && p.sink.Want == nil
	}
	if !p.want {
		return nil
	}
	r := &p.rec
	*r = perf.Mmap2{
		PID: int32(m.PID), Addr: m.Start, Len: m.End - m.Start, PgOff: m.Offset,
		Maj: m.File.Major, Min: m.File.Minor, Ino: m.File.Inode, InoGen: uint64(m.File.Generation),
		Prot: m.Flags & vmProt, Flags: mapFlags(m.Flags), Filename: m.File.Path,
	}
	r.Misc = perf.MiscUser
	if m.File.Inode != 0 {
		r.BuildID = p.buildID(m.File, r)
	}
	if len(r.BuildID) > 0 {
		r.Misc |= perf.MiscMmapBuildID
	}
	return p.sendMapping(r, r.PID, max(m.Now, p.floor))
}

// buildID is the build-id of a mapped file, which is looked for once.
func (p *pass) buildID(f *tasks.File, m *perf.Mmap2) []byte {
	b := p.b
	for int(f.ID) >= len(b.files) {
		b.files = append(b.files, fileID{})
	}
	known := &b.files[f.ID]
	if known.done || f.Magic == magicFUSE {
		return known.id
	}
	id, err := b.ids.MappedNotFUSE(b.fs.Proc(int(m.PID)), m)
	switch {
	case err == nil:
		known.id, known.done = id, true
		return id
	case errors.Is(err, procroot.ErrTimeout):
		p.stats.TimedOut++
		known.done = true
	}
	known.tries++
	known.done = known.done || known.tries >= maxTries
	return nil
}

// maxComms bounds the names that are kept.
const maxComms = 1 << 12

// comm is the task's name as a string.
func (b *BPF) comm(t *tasks.Task) string {
	if s, ok := b.comms[string(t.Comm)]; ok {
		return s
	}
	if len(b.comms) >= maxComms {
		clear(b.comms)
	}
	s := string(t.Comm)
	b.comms[s] = s
	return s
}
