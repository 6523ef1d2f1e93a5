// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/gantry-tools/gantry/internal/elffile"
)

// ErrNotELF is returned for a file that does not begin as an ELF file does.
var ErrNotELF = elffile.ErrNotELF

const (
	maxRanges     = 64      // segments or sections of notes looked at
	maxNotesBytes = 1 << 20 // notes read of each of them
)

// FromFile returns the GNU build-id of the ELF file in r, which has size bytes.
// It looks in the PT_NOTE segments, as the kernel does, then in the note
// sections, where relocatable files (kernel modules) have it. The error is
// ErrNotELF, ErrNoID, or says what is wrong at which offset; a file that ends
// too early gives io.ErrUnexpectedEOF.
func FromFile(r io.ReaderAt, size int64) (ID, error) {
	return fromELF(r, size, gnuID)
}

// GoFromFile returns the build-id that Go's linker writes, a text of four
// hashes, of the ELF file in r. It does not identify a file as a GNU build-id
// does: stripping leaves it as it was. Errors are those of FromFile.
func GoFromFile(r io.ReaderAt, size int64) (string, error) {
	return fromELF(r, size, goID)
}

// chunk is a range of the file that holds notes.
type chunk struct {
	off, size, align uint64
}

// noteParser takes one range of notes.
type noteParser[T any] func(b []byte, order binary.ByteOrder, align int) (T, error)

func fromELF[T any](r io.ReaderAt, size int64, parse noteParser[T]) (T, error) {
	var zero T
	h, err := elffile.ReadHeaders(r, size)
	if err != nil {
		return zero, err
	}
	var first error // a broken range hides no good one behind it
	for _, list := range []func(*elffile.Headers) ([]chunk, error){noteSegments, noteSections} {
		chunks, err := list(h)
		if err != nil && first == nil {
			first = err
		}
		for _, c := range chunks[:min(len(chunks), maxRanges)] {
			id, err := parseChunk(h, c, parse)
			if err == nil {
				return id, nil
			}
			if !errors.Is(err, ErrNoID) && first == nil {
				first = err
			}
		}
	}
	if first == nil {
		first = ErrNoID
	}
	return zero, first
}

func noteSegments(h *elffile.Headers) (chunks []chunk, err error) {
	list, err := h.Progs()
	for i := range list {
		if p := &list[i]; p.Type == elf.PT_NOTE {
			chunks = append(chunks, chunk{p.Off, p.FileSize, p.Align})
		}
	}
	return chunks, err
}

func noteSections(h *elffile.Headers) (chunks []chunk, err error) {
	list, err := h.Sections()
	for i := range list {
		if s := &list[i]; s.Type == elf.SHT_NOTE {
			chunks = append(chunks, chunk{s.Off, s.Size, s.Align})
		}
	}
	return chunks, err
}

func parseChunk[T any](h *elffile.Headers, c chunk, parse noteParser[T]) (T, error) {
	var zero T
	b, err := h.Read(c.off, min(c.size, maxNotesBytes))
	if err != nil {
		return zero, fmt.Errorf("read notes: %w", err)
	}
	align := 4
	if c.align == 8 {
		align = 8
	}
	id, err := parse(b, h.Order, align)
	if err != nil && !errors.Is(err, ErrNoID) {
		err = fmt.Errorf("notes at offset %#x: %w", c.off, err)
	}
	return id, err
}
