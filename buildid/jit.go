// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

// Names of generated code in the store.
const (
	jitName = "code"
	jitPath = "[jit]"
)

// AddJIT copies what a compiler that runs with a program wrote about the
// functions it generated, a perf map or a jitdump of at most limit bytes, into
// the store. It returns the id to look it up by, a hash of the content. The file
// may grow meanwhile: what was copied counts.
func (s *Store) AddJIT(r io.Reader, limit int64) (ID, error) {
	temp, err := s.copyTemp(r, limit)
	if err != nil {
		return ID{}, fmt.Errorf("add generated code to build-id store: %w", err)
	}
	defer temp.close(s)
	id, err := s.hashFile(temp.name)
	if err == nil {
		err = s.place(temp.name, id, jitPath, jitName)
	}
	if err != nil {
		return ID{}, fmt.Errorf("add generated code to build-id store: %w", err)
	}
	return id, nil
}

// LookupJIT opens what AddCode has kept, and checks that it is that. The caller
// closes it. The error is fs.ErrNotExist if there is none, and ErrMismatch if
// there is another in its place, which is dropped.
func (s *Store) LookupJIT(id ID) (f *os.File, size int64, err error) {
	if id.Kind() != KindContent {
		return nil, 0, fmt.Errorf("look up generated code %q: %w", id, fs.ErrNotExist)
	}
	name := path.Join(linkOf(id), jitName)
	f, size, err = s.openFile(name)
	if err != nil {
		return nil, 0, fmt.Errorf("look up generated code %s: %w", id, err)
	}
	got, err := hashContent(f, size)
	if err == nil && got != id {
		err = fmt.Errorf("%w: %s", ErrMismatch, got)
	}
	if err != nil {
		f.Close()
		s.drop(id, name, err)
		return nil, 0, fmt.Errorf("look up generated code %s: %w", id, err)
	}
	s.touch(id)
	return f, size, nil
}

func (s *Store) hashFile(name string) (ID, error) {
	f, size, err := s.openFile(name)
	if err != nil {
		return ID{}, err
	}
	defer f.Close()
	return hashContent(f, size)
}
