// SPDX-License-Identifier: Apache-2.0

package dwarfline

// nameOf is the name of the function whose DIE is at an offset: its linkage
// name, or that of the DIEs it refers to, else its plain name.
func (f *file) nameOf(off uint64) string {
	if off&altBit != 0 {
		alt := f.d.altFile()
		if alt == nil {
			return ""
		}
		f, off = alt, off&^altBit
	}
	if name, ok := f.names[off]; ok {
		return name
	}
	text := f.findName(off)
	if !f.d.mayKeep(len(text)) {
		return ""
	}
	name := string(text)
	if len(f.names) < maxFuncs {
		f.names[off] = name
	}
	return name
}

// findName follows the references of a DIE until one has a linkage name.
func (f *file) findName(off uint64) []byte {
	var plain []byte
	for range maxHops {
		if off&altBit != 0 {
			if f = f.d.altFile(); f == nil {
				break
			}
			off &^= altBit
		}
		d := f.namesAt(off)
		if len(d.linkage) > 0 {
			return d.linkage
		}
		if len(plain) == 0 {
			plain = d.plain
		}
		if !d.refers {
			break
		}
		off = d.next
	}
	return plain
}

// dieNames is what a DIE says of its name.
type dieNames struct {
	linkage, plain []byte
	next           uint64 // the DIE that it refers to
	refers         bool
}

func (f *file) namesAt(off uint64) (d dieNames) {
	u := f.unitOf(off)
	if u == nil || f.d.fuel <= 0 {
		return d
	}
	r := f.reader(f.src.Info[:u.end])
	r.seek(off)
	ab := f.abbrevsAt(u.abbrevAt, u.enc).get(r.uleb())
	if ab == nil {
		f.d.broken("info", off)
		return d
	}
	for i := range ab.attrs {
		a := &ab.attrs[i]
		switch a.name {
		case atName:
			d.plain = u.text(u.value(r, a))
		case atLinkageName, atMIPSLinkage:
			d.linkage = u.text(u.value(r, a))
		case atAbstractOrigin, atSpecification:
			if next, ok := u.reference(u.value(r, a)); ok && (!d.refers || a.name == atAbstractOrigin) {
				d.next, d.refers = next, true
			}
		default:
			u.value(r, a)
		}
	}
	f.d.spend(r.off - off)
	if r.bad {
		f.d.broken("info", off)
		return dieNames{}
	}
	return d
}

// altFile is the alternate file, nil if there is none.
func (d *Data) altFile() *file {
	if d.alt == nil {
		if src := d.altSource(); src != nil {
			d.alt = d.newFile(src)
			d.alt.readUnits(0, uint64(len(src.Info)))
		}
	}
	return d.alt
}

// altSource asks for the alternate file, once.
func (d *Data) altSource() *Source {
	if !d.asked.alt && d.opts.Alt != nil {
		if d.altSrc = d.opts.Alt(); d.altSrc != nil && d.opts.Cache != nil {
			d.altSum = d.altSrc.sum()
		}
	}
	d.asked.alt = true
	return d.altSrc
}
