// SPDX-License-Identifier: Apache-2.0

package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

const (
	maxZlibRatio  = 1032 // what deflate can do at most
	maxZstdRatio  = 64   // beyond it memory is taken as the content comes
	maxZstdWindow = 1 << 27
	maxZstdMemory = 1 << 30
	maxLink       = 1 << 12
)

// ErrTooLarge is a section that is larger than the caller reads.
var ErrTooLarge = errors.New("section is too large")

// ReadSection reads a section of the file in r, which has size bytes, as it
// lies in the file: compressed ones stay so. The error is ErrTooLarge if that is
// more than limit, io.ErrUnexpectedEOF if the file ends before it.
//
// (*elf.Section).Data would uncompress it, and take memory for whatever size it
// claims.
func ReadSection(r io.ReaderAt, size int64, sec *elf.Section, limit uint64) ([]byte, error) {
	if sec.Type == elf.SHT_NOBITS {
		return nil, nil
	}
	if sec.FileSize > limit {
		return nil, fmt.Errorf("%d bytes, at most %d are read: %w", sec.FileSize, limit, ErrTooLarge)
	}
	return Read(r, size, sec.Offset, sec.FileSize)
}

// DebugLink returns the name and the CRC-32 in .gnu_debuglink: which file has
// the symbols that were stripped. The name is "" if there is none, or if it is a
// path, which could lead anywhere.
func DebugLink(f *elf.File) (name string, crc uint32) {
	b := LinkSection(f, ".gnu_debuglink")
	end := bytes.IndexByte(b, 0)
	at := (end + 4) &^ 3 // the name is filled up to four bytes
	if end <= 0 || at+4 > len(b) {
		return "", 0
	}
	name = string(b[:end])
	if name != path.Base(name) || name == "." || name == ".." || name == "/" {
		return "", 0
	}
	return name, f.ByteOrder.Uint32(b[at:])
}

// LinkSection returns the content of a section with the name of another file,
// nil if there is none, or one that no linker writes.
func LinkSection(f *elf.File, section string) []byte {
	sec := f.Section(section)
	if sec == nil || sec.Type == elf.SHT_NOBITS || sec.Flags&elf.SHF_COMPRESSED != 0 || sec.Size > maxLink {
		return nil
	}
	b := make([]byte, sec.Size)
	if n, _ := sec.ReadAt(b, 0); n < len(b) {
		return nil
	}
	return b
}

// CompressionHeader reads the header that a section with SHF_COMPRESSED begins
// with, Elf32_Chdr or Elf64_Chdr. It returns how the rest is compressed, and
// the size that it claims to have without.
func CompressionHeader(class elf.Class, order binary.ByteOrder, b []byte) (typ elf.CompressionType, size uint64,
	rest []byte, err error) {
	n := 12
	if class == elf.ELFCLASS64 {
		n = 24
	}
	if len(b) < n {
		return 0, 0, nil, fmt.Errorf("compression header: %w", io.ErrUnexpectedEOF)
	}
	if size = uint64(order.Uint32(b[4:])); n == 24 {
		size = order.Uint64(b[8:])
	}
	return elf.CompressionType(order.Uint32(b)), size, b[n:], nil
}

// Uncompress returns what b holds. The claimed size is an upper bound, and the
// caller's to limit; content that ends before it is io.ErrUnexpectedEOF.
func Uncompress(typ elf.CompressionType, b []byte, size uint64) ([]byte, error) {
	var out []byte
	var err error
	switch typ {
	case elf.COMPRESS_ZLIB:
		out, err = uncompressZlib(b, size)
	case elf.COMPRESS_ZSTD:
		out, err = uncompressZstd(b, size)
	default:
		return nil, fmt.Errorf("uncompress: unknown compression %d", typ)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("uncompress: %w", err)
	}
	return out, nil
}

func uncompressZlib(b []byte, size uint64) ([]byte, error) {
	if size/maxZlibRatio > uint64(len(b)) {
		return nil, fmt.Errorf("%d bytes claim to be %d: %w", len(b), size, io.ErrUnexpectedEOF)
	}
	r, err := zlib.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	out := make([]byte, size)
	_, err = io.ReadFull(r, out)
	return out, err
}

func uncompressZstd(b []byte, size uint64) ([]byte, error) {
	r, err := zstd.NewReader(bytes.NewReader(b), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxZstdWindow), zstd.WithDecoderMaxMemory(maxZstdMemory))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var out bytes.Buffer // grows with what comes, if little claims to be much
	if size <= maxZstdRatio*uint64(len(b)) {
		out.Grow(int(size) + bytes.MinRead)
	}
	n, err := io.Copy(&out, io.LimitReader(r, int64(size)))
	if err == nil && uint64(n) < size {
		err = io.ErrUnexpectedEOF
	}
	return out.Bytes(), err
}
