// SPDX-License-Identifier: Apache-2.0

// Package elffile reads ELF files that may come from a container, and be
// hostile: no read and no allocation is larger than the file or a limit. Open is
// for readers that use debug/elf, and looks first at what that would read without
// a limit; Headers is for those that need a few headers of very many files.
package elffile

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
)

// ErrNotELF is a file that does not begin as an ELF file does.
var ErrNotELF = errors.New("not an ELF file")

// Open reads the headers of the ELF file in r, which has size bytes. The error
// is ErrNotELF, io.ErrUnexpectedEOF for a file that ends before what its
// headers name, or says what is wrong. Closing the result does nothing.
//
// Sections are not checked: read them with ReadSection, which has a limit.
func Open(r io.ReaderAt, size int64) (*elf.File, error) {
	h, err := ReadHeaders(r, size)
	if err != nil {
		return nil, err
	}
	if err := h.checkSections(); err != nil {
		return nil, fmt.Errorf("read ELF headers: %w", err)
	}
	f, err := elf.NewFile(io.NewSectionReader(r, 0, size))
	if errors.Is(err, io.EOF) { // what debug/elf gives for headers beyond the end
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("read ELF headers: %w", err)
	}
	return f, nil
}

// checkSections refuses a file whose section headers or section names debug/elf
// should not read, as it reads as much of both as there is: in a file with
// holes, which takes no room on a disk, that can be more than the memory.
func (h *Headers) checkSections() error {
	t, err := h.sectionTable()
	if err != nil || t.names >= t.count {
		return err // debug/elf says what is wrong with the number of the names
	}
	list, err := h.sectionsAt(t.off+t.names*h.sectionSize(), 1)
	if err != nil {
		return err
	}
	return checkNames(list[0].Size)
}
