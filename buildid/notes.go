// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Note types, from elf.h and Go's cmd/internal/buildid.
const (
	noteGNUBuildID = 3 // NT_GNU_BUILD_ID, owner "GNU\0"
	noteGoBuildID  = 4 // owner "Go\0\0"

	noteHeaderSize = 12 // Elf32_Nhdr and Elf64_Nhdr are the same

	maxGoID = 1 << 10
)

// FromKernelNotes finds the build-id of the running kernel in the content of
// /sys/kernel/notes, or that of a module in its
// /sys/module/NAME/notes/.note.gnu.build-id.
func FromKernelNotes(b []byte) (ID, error) {
	return gnuID(b, binary.NativeEndian, 4)
}

func gnuID(b []byte, order binary.ByteOrder, align int) (ID, error) {
	desc, err := findNote(b, order, align, "GNU\x00", noteGNUBuildID)
	if err != nil {
		return ID{}, err
	}
	id, err := New(desc)
	if err == nil && id.Kind() != KindGNU {
		return ID{}, ErrNoID // in the form of the ids that gantry makes up
	}
	return id, err
}

func goID(b []byte, order binary.ByteOrder, align int) (string, error) {
	desc, err := findNote(b, order, align, "Go\x00\x00", noteGoBuildID)
	if err != nil {
		return "", err
	}
	if len(desc) == 0 || len(desc) > maxGoID {
		return "", ErrNoID
	}
	return string(desc), nil
}

// findNote returns the descriptor of the first note with this owner and type.
// The result points into b.
func findNote(b []byte, order binary.ByteOrder, align int, owner string, typ uint32) ([]byte, error) {
	size := uint64(len(b))
	up := func(n uint64) uint64 { return (n + uint64(align) - 1) &^ (uint64(align) - 1) }
	for off := uint64(0); size-off >= noteHeaderSize; {
		namesz := uint64(order.Uint32(b[off:]))
		descsz := uint64(order.Uint32(b[off+4:]))
		kind := order.Uint32(b[off+8:])
		name := off + noteHeaderSize
		desc := up(name + namesz) // no overflow: off < 2^63, sizes < 2^32
		end := desc + descsz
		if desc > size || end > size {
			return nil, fmt.Errorf("note at offset %#x needs %d bytes, %d are left: %w",
				off, end-off, size-off, io.ErrUnexpectedEOF)
		}
		if kind == typ && string(b[name:name+namesz]) == owner {
			return b[desc:end:end], nil
		}
		if off = up(end); off > size { // the last note may lack its padding
			break
		}
	}
	return nil, ErrNoID
}
