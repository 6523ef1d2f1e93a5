// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

// sourceDir is where an entry keeps source files, each called by the hash of
// its path: a path in debug information leads nowhere.
const sourceDir = "source"

// AddSource copies a source file of at most limit bytes (0: any) into the store,
// for the binary with an id, which must be there. name is the path that the
// binary's debug information has for it.
func (s *Store) AddSource(id ID, name string, r io.Reader, limit int64) error {
	temp, err := s.copyTemp(r, limit)
	if err == nil {
		defer temp.close(s)
		err = s.placeSource(temp.name, id, name)
	}
	if err != nil {
		return fmt.Errorf("add source %s to build-id store: %w", name, err)
	}
	return nil
}

func (s *Store) placeSource(temp string, id ID, name string) error {
	defer s.lock(shared)()
	if id.Len() < minSize {
		return fs.ErrNotExist
	}
	if _, err := s.root.Stat(linkOf(id)); err != nil {
		return err
	}
	at := sourceOf(id, name)
	if err := s.root.MkdirAll(path.Dir(at), 0o755); err != nil {
		return err
	}
	if err := s.root.Chmod(temp, 0o644); err != nil {
		return err
	}
	return s.root.Rename(temp, at)
}

// LookupSource opens a source file of the binary with an id. The caller closes
// it. Nothing in a source file tells that it is the right one.
func (s *Store) LookupSource(id ID, name string) (f *os.File, size int64, err error) {
	if id.Len() < minSize {
		err = fs.ErrNotExist
	} else {
		f, size, err = s.openFile(sourceOf(id, name))
	}
	if err != nil {
		return nil, 0, fmt.Errorf("look up source %s: %w", name, err)
	}
	s.touch(id)
	return f, size, nil
}

func sourceOf(id ID, name string) string {
	sum := sha256.Sum256([]byte(path.Clean(name)))
	return path.Join(linkOf(id), sourceDir, hex.EncodeToString(sum[:]))
}
