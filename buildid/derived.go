// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

// unwindName is what was worked out of the call frame information of a file, to
// be read faster than that. It is made again where it is missing.
const unwindName = "unwind"

// AddUnwind keeps the unwind tables of the file with an id, in place of earlier
// ones. origin is where the file was, which decides nothing. The store does not
// know what is in them. A directory that has nothing of a store stays so, with
// an error that is fs.ErrNotExist: they are not worth to begin one.
func (s *Store) AddUnwind(r io.Reader, id ID, origin string) error {
	if id.Len() < minSize {
		return fmt.Errorf("add unwind tables to build-id store: %w", ErrNoID)
	}
	if _, err := s.root.Stat(linkDir); err != nil {
		return fmt.Errorf("add unwind tables to build-id store: %w", err)
	}
	temp, err := s.copyTemp(r, 0)
	if err != nil {
		return fmt.Errorf("add unwind tables to build-id store: %w", err)
	}
	defer temp.close(s)
	if err := s.place(temp.name, id, origin, unwindName); err != nil {
		return fmt.Errorf("add unwind tables of %s to build-id store: %w", id, err)
	}
	return nil
}

// LookupUnwind opens the unwind tables of the file with an id. The caller closes
// them, and checks what they are.
func (s *Store) LookupUnwind(id ID) (f *os.File, size int64, err error) {
	if id.Len() < minSize {
		err = fs.ErrNotExist
	} else {
		f, size, err = s.openFile(path.Join(linkOf(id), unwindName))
	}
	if err != nil {
		return nil, 0, fmt.Errorf("look up unwind tables of %s: %w", id, err)
	}
	return f, size, nil
}
