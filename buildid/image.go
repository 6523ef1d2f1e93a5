// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"errors"
	"fmt"
	"io"
)

// progLoad is PT_LOAD of elf.h.
const progLoad = 1

// FromImage returns the GNU build-id of an ELF file that is mapped in memory, as
// the kernel or ld.so do it: byte 0 of r is the first byte of the file's first
// mapping, and at most size bytes of r are looked at. It serves what has no file
// to read: the vdso, memory whose file is gone. Errors are those of FromFile.
func FromImage(r io.ReaderAt, size int64) (ID, error) {
	f, header, err := newELF(r, size)
	if err != nil {
		return ID{}, err
	}
	chunks, err := f.mappedNotes(f.programs(header))
	if err != nil {
		return ID{}, err
	}
	first := ErrNoID
	for _, c := range chunks {
		id, err := parseChunk(f, c, gnuID)
		if err == nil {
			return id, nil
		}
		if !errors.Is(err, ErrNoID) {
			first = err
		}
	}
	return ID{}, first
}

// mappedNotes lists the note segments by their distance from the first mapping,
// which begins with the file's first byte.
func (f *elfFile) mappedNotes(t headerTable) ([]chunk, error) {
	if t.off == 0 || t.count == 0 {
		return nil, nil
	}
	if t.entsize != t.entry {
		return nil, fmt.Errorf("program headers of %d bytes, must be of %d", t.entsize, t.entry)
	}
	b, err := f.read(t.off, t.count*t.entsize)
	if err != nil {
		return nil, fmt.Errorf("read program headers: %w", err)
	}
	addr := t.offset + 4 // Elf32_Phdr.p_vaddr
	if f.is64 {
		addr = t.offset + 8 // Elf64_Phdr.p_vaddr
	}
	var base uint64
	found := false
	var chunks []chunk
	for ; uint64(len(b)) >= t.entry && len(chunks) < maxRanges; b = b[t.entry:] {
		switch f.order.Uint32(b[t.typ:]) {
		case progLoad:
			if !found && f.word(b, t.offset) == 0 {
				base, found = f.word(b, addr), true
			}
		case t.note:
			chunks = append(chunks, chunk{off: f.word(b, addr), size: f.word(b, t.size), align: f.word(b, t.align)})
		}
	}
	if !found {
		return nil, errors.New("no segment begins with the file's first byte")
	}
	for i := range chunks {
		chunks[i].off -= base // one below it becomes huge, which read refuses
	}
	return chunks, nil
}
