// SPDX-License-Identifier: Apache-2.0

// Package buildid names ELF files by their content: it reads the GNU build-id
// out of ELF notes, and keeps files in a store addressed by it.
//
// Start with [FromFile] for the build-id of an ELF file, [Identify] for an id
// that also files without one have, [FromKernelNotes] for the notes of the
// running kernel (/sys/kernel/notes), [FromImage] for a file mapped in memory, and
// [OpenStore] for the store.
//
// The store has perf's layout, so that "perf report --buildid-dir DIR" finds
// what gantry put there and gantry finds what perf put there. A file is never
// returned on the word of its path: its id is read again each time.
//
// All input may come from a container and is taken as hostile: no length in a
// file decides how much memory is used.
package buildid

import (
	"encoding/hex"
	"errors"
	"fmt"
)

// MaxSize is the longest id in bytes. The kernel records at most 20; linkers
// write 8 (xxhash), 16 (md5, uuid) or 20 (sha1), and as many as a user asks.
const MaxSize = 64

// minSize is the shortest id that the store has a place for.
const minSize = 2

// usualSize is the shortest id that any linker writes unasked, xxhash.
const usualSize = 8

// recordSize is the size that the kernel and perf reserve for an id.
const recordSize = 20

// ErrNoID is returned for a well-formed file that has no build-id.
var ErrNoID = errors.New("no build-id")

// ID is the build-id of an ELF file, or what stands for it ([Kind]). It is
// comparable and may be a map key; its zero value means "no id".
type ID struct {
	raw string // the bytes; a string, so that an ID is small and comparable
}

// New makes an ID of its bytes, which it copies. It fails for no bytes and for
// more than MaxSize.
func New(b []byte) (ID, error) {
	if len(b) == 0 {
		return ID{}, ErrNoID
	}
	if len(b) > MaxSize {
		return ID{}, fmt.Errorf("build-id of %d bytes, at most %d are allowed", len(b), MaxSize)
	}
	return ID{raw: string(b)}, nil
}

// Parse reads an ID from hexadecimal text of either case.
func Parse(s string) (ID, error) {
	if len(s) > 2*MaxSize {
		return ID{}, fmt.Errorf("build-id of %d digits, at most %d are allowed", len(s), 2*MaxSize)
	}
	b, err := hex.DecodeString(s)
	if err != nil {
		return ID{}, fmt.Errorf("build-id %q: %w", s, err)
	}
	return New(b)
}

// String is the id in lower-case hexadecimal, "" for no id.
func (id ID) String() string { return hex.EncodeToString([]byte(id.raw)) }

// Bytes is a copy of the bytes of the id.
func (id ID) Bytes() []byte { return []byte(id.raw) }

// Len is the number of bytes of the id.
func (id ID) Len() int { return len(id.raw) }

// IsZero reports whether there is no id.
func (id ID) IsZero() bool { return id.raw == "" }

// Matches reports whether both ids are present and name the same content.
// It allows for perf.data written before Linux 5.11, where an id has always 20
// bytes, the unused ones zero.
func (id ID) Matches(other ID) bool {
	if id.IsZero() || other.IsZero() {
		return false
	}
	if id.raw == other.raw {
		return true
	}
	short, long := id.raw, other.raw
	if len(short) > len(long) {
		short, long = long, short
	}
	if len(long) != recordSize || long[:len(short)] != short {
		return false
	}
	for _, c := range []byte(long[len(short):]) {
		if c != 0 {
			return false
		}
	}
	return true
}

// MarshalText writes the id in hexadecimal.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText wrote; no text is no id.
func (id *ID) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*id = ID{}
		return nil
	}
	v, err := Parse(string(text))
	if err != nil {
		return err
	}
	*id = v
	return nil
}
