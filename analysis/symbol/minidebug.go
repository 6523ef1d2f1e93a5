// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/ulikunitz/xz/lzma"
)

// Limits of a .gnu_debugdata section. Distributions put one to two hundred
// kilobytes there, at most a few megabytes.
const (
	maxMiniPacked = 1 << 25
	maxMini       = 1 << 26 // unpacked
	maxMiniDict   = 1 << 26 // what xz -9 takes
	maxMiniBlocks = 16
)

// addMini adds the symbols of .gnu_debugdata, the mini debug info of stripped
// binaries: an ELF file, packed by xz, with the .symtab of the functions that
// .dynsym does not name. On error nothing is added.
func (s *symbolReader) addMini() error {
	sec := s.file.Section(".gnu_debugdata")
	if sec == nil {
		return fmt.Errorf("mini debug info: %w", fs.ErrNotExist)
	}
	if err := s.checkRange(sec); err != nil {
		return fmt.Errorf("section %s: %w", sec.Name, err)
	}
	if sec.Size > maxMiniPacked {
		return fmt.Errorf("section %s: %d bytes, at most %d are read", sec.Name, sec.Size, maxMiniPacked)
	}
	packed := make([]byte, sec.Size)
	if err := readFull(sec, packed, 0); err != nil {
		return fmt.Errorf("section %s: %w", sec.Name, err)
	}
	content, err := unpackXZ(packed, maxMini)
	if err != nil {
		return fmt.Errorf("section %s: %w", sec.Name, err)
	}
	f, err := openELF(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return fmt.Errorf("section %s: %w", sec.Name, err)
	}
	if f.Class != s.file.Class || f.Machine != s.file.Machine {
		return fmt.Errorf("section %s: %w: it is for another machine", sec.Name, ErrMismatch)
	}
	return s.addSymtab(f, uint64(len(content)), fromMini)
}

// addSymtab adds the .symtab of another file, whose sections are those of this
// one, at the same addresses.
func (s *symbolReader) addSymtab(f *elf.File, size uint64, from uint16) error {
	d := &symbolReader{file: f, size: size, names: s.names, entries: s.entries, subset: s.subset, scratch: s.scratch,
		from: from}
	d.readText()
	if err := d.table(elf.SHT_SYMTAB); err != nil {
		if s.subset != nil {
			s.subset.failed = true // nothing can be taken back from it
		}
		return err
	}
	s.names, s.entries, s.endless = d.names, d.entries, s.endless || d.endless
	s.kept += d.kept
	return nil
}

var errXZ = errors.New("malformed xz stream")

const (
	xzMagic      = "\xfd7zXZ\x00"
	xzHeaderSize = 12
	xzLZMA2      = 0x21
)

// unpackXZ unpacks a stream of xz into at most limit bytes. The container is
// read here, as xz's own reader takes whatever memory a file asks for, up to
// 4 GiB. Checksums are left out: what is unpacked is checked by who reads it.
func unpackXZ(b []byte, limit int) ([]byte, error) {
	if len(b) < xzHeaderSize || string(b[:len(xzMagic)]) != xzMagic || b[6] != 0 || b[7] > 15 {
		return nil, errXZ
	}
	check := []int{0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64}[b[7]]
	in := bytes.NewReader(b[xzHeaderSize:])
	var out bytes.Buffer
	for range maxMiniBlocks {
		dict, err := xzBlock(in)
		if err != nil {
			return nil, err
		}
		if dict == 0 { // the index: no more blocks
			return out.Bytes(), nil
		}
		begin := in.Len()
		r, err := lzma.Reader2Config{DictCap: dict}.NewReader2(in)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errXZ, err)
		}
		if _, err := io.Copy(&out, io.LimitReader(r, int64(limit+1-out.Len()))); err != nil {
			return nil, fmt.Errorf("%w: %w", errXZ, err)
		}
		if out.Len() > limit {
			return nil, fmt.Errorf("more than %d bytes when unpacked", limit)
		}
		padding := -(begin - in.Len()) & 3
		if _, err := in.Seek(int64(padding+check), io.SeekCurrent); err != nil {
			return nil, errXZ
		}
	}
	return nil, fmt.Errorf("%w: more than %d blocks", errXZ, maxMiniBlocks)
}

// xzBlock reads the header of a block and returns the size of its dictionary,
// 0 if there is no block but the index.
func xzBlock(in *bytes.Reader) (dict int, err error) {
	first, err := in.ReadByte()
	if err != nil {
		return 0, errXZ
	}
	if first == 0 {
		return 0, nil
	}
	head := make([]byte, int(first)*4+3)
	if _, err := io.ReadFull(in, head); err != nil {
		return 0, errXZ
	}
	flags, rest := head[0], head[1:]
	if flags&^0xc0 != 0 { // more filters than one
		return 0, fmt.Errorf("%w: filters other than LZMA2", errXZ)
	}
	for _, size := range []byte{0x40, 0x80} { // packed and unpacked, if told
		if flags&size != 0 {
			_, n := binary.Uvarint(rest)
			if n <= 0 {
				return 0, errXZ
			}
			rest = rest[n:]
		}
	}
	if len(rest) < 3 || rest[0] != xzLZMA2 || rest[1] != 1 {
		return 0, fmt.Errorf("%w: filters other than LZMA2", errXZ)
	}
	size, err := lzma.DecodeDictCap(rest[2])
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errXZ, err)
	}
	return int(max(min(size, maxMiniDict), lzma.MinDictCap)), nil
}
