// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"errors"
	"fmt"
	"io"
)

// A DebugFunc finds the separate debug file of a binary, and gives it to use. It
// has made sure that the file belongs to the binary.
type DebugFunc func(use func(r io.ReaderAt, size int64) error) error

// Separate tells where the debug file of the binary is, if it has one: programs
// that are compiled without .eh_frame have their CFI in .debug_frame, which
// leaves the binary with the other debug information. It is looked for when
// the binary has nothing for an address. The Binary must not have been used before.
func (b *Binary) Separate(d DebugFunc) { b.separate = d }

// readSeparate reads the CFI of the debug file, once, and reports whether there
// is any. That there is no such file is the rule.
func (b *Binary) readSeparate() bool {
	if b.separate == nil || len(b.debug.data) > 0 {
		return false
	}
	find := b.separate
	b.separate = nil
	err := find(func(r io.ReaderAt, size int64) error {
		im, err := readImage(r, size)
		if err != nil {
			return err
		}
		if im.arch != b.arch {
			return fmt.Errorf("%w: it is for another machine", ErrNotELF)
		}
		im.left = b.left
		defer func() { b.left = im.left }()
		s := im.section(".debug_frame")
		if s == nil {
			return ErrNoCFI
		}
		data, err := im.content(s)
		if err != nil {
			return err
		}
		b.debug = functions{section: section{data: data, debug: true}}
		return nil
	})
	if err != nil {
		return false
	}
	if errors.Is(b.err, ErrNoCFI) {
		b.err = nil
	}
	return true
}
