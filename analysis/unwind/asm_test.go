// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"io"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/gantry-tools/gantry/perf"
)

var le = binary.LittleEndian

func uleb(v uint64) []byte {
	var b []byte
	for {
		c := byte(v & 0x7f)
		if v >>= 7; v == 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

func sleb(v int64) []byte {
	var b []byte
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

// insn is an instruction with LEB128 operands: int for signed ones, uint64
// (or untyped, as uint64) for others, []byte as it is.
func insn(op byte, operands ...any) []byte {
	b := []byte{op}
	for _, o := range operands {
		switch o := o.(type) {
		case uint64:
			b = append(b, uleb(o)...)
		case int:
			b = append(b, sleb(int64(o))...)
		case []byte:
			b = append(b, o...)
		}
	}
	return b
}

// block is an expression behind its length.
func block(b ...byte) []byte { return append(uleb(uint64(len(b))), b...) }

// function is what an FDE is made of.
type function struct {
	start, size uint64
	insns       [][]byte
}

// cfi is a section of CFI with one CIE.
type cfi struct {
	addr         uint64
	debug        bool // .debug_frame
	wide         bool // 64-bit DWARF
	version      byte
	augmentation string // default "zR" in .eh_frame
	codeAlign    uint64
	dataAlign    int
	ra           byte
	insns        [][]byte
	functions    []function
	offsets      []uint64 // of the FDEs, after bytes
}

func (c *cfi) entry(dst, body []byte) []byte {
	for len(body)%8 != 4 { // with the 4 bytes of the length
		body = append(body, opNop)
	}
	if c.wide {
		dst = le.AppendUint32(dst, 0xffffffff)
		dst = le.AppendUint64(dst, uint64(len(body)))
	} else {
		dst = le.AppendUint32(dst, uint32(len(body)))
	}
	return append(dst, body...)
}

func (c *cfi) id(v uint64) []byte {
	if c.wide && c.debug {
		return le.AppendUint64(nil, v)
	}
	return le.AppendUint32(nil, uint32(v))
}

func (c *cfi) bytes() []byte {
	if c.version == 0 {
		c.version = 1
	}
	if c.codeAlign == 0 {
		c.codeAlign = 1
	}
	if c.dataAlign == 0 {
		c.dataAlign = -8
	}
	if c.augmentation == "" && !c.debug {
		c.augmentation = "zR"
	}
	id := uint64(0)
	if c.debug {
		id = ^id
	}
	body := append(c.id(id), c.version)
	body = append(append(body, c.augmentation...), 0)
	if c.version == 4 {
		body = append(body, 8, 0)
	}
	body = append(body, uleb(c.codeAlign)...)
	body = append(append(body, sleb(int64(c.dataAlign))...), c.ra)
	enc := byte(peAbs)
	if c.augmentation != "" {
		enc = pePCRel | peS4
		body = append(body, 1, enc)
	}
	body = append(body, slices.Concat(c.insns...)...)
	out := c.entry(nil, body)
	for _, f := range c.functions {
		out = c.fde(out, f, enc)
	}
	if !c.debug {
		out = append(out, 0, 0, 0, 0)
	}
	return out
}

func (c *cfi) fde(out []byte, f function, enc byte) []byte {
	off := uint64(len(out))
	c.offsets = append(c.offsets, off)
	head := off + 4
	if c.wide {
		head += 8
	}
	cie := uint64(0)
	if !c.debug {
		cie = head // the CIE is at 0
	}
	body := c.id(cie)
	if enc == peAbs {
		body = le.AppendUint64(le.AppendUint64(body, f.start), f.size)
	} else {
		at := c.addr + head + uint64(len(body))
		body = le.AppendUint32(le.AppendUint32(body, uint32(f.start-at)), uint32(f.size))
		body = append(body, 0) // no augmentation data
	}
	return c.entry(out, append(body, slices.Concat(f.insns...)...))
}

// hdr is the .eh_frame_hdr of the section, mapped at addr.
func (c *cfi) hdr(addr uint64) []byte {
	b := []byte{1, pePCRel | peS4, peU4, hdrEncoding}
	b = le.AppendUint32(b, uint32(c.addr-(addr+4)))
	b = le.AppendUint32(b, uint32(len(c.functions)))
	order := make([]int, len(c.functions))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return int(c.functions[i].start) - int(c.functions[j].start) })
	for _, i := range order {
		b = le.AppendUint32(b, uint32(c.functions[i].start-addr))
		b = le.AppendUint32(b, uint32(c.addr+c.offsets[i]-addr))
	}
	return b
}

// testSection is a section of a file that a test makes; without a name it is
// only mapped.
type testSection struct {
	name  string
	addr  uint64
	data  []byte
	exec  bool
	flags elf.SectionFlag
	ehHdr bool // has a PT_GNU_EH_FRAME
}

// makeELF makes an ELF file. Each section with an address is a segment.
func makeELF(machine elf.Machine, sections ...testSection) []byte {
	const ehdr = 64
	var progs, heads, data []byte
	names := []byte{0}
	count := 0
	for _, s := range sections {
		if s.addr != 0 {
			count++
		}
		if s.ehHdr {
			count++
		}
	}
	base := uint64(ehdr + count*56)
	for _, s := range sections {
		off := base + uint64(len(data))
		flags := elf.PF_R
		if s.exec {
			flags |= elf.PF_X
		}
		prog := func(typ elf.ProgType) {
			progs = le.AppendUint32(le.AppendUint32(progs, uint32(typ)), uint32(flags))
			for _, v := range []uint64{off, s.addr, s.addr, uint64(len(s.data)), uint64(len(s.data)), 8} {
				progs = le.AppendUint64(progs, v)
			}
		}
		if s.addr != 0 {
			prog(elf.PT_LOAD)
		}
		if s.ehHdr {
			prog(elf.PT_GNU_EH_FRAME)
		}
		if s.name != "" {
			heads = appendSection(heads, len(names), elf.SHT_PROGBITS, s.flags, s.addr, off, len(s.data))
			names = append(append(names, s.name...), 0)
		}
		data = append(data, s.data...)
	}
	h := make([]byte, ehdr)
	copy(h, elf.ELFMAG)
	h[elf.EI_CLASS], h[elf.EI_DATA], h[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1
	le.PutUint16(h[16:], uint16(elf.ET_DYN))
	le.PutUint16(h[18:], uint16(machine))
	le.PutUint64(h[32:], ehdr)
	le.PutUint16(h[54:], 56)
	le.PutUint16(h[56:], uint16(count))
	le.PutUint16(h[58:], 64)
	out := slices.Concat(h, progs, data)
	if len(heads) > 0 {
		namesAt := uint64(len(out))
		heads = appendSection(heads, 0, elf.SHT_STRTAB, 0, 0, namesAt, len(names))
		out = append(out, names...)
		le.PutUint64(out[40:], uint64(len(out)))
		le.PutUint16(out[60:], uint16(len(heads)/64))
		le.PutUint16(out[62:], uint16(len(heads)/64-1))
		out = append(out, heads...)
	}
	return out
}

func appendSection(b []byte, name int, typ elf.SectionType, flags elf.SectionFlag, addr, off uint64, size int) []byte {
	b = le.AppendUint32(le.AppendUint32(b, uint32(name)), uint32(typ))
	for _, v := range []uint64{uint64(flags), addr, off, uint64(size), 0, 1, 0} {
		b = le.AppendUint64(b, v)
	}
	return b
}

// packed is a section's content behind an Elf64_Chdr.
func packed(t testing.TB, typ elf.CompressionType, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	head := le.AppendUint32(nil, uint32(typ))
	head = le.AppendUint64(append(head, 0, 0, 0, 0), uint64(len(data)))
	b.Write(le.AppendUint64(head, 1))
	var w io.WriteCloser = zlib.NewWriter(&b)
	if typ == elf.COMPRESS_ZSTD {
		z, err := zstd.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		w = z
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// memFile is a file in memory.
type memFile struct{ *bytes.Reader }

func (memFile) Close() error { return nil }

func binaryOf(arch perf.Arch, file []byte) *Binary {
	return NewBinary(arch, func() (File, int64, error) { return memFile{bytes.NewReader(file)}, int64(len(file)), nil })
}

// loadAddr is where tests map the file, of which they map the code.
const loadAddr = 0x7f0000000000

// testSpace has one file mapped, from address code to codeEnd of the file.
type testSpace struct {
	b             *Binary
	code, codeEnd uint64
	off           uint64 // of code in the file
	jit           uint64 // start of a page without a file
}

func (s *testSpace) Find(addr uint64) (Mapping, bool) {
	if s.jit != 0 && addr >= s.jit && addr < s.jit+4096 {
		return Mapping{Start: s.jit, End: s.jit + 4096}, true
	}
	if addr < loadAddr+s.code || addr >= loadAddr+s.codeEnd {
		return Mapping{}, false
	}
	return Mapping{Start: loadAddr + s.code, End: loadAddr + s.codeEnd, Offset: s.off, Binary: s.b}, true
}

// stackBase is where the stacks of tests begin.
const stackBase = 0x7fff00000000

func words(v ...uint64) []byte {
	var b []byte
	for _, w := range v {
		b = le.AppendUint64(b, w)
	}
	return b
}
