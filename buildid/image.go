// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"debug/elf"
	"errors"
	"io"

	"github.com/gantry-tools/gantry/internal/elffile"
)

// FromImage returns the GNU build-id of an ELF file that is mapped in memory, as
// the kernel or ld.so do it: byte 0 of r is the first byte of the file's first
// mapping, and at most size bytes of r are looked at. It serves what has no file
// to read: the vdso, memory whose file is gone. Errors are those of FromFile.
func FromImage(r io.ReaderAt, size int64) (ID, error) {
	h, err := elffile.ReadHeaders(r, size)
	if err != nil {
		return ID{}, err
	}
	chunks, err := mappedNotes(h)
	if err != nil {
		return ID{}, err
	}
	first := ErrNoID
	for _, c := range chunks {
		id, err := parseChunk(h, c, gnuID)
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
func mappedNotes(h *elffile.Headers) ([]chunk, error) {
	progs, err := h.Progs()
	if len(progs) == 0 {
		return nil, err
	}
	var base uint64
	found := false
	var chunks []chunk
	for i := range progs {
		switch p := &progs[i]; {
		case p.Type == elf.PT_LOAD && !found && p.Off == 0:
			base, found = p.Addr, true
		case p.Type == elf.PT_NOTE && len(chunks) < maxRanges:
			chunks = append(chunks, chunk{p.Addr, p.FileSize, p.Align})
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
