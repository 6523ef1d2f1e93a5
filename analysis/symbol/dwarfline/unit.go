// SPDX-License-Identifier: Apache-2.0

package dwarfline

import (
	"cmp"
	"slices"
)

// unit is one unit of .debug_info.
type unit struct {
	file     *file
	off      uint64 // of its header
	dies     uint64 // of its first DIE
	end      uint64
	abbrevAt uint64
	enc      encoding
	kind     uint8
	id       uint64 // of split DWARF
	base     bases

	// From its first DIE.
	low, high value
	rangesAt  value
	stmtList  value
	compDir   []byte
	dwoName   []byte

	loaded   bool
	hasLines bool
	split    *unit // has the functions, if they are in another file
	lines    lineTable
	tree     tree
}

// bases are where the parts of a unit begin in sections that units share.
type bases struct {
	strOffsets, addr, rnglists uint64
	ranges                     uint64 // of version 4, split
	low                        uint64 // address
	addrFile                   *file  // with the addresses, and ranges of version 4
}

// readUnits reads the heads of the units in a part of .debug_info.
func (f *file) readUnits(from, to uint64) {
	r := f.reader(f.src.Info[:to])
	r.seek(from)
	for r.more() && len(f.units) < maxUnits && f.d.fuel > 0 {
		u := f.readUnit(r)
		if u == nil {
			f.d.broken("info", r.off)
			return
		}
		if u.kind != unitType && u.kind != unitSplitType {
			u.readRoot()
		}
		f.units = append(f.units, u)
		r.seek(u.end)
	}
	if r.more() && len(f.units) == maxUnits {
		f.d.tooMuch()
	}
}

// readUnit reads the header of a unit, nil if it is malformed.
func (f *file) readUnit(r *buf) *unit {
	u := &unit{file: f, off: r.off}
	length, offsetSize := r.length()
	if r.bad || length > uint64(len(r.b))-r.off {
		return nil
	}
	u.end = r.off + length
	f.d.spend(32)
	u.enc = encoding{version: r.u16(), offsetSize: offsetSize}
	switch {
	case u.enc.version >= 2 && u.enc.version <= 4:
		u.kind = unitCompile
		u.abbrevAt = r.uint(offsetSize)
		u.enc.addressSize = r.u8()
	case u.enc.version == 5:
		u.kind = r.u8()
		u.enc.addressSize = r.u8()
		u.abbrevAt = r.uint(offsetSize)
		switch u.kind {
		case unitSkeleton, unitSplitCompile:
			u.id = r.u64()
		case unitType, unitSplitType:
			r.skip(8 + uint64(offsetSize))
		}
	default:
		u.kind = unitType // of a later standard: passed over
	}
	u.dies = min(r.off, u.end)
	if s := u.enc.addressSize; r.bad || u.enc.version <= 5 && u.kind != unitType && s != 1 && s != 2 && s != 4 &&
		s != 8 {
		return nil
	}
	u.base.addrFile = f
	return u
}

// readRoot reads the first DIE.
func (u *unit) readRoot() {
	r := u.file.reader(u.file.src.Info[:u.end])
	r.seek(u.dies)
	code := r.uleb()
	if code == 0 {
		return
	}
	ab := u.file.readAbbrevs(u.abbrevAt, u.enc, code).get(code)
	if ab == nil {
		u.file.d.broken("abbrev", u.abbrevAt)
		return
	}
	if ab.tag == tagPartialUnit {
		u.kind = unitPartial
	}
	var dir, dwo value
	for i := range ab.attrs {
		a := &ab.attrs[i]
		v := u.value(r, a)
		switch a.name {
		case atCompDir:
			dir = v
		case atLowpc:
			u.low = v
		case atHighpc:
			u.high = v
		case atRanges:
			u.rangesAt = v
		case atStmtList:
			u.stmtList = v
		case atStrOffsetsBase:
			u.base.strOffsets = v.n
		case atAddrBase, atGNUAddrBase:
			u.base.addr = v.n
		case atRnglistsBase:
			u.base.rnglists = v.n
		case atGNURangesBase:
			u.base.ranges = v.n
		case atDwoName, atGNUDwoName:
			dwo = v
		case atGNUDwoID:
			u.id = v.n
		}
	}
	u.file.d.spend(r.off - u.dies)
	if r.bad {
		u.file.d.broken("info", u.dies)
		return
	}
	u.compDir, u.dwoName = u.text(dir), u.text(dwo)
	u.base.low, _ = u.address(u.low)
}

// load reads the functions and the line table of a unit, once.
func (u *unit) load() {
	if u.loaded {
		return
	}
	u.loaded = true
	u.readLines()
	from := u
	if len(u.dwoName) > 0 {
		if u.split = u.openSplit(); u.split != nil {
			from = u.split
		}
	}
	u.tree.read(from)
}

// readLines reads the line table, once.
func (u *unit) readLines() {
	if u.stmtList.ok() && !u.hasLines {
		u.lines.read(u)
	}
	u.hasLines = true
}

// nameOf is the name of the function at an offset.
func (u *unit) nameOf(ref uint64) string {
	if u.split != nil {
		return u.split.file.nameOf(ref)
	}
	return u.file.nameOf(ref)
}

// unitOf is the unit that an offset of .debug_info lies in, nil if none does.
func (f *file) unitOf(off uint64) *unit {
	n, found := slices.BinarySearchFunc(f.units, off, func(u *unit, off uint64) int { return cmp.Compare(u.off, off) })
	if !found {
		n--
	}
	if n < 0 || off >= f.units[n].end || off < f.units[n].dies {
		return nil
	}
	return f.units[n]
}
