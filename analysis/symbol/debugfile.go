// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"debug/elf"
	"fmt"
	"io"
	"io/fs"

	"github.com/gantry-tools/gantry/buildid"
)

// DebugOpener is an Opener that may have the symbols of a stripped binary in a
// file of their own, as distributions ship them.
type DebugOpener interface {
	Opener
	// OpenDebug opens the file with the symbols of the binary that has the
	// build-id of ref. Its errors are those of Open.
	OpenDebug(ref Ref) (f File, size int64, err error)
}

// debugSource opens the separate symbols of the binary with a build-id.
type debugSource func(id buildid.ID, use func(r io.ReaderAt, size int64) error)

// debugOf asks the openers for the separate symbols of ref, one after the other
// until use takes what one has. That none has them is the rule, and a file that
// cannot be used is not missed either: the binary has its dynamic symbols.
func (r *Resolver) debugOf(ref Ref) debugSource {
	return func(id buildid.ID, use func(io.ReaderAt, int64) error) {
		ref.BuildID = id
		for _, o := range r.openers {
			d, ok := o.(DebugOpener)
			if ok && useDebug(d, ref, use) == nil {
				return
			}
		}
	}
}

func useDebug(o DebugOpener, ref Ref, use func(io.ReaderAt, int64) error) error {
	f, size, err := o.OpenDebug(ref)
	if err != nil {
		return err
	}
	defer f.Close()
	return use(f, size)
}

// stripped reports whether the file has no symbols but those for its linking.
func (s *symbolReader) stripped() bool {
	sec := s.file.SectionByType(elf.SHT_SYMTAB)
	return sec == nil || sec.Size == 0
}

// addDebug adds the .symtab of the separate symbols in r, if they belong to the
// file with this build-id. Their addresses are those of the file; their sections
// have flags and addresses, but no content. On error nothing is added.
func (s *symbolReader) addDebug(id buildid.ID, r io.ReaderAt, size int64) error {
	got, err := buildid.FromFile(r, size)
	if err != nil {
		return fmt.Errorf("read build-id of debug file: %w", err)
	}
	if !id.Matches(got) {
		return fmt.Errorf("debug file: %w: its build-id is %q", ErrMismatch, got)
	}
	f, err := openELF(r, size)
	if err != nil {
		return fmt.Errorf("debug file: %w", err)
	}
	if f.Class != s.file.Class || f.Machine != s.file.Machine {
		return fmt.Errorf("debug file: %w: it is for another machine", ErrMismatch)
	}
	d := &symbolReader{file: f, size: uint64(size), names: s.names, entries: s.entries}
	d.readText()
	if d.stripped() {
		return fmt.Errorf("debug file without symbols: %w", fs.ErrNotExist)
	}
	if err := d.table(elf.SHT_SYMTAB); err != nil {
		return fmt.Errorf("debug file: %w", err)
	}
	s.names, s.entries = d.names, d.entries
	return nil
}
