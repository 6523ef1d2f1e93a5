// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path"
)

// Names of derived content in the store.
const (
	derivedName = "derived"
	derivedPath = "[derived]"
)

// Derived content begins with a mark, which names the version, and a CRC-32C.
const (
	derivedMark = "gntdrv01"
	derivedHead = len(derivedMark) + crc32.Size
	maxDerived  = 1 << 30
)

// AddDerived keeps what was made of a file with some effort, under a key that a
// hash of all it was made of gives. It is there to be used again, and pruned like
// everything in the store. A directory that has nothing of a store stays so, with
// an error that is fs.ErrNotExist: this is not worth to begin one.
func (s *Store) AddDerived(key [32]byte, content []byte) error {
	head := binary.LittleEndian.AppendUint32([]byte(derivedMark),
		crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli)))
	if _, err := s.root.Stat(linkDir); err != nil {
		return fmt.Errorf("keep derived content in build-id store: %w", err)
	}
	temp, err := s.copyTemp(io.MultiReader(bytes.NewReader(head), bytes.NewReader(content)), maxDerived)
	if err != nil {
		return fmt.Errorf("keep derived content in build-id store: %w", err)
	}
	defer temp.close(s)
	if err := s.place(temp.name, hashedID(contentMark, key), derivedPath, derivedName); err != nil {
		return fmt.Errorf("keep derived content in build-id store: %w", err)
	}
	return nil
}

// Derived is what KeepDerived has kept under a key. What is not whole, or of
// another version, is dropped. The error is fs.ErrNotExist if there is nothing.
func (s *Store) Derived(key [32]byte) ([]byte, error) {
	id := hashedID(contentMark, key)
	name := path.Join(linkOf(id), derivedName)
	b, err := s.readDerived(name)
	if err != nil {
		return nil, fmt.Errorf("derived content: %w", err)
	}
	if !wholeDerived(b) {
		s.dropIf(id, name, func() bool {
			b, err := s.readDerived(name) // another writer may have put a good one there meanwhile
			return err == nil && !wholeDerived(b)
		})
		return nil, fmt.Errorf("derived content of %s was damaged: %w", id, fs.ErrNotExist)
	}
	s.touch(id)
	return b[derivedHead:], nil
}

// readDerived reads a file of derived content. What is too large is empty.
func (s *Store) readDerived(name string) ([]byte, error) {
	f, size, err := s.openFile(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > maxDerived {
		return nil, nil
	}
	b := make([]byte, size)
	_, err = io.ReadFull(f, b)
	return b, err
}

func wholeDerived(b []byte) bool {
	return len(b) >= derivedHead && string(b[:len(derivedMark)]) == derivedMark &&
		binary.LittleEndian.Uint32(b[len(derivedMark):]) == crc32.Checksum(b[derivedHead:],
			crc32.MakeTable(crc32.Castagnoli))
}
