// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ErrTooLarge is returned for a file with more bytes than it may have.
var ErrTooLarge = errors.New("too large")

// Kind is where an ID comes from.
type Kind uint8

const (
	KindNone    Kind = iota // no id
	KindGNU                 // the GNU build-id note
	KindGo                  // the note of Go's linker
	KindContent             // a hash of the whole file, which has neither
)

// String is the kind in one word.
func (k Kind) String() string {
	switch k {
	case KindNone:
		return "none"
	case KindGNU:
		return "gnu"
	case KindGo:
		return "go"
	case KindContent:
		return "content"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// MarshalText writes the kind in one word.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Ids that gantry makes up begin with one of these marks, followed by the first
// 16 bytes of a SHA-256. So they have the 20 bytes that records and perf's store
// have room for, and their text begins with 676e7467 or 676e7463. A GNU build-id
// that looks so does not count: nobody can pass a file for another's hash.
const (
	goMark      = "gntg"
	contentMark = "gntc"
	hashSize    = 16
)

// maxHashed bounds the files whose content is hashed.
const maxHashed = 1 << 30

// Kind tells where the id comes from.
func (id ID) Kind() Kind {
	switch {
	case id.IsZero():
		return KindNone
	case id.Len() == len(goMark)+hashSize && strings.HasPrefix(id.raw, goMark):
		return KindGo
	case id.Len() == len(contentMark)+hashSize && strings.HasPrefix(id.raw, contentMark):
		return KindContent
	}
	return KindGNU
}

// Identify returns the one id that an ELF file of size bytes has: its GNU
// build-id; else a hash of Go's build-id, if that has the form that the go
// command gives it (other builders write the same text into every program);
// else a hash of the whole file. The error is ErrNotELF, ErrTooLarge if there
// are more than 1 GiB to hash, or that of reading.
func Identify(r io.ReaderAt, size int64) (ID, error) {
	id, err := FromFile(r, size)
	if errors.Is(err, ErrNotELF) || err == nil && id.Len() >= minSize {
		return id, err
	}
	if text, err := GoFromFile(r, size); err == nil && isGoText(text) {
		return hashedID(goMark, sha256.Sum256([]byte("go build id\x00"+text))), nil
	}
	return hashContent(r, size)
}

// Check reports whether the file in r has the id: nil, ErrMismatch, or why it
// cannot be told. It reads no more than it takes.
func Check(r io.ReaderAt, size int64, id ID) error {
	identify := Identify
	switch id.Kind() {
	case KindGNU:
		identify = FromFile
	case KindContent: // of a file with a build-id, too: another has the same
		identify = hashContent
	}
	got, err := identify(r, size)
	if err == nil && !id.Matches(got) {
		err = fmt.Errorf("%w: %s", ErrMismatch, got)
	}
	return err
}

func hashedID(mark string, sum [sha256.Size]byte) ID {
	return ID{raw: mark + string(sum[:hashSize])}
}

func hashContent(r io.ReaderAt, size int64) (ID, error) {
	if size > maxHashed {
		return ID{}, fmt.Errorf("hash a file without build-id: %w: %d bytes", ErrTooLarge, size)
	}
	h := sha256.New()
	n, err := io.Copy(h, io.NewSectionReader(r, 0, size))
	if err == nil && n < size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return ID{}, fmt.Errorf("hash a file without build-id: %w", err)
	}
	return hashedID(contentMark, [sha256.Size]byte(h.Sum(nil))), nil
}

// isGoText reports whether a text is what the go command makes Go's linker
// write: four hashes of 20 letters (cmd/go/internal/work/buildid.go), the last
// one that of the program's content.
func isGoText(text string) bool {
	const parts, letters = 4, 20
	if len(text) != parts*(letters+1)-1 {
		return false
	}
	for i, c := range []byte(text) {
		slash := i%(letters+1) == letters
		if slash != (c == '/') || !slash && !isBase64URL(c) {
			return false
		}
	}
	return true
}

func isBase64URL(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}
