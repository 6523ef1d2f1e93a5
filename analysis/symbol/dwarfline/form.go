// SPDX-License-Identifier: Apache-2.0

package dwarfline

// value is the value of an attribute: a number or an offset, whose meaning its
// form tells, or a text.
type value struct {
	form uint16 // 0 if there is none
	n    uint64
	text []byte
}

func (v value) ok() bool { return v.form != 0 }

// value reads the value of an attribute. What is not of use is skipped.
func (u *unit) value(r *buf, a *attr) value {
	v := value{form: a.form}
	if v.form == formIndirect {
		v.form = uint16(min(r.uleb(), 0xffff))
		if v.form == formIndirect || v.form == formImplicitConst {
			r.fail()
			return value{}
		}
	}
	switch v.form {
	case formAddr:
		v.n = r.uint(u.enc.addressSize)
	case formData1, formFlag, formRef1, formStrx1, formAddrx1:
		v.n = uint64(r.u8())
	case formData2, formRef2, formStrx2, formAddrx2:
		v.n = uint64(r.u16())
	case formStrx3, formAddrx3:
		v.n = uint64(r.u24())
	case formData4, formRef4, formStrx4, formAddrx4, formRefSup4:
		v.n = uint64(r.u32())
	case formData8, formRef8, formRefSig8, formRefSup8:
		v.n = r.u64()
	case formSdata:
		v.n = uint64(r.sleb())
	case formUdata, formRefUdata, formStrx, formAddrx, formRnglistx, formGNUAddrIndex, formGNUStrIndex:
		v.n = r.uleb()
	case formStrp, formSecOffset, formStrpSup, formLineStrp, formGNURefAlt, formGNUStrpAlt:
		v.n = r.uint(u.enc.offsetSize)
	case formRefAddr:
		size := u.enc.offsetSize
		if u.enc.version <= 2 {
			size = u.enc.addressSize
		}
		v.n = r.uint(size)
	case formFlagPresent:
		v.n = 1
	case formImplicitConst:
		v.n = uint64(a.value)
	case formString:
		v.text = r.str()
	default:
		op, ok := skipOf(v.form, u.enc)
		if !ok {
			r.fail()
		} else {
			r.step(op, u.enc)
		}
		return value{}
	}
	return v
}

// address is a value as an address.
func (u *unit) address(v value) (uint64, bool) {
	switch v.form {
	case formAddr:
		return v.n, true
	case formAddrx, formAddrx1, formAddrx2, formAddrx3, formAddrx4, formGNUAddrIndex:
		return u.addressAt(v.n)
	}
	return 0, false
}

// addressAt is an address by its number in .debug_addr.
func (u *unit) addressAt(n uint64) (uint64, bool) {
	size := uint64(u.enc.addressSize)
	f := u.base.addrFile
	if n > uint64(len(f.src.Addr))/size {
		return 0, false
	}
	r := f.reader(f.src.Addr)
	r.seek(u.base.addr)
	r.skip(n * size)
	addr := r.uint(u.enc.addressSize)
	return addr, !r.bad
}

// text is a value as a text, nil if it is none.
func (u *unit) text(v value) []byte {
	src := u.file.src
	switch v.form {
	case formString:
		return v.text[:min(len(v.text), maxNameSize)]
	case formStrp:
		return textAt(src.Str, v.n)
	case formLineStrp:
		return textAt(src.LineStr, v.n)
	case formStrx, formStrx1, formStrx2, formStrx3, formStrx4, formGNUStrIndex:
		size := uint64(u.enc.offsetSize)
		if v.n > uint64(len(src.StrOffsets))/size {
			return nil
		}
		r := u.file.reader(src.StrOffsets)
		r.seek(u.strOffsets())
		r.skip(v.n * size)
		off := r.uint(u.enc.offsetSize)
		if r.bad {
			return nil
		}
		return textAt(src.Str, off)
	case formGNUStrpAlt, formStrpSup:
		if alt := u.file.d.altFile(); alt != nil {
			return textAt(alt.src.Str, v.n)
		}
	}
	return nil
}

// strOffsets is where the unit's part of .debug_str_offsets begins. In split
// DWARF of version 5 it is behind a header, without being told.
func (u *unit) strOffsets() uint64 {
	if u.base.strOffsets == 0 && u.file.split && u.enc.version == 5 {
		return 4 + 2*uint64(u.enc.offsetSize-4) + 4
	}
	return u.base.strOffsets
}

// altBit marks the offset of a DIE that is in the alternate file.
const altBit = 1 << 63

// reference is a value as the offset of a DIE in .debug_info, with altBit if it
// is that of the alternate file.
func (u *unit) reference(v value) (uint64, bool) {
	switch v.form {
	case formRef1, formRef2, formRef4, formRef8, formRefUdata:
		return u.off + v.n, v.n < altBit
	case formRefAddr:
		return v.n, v.n < altBit
	case formGNURefAlt, formRefSup4, formRefSup8:
		return v.n | altBit, v.n < altBit
	}
	return 0, false
}
