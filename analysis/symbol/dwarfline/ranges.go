// SPDX-License-Identifier: Apache-2.0

package dwarfline

import "math"

// eachRange calls add for each range of addresses of a DIE, given its attributes
// low_pc, high_pc and ranges. Code that the linker dropped, which is at 0 or at
// the last addresses, is left out.
func (u *unit) eachRange(low, high, list value, add func(start, end uint64)) {
	keep := func(start, end uint64) {
		if start != 0 && start < end && start < math.MaxUint64-1 {
			add(start, end)
		}
	}
	if list.ok() {
		u.rangeList(list, keep)
		return
	}
	start, ok := u.address(low)
	if !ok || !high.ok() {
		return
	}
	end, isAddr := u.address(high)
	if !isAddr { // of version 4 on: the number of bytes
		end = start + high.n
	}
	keep(start, end)
}

// rangeList reads a list of ranges.
func (u *unit) rangeList(list value, add func(start, end uint64)) {
	if u.enc.version < 5 {
		if list.form != formRnglistx {
			u.oldRanges(list.n, add)
		}
		return
	}
	off := list.n
	src := u.file.src.Rnglists
	if list.form == formRnglistx {
		base := u.base.rnglists
		if base == 0 { // split: behind a header
			base = 4 + 2*uint64(u.enc.offsetSize-4) + 8
		}
		r := u.file.reader(src)
		r.seek(base)
		if off > uint64(len(src)) {
			return
		}
		r.skip(off * uint64(u.enc.offsetSize))
		off = base + r.uint(u.enc.offsetSize)
		if r.bad || off < base {
			u.file.d.broken("rnglists", base)
			return
		}
	}
	r := u.file.reader(src)
	r.seek(off)
	u.newRanges(r, add)
	u.file.d.spend(r.off - min(off, r.off))
	if r.bad {
		u.file.d.broken("rnglists", off)
	}
}

// newRanges reads a list of .debug_rnglists.
func (u *unit) newRanges(r *buf, add func(start, end uint64)) {
	base := u.base.low
	for !r.bad && u.file.d.fuel > 0 {
		switch kind := r.u8(); kind {
		case rleEndOfList:
			return
		case rleBaseAddressx:
			base, _ = u.addressAt(r.uleb())
		case rleStartxEndx:
			start, ok := u.addressAt(r.uleb())
			end, ok2 := u.addressAt(r.uleb())
			if ok && ok2 {
				add(start, end)
			}
		case rleStartxLength:
			start, ok := u.addressAt(r.uleb())
			n := r.uleb()
			if ok {
				add(start, start+n)
			}
		case rleOffsetPair:
			start, end := r.uleb(), r.uleb()
			if !r.bad && base < math.MaxUint64-1 {
				add(base+start, base+end)
			}
		case rleBaseAddress:
			base = r.uint(u.enc.addressSize)
		case rleStartEnd:
			start, end := r.uint(u.enc.addressSize), r.uint(u.enc.addressSize)
			if !r.bad {
				add(start, end)
			}
		case rleStartLength:
			start := r.uint(u.enc.addressSize)
			n := r.uleb()
			if !r.bad {
				add(start, start+n)
			}
		default:
			r.fail()
		}
	}
}

// oldRanges reads a list of .debug_ranges: pairs of addresses, the first of
// them all ones where the second is a new base.
func (u *unit) oldRanges(off uint64, add func(start, end uint64)) {
	f := u.base.addrFile // split DWARF has its ranges in the binary
	if f != u.file {
		off += u.base.ranges
	}
	r := f.reader(f.src.Ranges)
	r.seek(off)
	base, size := u.base.low, u.enc.addressSize
	ones := uint64(math.MaxUint64) >> (64 - 8*uint(size))
	for !r.bad && u.file.d.fuel > 0 {
		start, end := r.uint(size), r.uint(size)
		switch {
		case r.bad:
			u.file.d.broken("ranges", off)
		case start == 0 && end == 0:
			u.file.d.spend(r.off - off)
			return
		case start == ones:
			base = end
		case start == 1 && end == 1: // dropped by the linker
		default:
			add(base+start, base+end)
		}
	}
	u.file.d.spend(r.off - min(off, r.off))
}
