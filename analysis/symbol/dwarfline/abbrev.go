// SPDX-License-Identifier: Apache-2.0

package dwarfline

// role is what a DIE is good for here.
type role uint8

const (
	rolePass   role = iota // nothing, but there may be functions below it
	roleFunc               // a function
	roleInline             // a call inlined into one
)

type attr struct {
	name, form uint16
	value      int64 // of formImplicitConst
}

// skipOp is one step over the attributes of a DIE.
type skipOp struct {
	kind skipKind
	n    uint32 // of skipBytes
}

type skipKind uint8

const (
	skipBytes skipKind = iota
	skipLEB
	skipText
	skipBlock1
	skipBlock2
	skipBlock4
	skipBlock
	skipIndirect
)

// abbrev is the layout of a kind of DIE.
type abbrev struct {
	tag      uint16
	role     role
	children bool
	attrs    []attr
	skips    []skipOp
}

// encoding is what the size of a form depends on.
type encoding struct {
	version     uint16
	addressSize uint8
	offsetSize  uint8
}

// abbrevs is a table of abbreviations. Codes nearly always count from 1.
type abbrevs struct {
	list   []abbrev
	sparse map[uint64]int32 // for tables whose codes do not
}

func (a *abbrevs) get(code uint64) *abbrev {
	if a.sparse != nil {
		i, ok := a.sparse[code]
		if !ok {
			return nil
		}
		return &a.list[i]
	}
	if code-1 >= uint64(len(a.list)) {
		return nil
	}
	return &a.list[code-1]
}

type abbrevKey struct {
	off uint64
	enc encoding
}

// maxAbbrevTables bounds the tables that are remembered.
const maxAbbrevTables = 1 << 10

// abbrevsAt reads the table at an offset, or remembers it.
func (f *file) abbrevsAt(off uint64, enc encoding) *abbrevs {
	key := abbrevKey{off, enc}
	if t := f.tables[key]; t != nil {
		return t
	}
	t := f.readAbbrevs(off, enc, 0)
	if f.tables == nil || len(f.tables) >= maxAbbrevTables {
		f.tables = make(map[abbrevKey]*abbrevs)
	}
	f.tables[key] = t
	return t
}

// readAbbrevs reads the table at an offset; if only is not zero, only the
// abbreviation with this code.
func (f *file) readAbbrevs(off uint64, enc encoding, only uint64) *abbrevs {
	t := &abbrevs{}
	r := f.reader(f.src.Abbrev)
	r.seek(off)
	begin := r.off
	for r.more() && len(t.list) < maxAbbrevs && f.d.fuel > 0 {
		code := r.uleb()
		if code == 0 || r.bad {
			break
		}
		a := abbrev{tag: uint16(min(r.uleb(), 0xffff)), children: r.u8() != 0}
		a.role = roleOf(a.tag)
		wanted := only == 0 || only == code
		r.attrs(&a, enc, wanted)
		if r.bad {
			break
		}
		if !wanted {
			continue
		}
		t.add(code, a)
		if only != 0 {
			break
		}
	}
	f.d.spend(r.off - begin)
	return t
}

// attrs reads the attributes of a, or only skips them.
func (r *buf) attrs(a *abbrev, enc encoding, keep bool) {
	for !r.bad {
		at := attr{name: uint16(min(r.uleb(), 0xffff)), form: uint16(min(r.uleb(), 0xffff))}
		if at.form == formImplicitConst {
			at.value = r.sleb()
		}
		if at.name == 0 && at.form == 0 {
			return
		}
		if !keep {
			continue
		}
		a.attrs = append(a.attrs, at)
		op, ok := skipOf(at.form, enc)
		if !ok {
			r.fail() // a form of another standard: nothing behind it can be found
		}
		if last := len(a.skips) - 1; op.kind == skipBytes && last >= 0 && a.skips[last].kind == skipBytes {
			a.skips[last].n += op.n
		} else if op.kind != skipBytes || op.n > 0 {
			a.skips = append(a.skips, op)
		}
	}
}

func (t *abbrevs) add(code uint64, a abbrev) {
	n := int32(len(t.list))
	t.list = append(t.list, a)
	if t.sparse == nil && code != uint64(n)+1 {
		t.sparse = make(map[uint64]int32)
		for i := range n {
			t.sparse[uint64(i)+1] = i
		}
	}
	if t.sparse != nil {
		if _, ok := t.sparse[code]; !ok {
			t.sparse[code] = n
		}
	}
}

func roleOf(tag uint16) role {
	switch tag {
	case tagSubprogram:
		return roleFunc
	case tagInlinedSubroutine:
		return roleInline
	}
	return rolePass
}

// skipOf is the step over a value of a form.
func skipOf(form uint16, enc encoding) (skipOp, bool) {
	fixed := func(n uint8) (skipOp, bool) { return skipOp{skipBytes, uint32(n)}, true }
	switch form {
	case formFlagPresent, formImplicitConst:
		return fixed(0)
	case formData1, formFlag, formRef1, formStrx1, formAddrx1:
		return fixed(1)
	case formData2, formRef2, formStrx2, formAddrx2:
		return fixed(2)
	case formStrx3, formAddrx3:
		return fixed(3)
	case formData4, formRef4, formStrx4, formAddrx4, formRefSup4:
		return fixed(4)
	case formData8, formRef8, formRefSig8, formRefSup8:
		return fixed(8)
	case formData16:
		return fixed(16)
	case formAddr:
		return fixed(enc.addressSize)
	case formRefAddr:
		if enc.version <= 2 {
			return fixed(enc.addressSize)
		}
		return fixed(enc.offsetSize)
	case formStrp, formSecOffset, formStrpSup, formLineStrp, formGNURefAlt, formGNUStrpAlt:
		return fixed(enc.offsetSize)
	case formSdata, formUdata, formRefUdata, formStrx, formAddrx, formLoclistx, formRnglistx, formGNUAddrIndex,
		formGNUStrIndex:
		return skipOp{kind: skipLEB}, true
	case formString:
		return skipOp{kind: skipText}, true
	case formBlock1:
		return skipOp{kind: skipBlock1}, true
	case formBlock2:
		return skipOp{kind: skipBlock2}, true
	case formBlock4:
		return skipOp{kind: skipBlock4}, true
	case formBlock, formExprloc:
		return skipOp{kind: skipBlock}, true
	case formIndirect:
		return skipOp{kind: skipIndirect}, true
	}
	return skipOp{}, false
}

// step moves over one value.
func (r *buf) step(op skipOp, enc encoding) {
	switch op.kind {
	case skipBytes:
		r.skip(uint64(op.n))
	case skipLEB:
		for r.u8() >= 0x80 {
		}
	case skipText:
		r.str()
	case skipBlock1:
		r.skip(uint64(r.u8()))
	case skipBlock2:
		r.skip(uint64(r.u16()))
	case skipBlock4:
		r.skip(uint64(r.u32()))
	case skipBlock:
		r.skip(r.uleb())
	case skipIndirect:
		op, ok := skipOf(uint16(min(r.uleb(), 0xffff)), enc)
		if !ok || op.kind == skipIndirect {
			r.fail()
			return
		}
		r.step(op, enc)
	}
}
