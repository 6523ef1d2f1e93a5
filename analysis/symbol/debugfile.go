// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"debug/elf"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path"

	"github.com/gantry-tools/gantry/analysis/symbol/dwarfline"
	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/elffile"
)

// DebugOpener is an Opener that may have the symbols of a stripped binary in a
// file of their own, as distributions ship them.
type DebugOpener interface {
	Opener
	// OpenDebug opens the file with the symbols of the binary that has the
	// build-id of ref. Its errors are those of Open.
	OpenDebug(ref Ref) (f File, size int64, err error)
}

// LinkOpener is an Opener that can open other files beside a binary.
type LinkOpener interface {
	Opener
	// OpenLink opens the file at a path of the mount namespace and root that
	// ref is of. Whether it is the right one is for the caller to find out, by
	// its content. Its errors are those of Open.
	OpenLink(ref Ref, path string) (f File, size int64, err error)
}

// debugSource finds the separate debug file of the binary that ref means.
type debugSource struct {
	openers []Opener
	ref     Ref
}

func (r *Resolver) debugOf(ref Ref) *debugSource { return &debugSource{r.openers, ref} }

// debugRoot is where packages install debug files by the path of the binary.
const debugRoot = "/usr/lib/debug"

// find asks the openers for the debug file, one after the other until use takes
// what one has: by build-id, then by the .gnu_debuglink of the binary. That none
// has it is the rule, and a file that cannot be used is not missed either.
func (d *debugSource) find(id buildid.ID, link debugLink, use func(io.ReaderAt, int64) error) error {
	ref := d.ref
	if ref.BuildID.Kind() == buildid.KindContent { // what was found beside this very file
		for _, o := range d.openers {
			if o, ok := o.(DebugOpener); ok && useFile(use)(o.OpenDebug(ref)) == nil {
				return nil
			}
		}
	}
	ref.BuildID = id
	for _, o := range d.openers {
		if o, ok := o.(DebugOpener); ok && !id.IsZero() && useFile(use)(o.OpenDebug(ref)) == nil {
			return nil
		}
	}
	if link.name != "" && path.IsAbs(ref.Path) {
		dir := path.Dir(path.Clean(ref.Path))
		for _, o := range d.openers {
			o, ok := o.(LinkOpener)
			if !ok {
				continue
			}
			for _, in := range []string{dir, path.Join(dir, ".debug"), path.Join(debugRoot, dir)} {
				if useFile(link.checked(use))(o.OpenLink(ref, path.Join(in, link.name))) == nil {
					return nil
				}
			}
		}
	}
	return fmt.Errorf("debug file: %w", fs.ErrNotExist)
}

// SeparateDebug gives use the debug file of the binary of a Ref that has no
// symbols or no lines of its own, and the name that the binary has for it, ""
// if none. The error is fs.ErrNotExist if there is no such file.
func (r *Resolver) SeparateDebug(ref Ref, use func(f io.ReaderAt, size int64, link string) error) error {
	f, size, err := r.Open(ref)
	if err != nil {
		return err
	}
	defer f.Close()
	bin, err := openELF(f, size)
	if err != nil {
		return err
	}
	if !(&symbolReader{file: bin}).stripped() && dwarfline.Has(bin) {
		return fmt.Errorf("debug file: not needed: %w", fs.ErrNotExist)
	}
	id, err := buildid.FromFile(f, size)
	if err != nil && !errors.Is(err, buildid.ErrNoID) {
		return fmt.Errorf("read build-id: %w", err)
	}
	link := readDebugLink(bin)
	return r.debugOf(ref).find(id, link, func(d io.ReaderAt, size int64) error {
		if _, err := openDebugFile(bin, id, d, size); err != nil {
			return err
		}
		return use(d, size, link.name)
	})
}

// useFile gives a file that was opened to use, and closes it.
func useFile(use func(io.ReaderAt, int64) error) func(File, int64, error) error {
	return func(f File, size int64, err error) error {
		if err != nil {
			return err
		}
		defer f.Close()
		return use(f, size)
	}
}

// debugLink is the .gnu_debuglink of a binary: the name of its debug file, and
// the CRC-32 of that file's bytes. The zero value is no link.
type debugLink struct {
	name string
	crc  uint32
}

// readDebugLink reads the section of f.
func readDebugLink(f *elf.File) debugLink {
	name, crc := elffile.DebugLink(f)
	return debugLink{name, crc}
}

// maxChecked bounds the files whose checksum is computed.
const maxChecked = 1 << 31

// checked is use for files with the right checksum.
func (l debugLink) checked(use func(io.ReaderAt, int64) error) func(io.ReaderAt, int64) error {
	return func(r io.ReaderAt, size int64) error {
		if size > maxChecked {
			return fmt.Errorf("debug file has %d bytes, at most %d are read", size, int64(maxChecked))
		}
		sum := crc32.NewIEEE()
		if _, err := io.Copy(sum, io.NewSectionReader(r, 0, size)); err != nil {
			return fmt.Errorf("read debug file: %w", err)
		}
		if sum.Sum32() != l.crc {
			return fmt.Errorf("debug file %s: %w: its checksum is %#x", l.name, ErrMismatch, sum.Sum32())
		}
		return use(r, size)
	}
}

// stripped reports whether the file has no symbols but those for its linking.
func (s *symbolReader) stripped() bool {
	sec := s.file.SectionByType(elf.SHT_SYMTAB)
	return sec == nil || sec.Size == 0
}

// addSeparate adds the symbols of a stripped file, which r has: those of its
// debug file, else of its mini debug info and of the Go runtime's table. Without
// any it has its dynamic symbols.
func (s *symbolReader) addSeparate(id buildid.ID, debug *debugSource, r io.ReaderAt) {
	if debug != nil {
		add := func(r io.ReaderAt, size int64) error { return s.addDebug(id, r, size) }
		if debug.find(id, readDebugLink(s.file), add) == nil {
			return
		}
	}
	// What is broken is as good as missing.
	_ = s.addMini()
	_ = s.addGo(r)
}

// addDebug adds the .symtab of the debug file in r, if it belongs to the file
// with this build-id. On error nothing is added.
func (s *symbolReader) addDebug(id buildid.ID, r io.ReaderAt, size int64) error {
	f, err := openDebugFile(s.file, id, r, size)
	if err != nil {
		return err
	}
	d := &symbolReader{file: f}
	if d.stripped() {
		return fmt.Errorf("debug file without symbols: %w", fs.ErrNotExist)
	}
	if err := s.addSymtab(f, uint64(size), fromDebugFile); err != nil {
		return fmt.Errorf("debug file: %w", err)
	}
	return nil
}

// openDebugFile reads the headers of the debug file in r of the binary, which
// has this build-id. Its addresses are those of the binary; its sections have
// flags and addresses, but those that are loaded have no content. A file found
// by its checksum may have no build-id.
func openDebugFile(binary *elf.File, id buildid.ID, r io.ReaderAt, size int64) (*elf.File, error) {
	got, err := buildid.FromFile(r, size)
	if err != nil && !(id.IsZero() && errors.Is(err, buildid.ErrNoID)) {
		return nil, fmt.Errorf("read build-id of debug file: %w", err)
	}
	if !id.IsZero() && !id.Matches(got) {
		return nil, fmt.Errorf("debug file: %w: its build-id is %q", ErrMismatch, got)
	}
	f, err := openELF(r, size)
	if err != nil {
		return nil, fmt.Errorf("debug file: %w", err)
	}
	if f.Class != binary.Class || f.Machine != binary.Machine {
		return nil, fmt.Errorf("debug file: %w: it is for another machine", ErrMismatch)
	}
	return f, nil
}
