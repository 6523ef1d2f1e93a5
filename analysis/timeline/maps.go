// SPDX-License-Identifier: Apache-2.0

package timeline

import "slices"

// File is what a mapping shows: one content under one path. The same path
// with another build-id or inode is another File.
type File struct {
	// Index counts the files of a timeline from 0.
	Index int
	// Path is the path as the process saw it, or a name in brackets.
	Path string
	// BuildID is the id of the content, as raw bytes; empty if the
	// recording does not tell.
	BuildID string
	// Maj, Min, Ino and InoGen name the file when there is no build-id.
	Maj, Min    uint32
	Ino, InoGen uint64
	// Kernel marks the kernel and its modules.
	Kernel bool
	// PID is the first process that was seen to map the file, and MountNS
	// the inode number of its mount namespace then, 0 if not known.
	PID     int32
	MountNS uint64
	// First is the time of the record that told of it first, 0 if that has none.
	// Status is set if it was mapped before: the record only found it.
	First  uint64
	Status bool
}

// Mapping is the range of addresses from Start up to, not including, End,
// which shows File from PgOff on.
type Mapping struct {
	Start, End uint64
	PgOff      uint64 // bytes
	File       *File
}

// Maps are the mappings of a process at one moment, by address. Several
// processes may share one.
type Maps struct {
	// id tells this content from every other: addresses found in it stay
	// found as long as the id is the same.
	id     uint32
	shared int // processes beyond the first
	copied int // mappings that count for Timeline.copied
	list   []Mapping
	last   int // the hit before, likely to be hit again
}

// ID is a number that changes whenever an address may have got another
// mapping. New mappings where nothing was do not change it. It is never 0.
func (m *Maps) ID() uint32 { return m.id }

// List is the mappings by address, for looking only.
func (m *Maps) List() []Mapping { return m.list }

// Find is the mapping that addr lies in, nil if there is none. It is valid
// until the next record is applied.
func (m *Maps) Find(addr uint64) *Mapping {
	if m.last < len(m.list) {
		if p := &m.list[m.last]; addr >= p.Start && addr < p.End {
			return p
		}
	}
	i := m.after(addr)
	if i == len(m.list) || addr < m.list[i].Start {
		return nil
	}
	m.last = i
	return &m.list[i]
}

// after is the index of the first mapping that ends behind addr.
func (m *Maps) after(addr uint64) int {
	lo, hi := 0, len(m.list)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if m.list[mid].End <= addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// insert puts p over what was there, cutting or splitting it, and says
// whether something was.
func (m *Maps) insert(p Mapping) (replaced bool) {
	lo := m.after(p.Start)
	hi := lo
	for hi < len(m.list) && m.list[hi].Start < p.End {
		hi++
	}
	if lo == hi {
		m.list = slices.Insert(m.list, lo, p)
		return false
	}
	if hi == lo+1 && m.list[lo] == p {
		return false
	}
	var keep [3]Mapping
	parts := keep[:0]
	if first := m.list[lo]; first.Start < p.Start {
		first.End = p.Start
		parts = append(parts, first)
	}
	parts = append(parts, p)
	if last := m.list[hi-1]; last.End > p.End {
		last.PgOff += p.End - last.Start
		last.Start = p.End
		parts = append(parts, last)
	}
	m.list = slices.Replace(m.list, lo, hi, parts...)
	return true
}

// insertMissing puts p only where nothing is.
func (m *Maps) insertMissing(p Mapping) {
	for p.Start < p.End {
		i := m.after(p.Start)
		gap := p
		if i < len(m.list) {
			next := m.list[i]
			if next.Start < p.End {
				gap.End = max(next.Start, p.Start)
			}
			if gap.End <= gap.Start {
				p.PgOff += next.End - p.Start
				p.Start = next.End
				continue
			}
		}
		m.list = slices.Insert(m.list, i, gap)
		p.PgOff += gap.End - p.Start
		p.Start = gap.End
	}
}
