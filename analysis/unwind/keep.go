// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Kept tables are one block:
//
//	magic, version, architecture, tag of the file   what they are of
//	counts                                          of what follows
//	segments, stubs, spans, rows, rules, registers, expressions
//	SHA-256 of all before
//
// all little-endian. They have the functions that were met, and grow with use;
// what is not in them is read from the file.
const (
	keptMagic   = "gantry unwind\x00\x00\x00"
	keptVersion = 1
	keptHead    = len(keptMagic) + 8 + sha256.Size
	keptCounts  = 7
	// MaxKept bounds kept tables, in bytes: a whole browser has a tenth.
	MaxKept = 1 << 26

	keptSegment = 25
	keptPLT     = 17
	keptSpan    = 24
	keptRow     = 8
	keptRule    = 12
	keptReg     = 6
)

// ErrKept is what tables that cannot be used are refused with.
var ErrKept = errors.New("unwind tables are of another version or file, or damaged")

// Kept says where the tables of a binary are kept. Either function may be nil.
type Kept struct {
	// Tag says which file it is, such as its build-id.
	Tag string
	// Load gives the tables that were saved under the tag, or an error.
	Load func() ([]byte, error)
	// Save keeps them.
	Save func([]byte) error
}

// Keep makes the Binary use kept tables. It must not have been used before.
func (b *Binary) Keep(k Kept) { b.kept = &k }

// Save saves the tables if there is more in them than was loaded.
func (b *Binary) Save() error {
	if b.kept == nil || b.kept.Save == nil || !b.read || b.err != nil {
		return nil
	}
	good := 0
	for _, s := range b.spans {
		if s.n > 0 {
			good++
		}
	}
	if good == len(b.old) {
		return nil
	}
	data := b.encode()
	if len(data) > MaxKept {
		return nil
	}
	if err := b.kept.Save(data); err != nil {
		return fmt.Errorf("save unwind tables: %w", err)
	}
	return nil
}

// loadKept takes the tables that were kept, if they are good. It is false if
// the file has to be read.
func (b *Binary) loadKept() bool {
	if b.kept == nil || b.kept.Load == nil {
		return false
	}
	data, err := b.kept.Load()
	if err != nil {
		return false
	}
	k := keptReader{data: data}
	if k.decode(b) != nil {
		b.table, b.segs, b.plts = table{}, nil, nil
		return false
	}
	b.old = b.spans
	return true
}

func (b *Binary) keptHead() []byte {
	tag := sha256.Sum256([]byte(b.kept.Tag))
	head := binary.LittleEndian.AppendUint32([]byte(keptMagic), keptVersion)
	head = binary.LittleEndian.AppendUint32(head, uint32(b.arch))
	return append(head, tag[:]...)
}

// encode makes the block.
func (b *Binary) encode() []byte {
	le := binary.LittleEndian
	spans := slices.DeleteFunc(slices.Clone(b.spans), func(s span) bool { return s.n == 0 })
	slices.SortStableFunc(spans, func(x, y span) int { return cmp.Compare(x.start, y.start) })
	out := b.keptHead()
	for _, n := range []int{len(b.segs), len(b.plts), len(spans), len(b.rows), len(b.rules), len(b.regs), len(b.exprs)} {
		out = le.AppendUint32(out, uint32(n))
	}
	flag := func(v bool) byte {
		if v {
			return 1
		}
		return 0
	}
	for _, s := range b.segs {
		out = le.AppendUint64(le.AppendUint64(le.AppendUint64(out, s.off), s.addr), s.size)
		out = append(out, flag(s.exec))
	}
	for _, p := range b.plts {
		out = append(le.AppendUint64(le.AppendUint64(out, p.start), p.end), flag(p.lazy))
	}
	for _, s := range spans {
		out = le.AppendUint64(le.AppendUint64(out, s.start), s.end)
		out = le.AppendUint32(le.AppendUint32(out, s.first), s.n)
	}
	for _, r := range b.rows {
		out = le.AppendUint32(le.AppendUint32(out, r.off), r.rule)
	}
	for _, r := range b.rules {
		out = le.AppendUint32(le.AppendUint32(out, uint32(r.cfaOff)), r.first)
		out = append(out, r.n, r.cfaReg, r.ra, uint8(r.flags))
	}
	for _, g := range b.regs {
		out = append(le.AppendUint32(out, uint32(g.arg)), g.reg, uint8(g.kind))
	}
	for _, e := range b.exprs {
		out = append(le.AppendUint32(out, uint32(len(e))), e...)
	}
	sum := sha256.Sum256(out)
	return append(out, sum[:]...)
}

// keptReader reads a block, and believes nothing in it.
type keptReader struct {
	cursor
	data []byte
}

func (k *keptReader) decode(b *Binary) error {
	n := len(k.data) - sha256.Size
	if n < keptHead+4*keptCounts || len(k.data) > MaxKept || !bytes.HasPrefix(k.data, b.keptHead()) {
		return ErrKept
	}
	if sum := sha256.Sum256(k.data[:n]); !bytes.Equal(sum[:], k.data[n:]) {
		return ErrKept
	}
	k.cursor = cursor{b: k.data[:n], at: keptHead}
	var counts [keptCounts]int
	for i := range counts {
		counts[i] = int(k.u32())
	}
	need := 0
	for i, size := range []int{keptSegment, keptPLT, keptSpan, keptRow, keptRule, keptReg, 4} {
		need += counts[i] * size
	}
	if k.bad || need > k.left() || counts[3] > maxRows || counts[4] > maxRules {
		return ErrKept
	}
	k.places(b, counts[0], counts[1])
	k.rowsOf(&b.table, counts[2], counts[3], counts[4])
	k.rulesOf(&b.table, counts[4], counts[5], counts[6])
	if k.bad || k.left() != 0 {
		return ErrKept
	}
	return nil
}

func (k *keptReader) places(b *Binary, segs, plts int) {
	for range segs {
		b.segs = append(b.segs, segment{off: k.u64(), addr: k.u64(), size: k.u64(), exec: k.u8() != 0})
	}
	for range plts {
		b.plts = append(b.plts, pltRange{start: k.u64(), end: k.u64(), lazy: k.u8() != 0})
	}
}

func (k *keptReader) rowsOf(t *table, spans, rows, rules int) {
	t.spans, t.rows = make([]span, spans), make([]row, rows)
	for i := range t.spans {
		s := span{start: k.u64(), end: k.u64(), first: k.u32(), n: k.u32()}
		if s.start > s.end || uint64(s.first)+uint64(s.n) > uint64(rows) || i > 0 && s.start < t.spans[i-1].start {
			k.bad = true
			return
		}
		t.spans[i] = s
	}
	for i := range t.rows {
		r := row{off: k.u32(), rule: k.u32()}
		if int(r.rule) >= rules {
			k.bad = true
			return
		}
		t.rows[i] = r
	}
}

func (k *keptReader) rulesOf(t *table, rules, regs, exprs int) {
	t.rules, t.regs = make([]rule, rules), make([]regRule, regs)
	for i := range t.rules {
		r := rule{cfaOff: int32(k.u32()), first: k.u32(), n: k.u8(), cfaReg: k.u8(), ra: k.u8(), flags: ruleFlags(k.u8())}
		byExpr := r.flags&cfaIsExpr != 0
		if uint64(r.first)+uint64(r.n) > uint64(regs) || r.cfaReg >= numRegs || r.ra >= numRegs ||
			byExpr && (r.cfaOff < 0 || int(r.cfaOff) >= exprs) {
			k.bad = true
			return
		}
		t.rules[i] = r
	}
	for i := range t.regs {
		g := regRule{arg: int32(k.u32()), reg: k.u8(), kind: regKind(k.u8())}
		limit := int(numRegs)
		if g.kind == atExpr || g.kind == isExpr {
			limit = exprs
		}
		if g.reg >= numRegs || g.kind > isExpr || g.kind >= inReg && (g.arg < 0 || int(g.arg) >= limit) {
			k.bad = true
			return
		}
		t.regs[i] = g
	}
	for range exprs {
		n := k.u32()
		if n > maxExpr {
			k.bad = true
			return
		}
		t.exprs = append(t.exprs, bytes.Clone(k.take(int(n))))
	}
}

// reindex makes rules and expressions that were loaded findable, before more
// are added.
func (t *table) reindex() {
	t.interned, t.internedExpr = make(map[string]uint32), make(map[string]int32)
	for i, r := range t.rules {
		t.makeKey(r, t.regs[r.first:r.first+uint32(r.n)])
		t.interned[string(t.key)] = uint32(i)
	}
	for i, e := range t.exprs {
		t.internedExpr[string(e)] = int32(i)
	}
}
