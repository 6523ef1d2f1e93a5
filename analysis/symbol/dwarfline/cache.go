// SPDX-License-Identifier: Apache-2.0

package dwarfline

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// openCache takes what the cache has for the file, if it is worth it.
func (d *Data) openCache() {
	if d.opts.Cache == nil || d.src.Size() < minCached {
		d.opts.Cache = nil
		return
	}
	d.loadCache()
}

func (d *Data) loadCache() {
	d.key = d.src.sum()
	b, err := d.opts.Cache.Derived(d.key)
	if err != nil {
		return
	}
	k, err := readCached(b, d.key)
	if err != nil {
		return
	}
	if k.altSum != [sha256.Size]byte{} {
		if d.altSource(); d.altSum != k.altSum {
			return
		}
	}
	d.cached = k
}

// worthSaving is how much more than what is kept new tables have to be: this
// part of it. To write what is there again is cheaper than to read units again,
// but not for each of them.
const worthSaving = 16

// Save keeps what was read of units, if the cache is one. Nothing is kept of a
// file that is malformed in what was read. An error is no loss.
func (d *Data) Save() error {
	if d.opts.Cache == nil || d.main == nil || d.err != nil || d.altSrc == nil && d.asked.alt {
		return nil
	}
	defer func() { d.err = nil }() // names that nobody asked for may be broken
	w := newCacheWriter(d.cached)
	fresh, size := make(map[int][]byte), 0
	for i, u := range d.main.units {
		if !u.loaded || len(u.dwoName) > 0 || u.lines.seqs != nil || w.has(i) {
			continue
		}
		fresh[i] = w.unit(u)
		size += len(fresh[i])
		if d.err != nil {
			return nil
		}
	}
	if d.cached != nil && size < len(d.cached.parts)/worthSaving || size == 0 {
		return nil
	}
	content := d.encodeKept(w, fresh)
	if content == nil {
		return nil
	}
	if err := d.opts.Cache.AddDerived(d.key, content); err != nil {
		return fmt.Errorf("keep lines: %w", err)
	}
	return nil
}

// encodeKept makes the block of fresh parts and those of before; nil if it is
// too large.
func (d *Data) encodeKept(w *cacheWriter, fresh map[int][]byte) []byte {
	le, list := binary.LittleEndian, d.main.units
	part := func(i int) []byte {
		if b := fresh[i]; b != nil || !w.has(i) {
			return b
		}
		return w.old.partBytes(uint32(i))
	}
	number, parts := make(map[*unit]uint32, len(list)), 0
	for i, u := range list {
		number[u] = uint32(i)
		parts += len(part(i))
	}
	size := cacheHead + cacheRange*len(d.ranges) + cacheUnit*len(list) + len(w.texts) + parts
	if size > maxCache {
		return nil
	}
	out := append(make([]byte, 0, size), cacheMagic...)
	out = append(append(out, d.key[:]...), d.altSum[:]...)
	for _, n := range []int{len(d.ranges), len(list), len(w.texts), parts} {
		out = le.AppendUint32(out, uint32(n))
	}
	for _, r := range d.ranges {
		out = le.AppendUint64(le.AppendUint64(out, r.start), r.end)
		out = le.AppendUint32(out, number[r.unit])
	}
	at := 0
	for i := range list {
		n := len(part(i))
		out = le.AppendUint32(le.AppendUint32(out, uint32(at)), uint32(n))
		at += n
	}
	out = append(out, w.texts...)
	for i := range list {
		out = append(out, part(i)...)
	}
	return out
}

// cacheWriter makes parts. Texts are shared by all of them.
type cacheWriter struct {
	old   *cachedTables // nil if there is none
	texts []byte
	at    map[string]uint32 // of the texts

	// Of the part in the making:
	u     *unit
	files []byte
	local map[uint32]uint32 // numbers of files in the line table to those here
}

// newCacheWriter begins with the texts of before.
func newCacheWriter(old *cachedTables) *cacheWriter {
	w := &cacheWriter{old: old, at: make(map[string]uint32)}
	if old == nil {
		w.text("")
		return w
	}
	w.texts = []byte(old.texts)
	for at := uint32(0); ; {
		s, ok := old.text(at)
		if !ok {
			return w
		}
		w.at[s] = at
		at += 4 + uint32(len(s))
	}
}

// has reports whether a unit is kept already.
func (w *cacheWriter) has(unit int) bool {
	return w.old != nil && unit < len(w.old.opened) && w.old.part(uint32(unit)) != nil
}

// text is the offset of a text.
func (w *cacheWriter) text(s string) uint32 {
	at, ok := w.at[s]
	if !ok {
		at = uint32(len(w.texts))
		w.at[s] = at
		w.texts = append(binary.LittleEndian.AppendUint32(w.texts, uint32(len(s))), s...)
	}
	return at
}

// file is the number in the part of a file of the line table.
func (w *cacheWriter) file(n uint32) uint32 {
	if n == gap {
		return 0
	}
	number, ok := w.local[n]
	if !ok {
		w.files = binary.LittleEndian.AppendUint32(w.files, w.text(w.u.fileName(n)))
		number = uint32(len(w.files) / 4)
		w.local[n] = number
	}
	return number
}

// unit makes the part of a unit.
func (w *cacheWriter) unit(u *unit) []byte {
	le := binary.LittleEndian
	w.u, w.files, w.local = u, w.files[:0], make(map[uint32]uint32)
	funcs := make([]byte, 0, cacheFunc*len(u.tree.funcs))
	for i := range u.tree.funcs {
		f := &u.tree.funcs[i]
		around, file := uint32(f.parent+1), uint32(0)
		if f.inlined {
			around |= cacheInline
			file = w.file(min(f.callFile, gap-1))
		}
		funcs = le.AppendUint32(le.AppendUint32(funcs, w.text(u.nameOf(f.ref))), around)
		funcs = le.AppendUint32(le.AppendUint32(funcs, file), f.callLine)
	}
	c := changeWriter{}
	w.changes(&c)
	c.endBlock()
	out := le.AppendUint32(nil, uint32(len(w.files)/4))
	out = le.AppendUint32(out, uint32(len(funcs)/cacheFunc))
	out = le.AppendUint32(out, uint32(len(c.blocks)/cacheIndex))
	return append(append(append(append(out, w.files...), funcs...), c.blocks...), c.out...)
}

// changes merges the rows of the line table with the segments of the tree.
func (w *cacheWriter) changes(c *changeWriter) {
	rows, t := w.u.lines.rows, &w.u.tree
	var s state
	for i, j := 0, 0; i < len(rows) || j < len(t.starts); {
		addr := uint64(0)
		if i < len(rows) {
			addr = rows[i].addr
		}
		if j < len(t.starts) && (i == len(rows) || t.starts[j] < addr) {
			addr = t.starts[j]
		}
		for ; i < len(rows) && rows[i].addr == addr; i++ {
			s.file, s.line = w.file(rows[i].file), rows[i].line
		}
		for ; j < len(t.starts) && t.starts[j] == addr; j++ {
			s.fn = uint32(t.inner[j] + 1)
		}
		c.add(addr, s)
	}
}

// changeWriter writes what changes from address to address, in blocks.
type changeWriter struct {
	blocks, out []byte
	block       []byte // less its begin
	begin       state
	n           int // changes in the block
	last        state
	addr        uint64
}

func (c *changeWriter) add(addr uint64, s state) {
	if s == c.last && len(c.blocks) > 0 {
		return
	}
	if len(c.blocks) == 0 || c.n == cacheBlock || addr-c.addr > maxStep {
		c.endBlock()
		c.blocks = binary.LittleEndian.AppendUint64(c.blocks, addr)
		c.blocks = binary.LittleEndian.AppendUint32(c.blocks, uint32(len(c.out)))
		c.begin, c.last, c.addr = s, s, addr
		return
	}
	c.n++
	what := (addr - c.addr) << changeBits
	if s.file != c.last.file || s.line != c.last.line {
		what |= changesLine
	}
	if s.fn != c.last.fn {
		what |= changesFunc
	}
	c.block = binary.AppendUvarint(c.block, what)
	if what&changesLine != 0 {
		line := zigzag(int64(s.line)-int64(c.last.line)) << 1
		if s.file != c.last.file {
			c.block = binary.AppendUvarint(binary.AppendUvarint(c.block, line|1), uint64(s.file))
		} else {
			c.block = binary.AppendUvarint(c.block, line)
		}
	}
	if what&changesFunc != 0 {
		c.block = binary.AppendUvarint(c.block, zigzag(int64(s.fn)-int64(c.last.fn)))
	}
	c.last, c.addr = s, addr
}

// maxStep is how far apart changes of a block may be.
const maxStep = 1 << 40

// endBlock writes the block, if there is one.
func (c *changeWriter) endBlock() {
	if len(c.blocks) == 0 {
		return
	}
	for _, n := range []uint32{c.begin.file, c.begin.line, c.begin.fn, uint32(c.n)} {
		c.out = binary.AppendUvarint(c.out, uint64(n))
	}
	c.out = append(c.out, c.block...)
	c.block, c.n = c.block[:0], 0
}
