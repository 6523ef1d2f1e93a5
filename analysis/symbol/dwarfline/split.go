// SPDX-License-Identifier: Apache-2.0

package dwarfline

import "fmt"

// contribution is the part of a package of split DWARF that a unit has.
type contribution struct{ info, abbrev, strOffsets, rnglists section }

// section is a part of a section.
type section struct{ off, size uint64 }

// of cuts the part out of a whole section.
func (s section) of(b []byte) []byte {
	if s.off > uint64(len(b)) || s.size > uint64(len(b))-s.off {
		return nil
	}
	return b[s.off : s.off+s.size]
}

// openSplit finds the split unit of a skeleton, nil if it is nowhere.
func (u *unit) openSplit() *unit {
	d := u.file.d
	if u.file.split {
		return nil
	}
	if d.splits == maxSplits {
		d.tooMuch()
		return nil
	}
	d.splits++
	f := d.packedFile(u.id)
	if f == nil && d.opts.Split != nil {
		if src := d.opts.Split(string(u.compDir), string(u.dwoName)); src != nil {
			f = d.newFile(src)
		}
	}
	if f == nil {
		d.lacks(u, "is not there")
		return nil
	}
	f.split = true
	f.readUnits(0, uint64(len(f.src.Info)))
	for _, s := range f.units {
		if s.kind != unitType && s.kind != unitSplitType && s.id == u.id {
			s.base.addr, s.base.addrFile, s.base.low = u.base.addr, u.base.addrFile, u.base.low
			s.base.ranges = u.base.ranges
			return s
		}
	}
	d.lacks(u, "is of another build")
	return nil
}

// lacks remembers the first unit that has no split one.
func (d *Data) lacks(u *unit, why string) {
	if d.split == nil {
		d.split = fmt.Errorf("%w: %.200q %s", ErrSplit, u.dwoName, why)
	}
}

// packedFile is what the package has for a unit, nil if nothing. The parts of
// units may overlap, so that each adds no work to what the package allows for.
func (d *Data) packedFile(id uint64) *file {
	if !d.asked.pack {
		d.asked.pack = true
		if d.opts.Package != nil {
			if src := d.opts.Package(); src != nil {
				d.pack = d.newFile(src)
				d.packed = d.pack.readIndex()
			}
		}
	}
	c, ok := d.packed[id]
	if !ok {
		return nil
	}
	p := d.pack.src
	return d.partOf(&Source{
		Info: c.info.of(p.Info), Abbrev: c.abbrev.of(p.Abbrev),
		StrOffsets: c.strOffsets.of(p.StrOffsets), Rnglists: c.rnglists.of(p.Rnglists),
		Str: p.Str, LineStr: p.LineStr, BigEndian: p.BigEndian,
	})
}

// readIndex reads the index of a package: a hash table of unit ids, then two
// tables with a column per section, which say where the part of a unit begins
// and how long it is.
func (f *file) readIndex() map[uint64]contribution {
	r := f.reader(f.src.CUIndex)
	version := r.u16() // 2 of the GNU form in 4 bytes, 5 in two
	r.u16()
	if f.src.BigEndian && version == 0 {
		version = 2
	}
	columns, units, slots := uint64(r.u32()), uint64(r.u32()), uint64(r.u32())
	size := uint64(len(f.src.CUIndex))
	if r.bad || version != 2 && version != 5 || columns == 0 || columns > 16 || units > maxUnits || slots > size/12 ||
		units > size/8 {
		f.d.broken("cu_index", 0)
		return nil
	}
	const head = 16
	rows := head + slots*12            // where the tables begin: first the sections
	offsets := rows + columns*4        // then where each unit's part begins
	sizes := offsets + units*columns*4 // then how long it is
	at := func(off uint64) uint64 {
		x := f.reader(f.src.CUIndex)
		x.seek(off)
		return uint64(x.u32())
	}
	list := make(map[uint64]contribution)
	for slot := range slots {
		r.seek(head + slot*8)
		id, n := r.u64(), at(head+slots*8+slot*4)
		if n == 0 || n > units {
			continue
		}
		var c contribution
		for column := range columns {
			cell := ((n-1)*columns + column) * 4
			part := section{at(offsets + cell), at(sizes + cell)}
			switch kind := at(rows + column*4); {
			case kind == sectInfo:
				c.info = part
			case kind == sectAbbrev:
				c.abbrev = part
			case kind == sectStrOffsets:
				c.strOffsets = part
			case kind == sectRnglists && version == 5:
				c.rnglists = part
			}
		}
		list[id] = c
	}
	return list
}
