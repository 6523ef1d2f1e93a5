// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"sync"

	"github.com/gantry-tools/gantry/analysis/symbol/dwarfline"
	"github.com/gantry-tools/gantry/analysis/symbol/pclntab"
	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/elffile"
)

// Call is one of the calls that an address belongs to.
type Call struct {
	Name string // the function's, demangled; empty if it has none
	File string // path of the source, as the compiler knew it; empty if not known
	Line uint32 // 0 if not known
	// Source says where the call is known from: "dwarf" or "pclntab".
	Source string
}

// Lines knows source lines and inlined calls of one binary. Any number of
// goroutines may use it.
type Lines struct {
	mu          sync.Mutex
	err         error
	dwarf       *dwarfline.Data
	namesLeft   []dwarfline.Call
	goTable     *pclntab.Table
	goNamesLeft []pclntab.Call
	demangled   map[string]string
	names       demangling
}

// Lines returns the line information of the binary of a Ref. It is read now, but
// understood only as far as it is asked for; a binary that has none gives Lines
// that know nothing. The result is remembered.
func (r *Resolver) Lines(ref Ref) *Lines {
	key := ref.key()
	if !ref.BuildID.IsZero() {
		key = Ref{BuildID: ref.BuildID}
	}
	r.mu.Lock()
	l := r.lines[key]
	if l == nil {
		l = &Lines{demangled: make(map[string]string)}
		if r.lines == nil {
			r.lines = make(map[Ref]*Lines)
		}
		r.lines[key] = l
		if at, ok := r.foundAs(ref); ok {
			ref = at // what is beside the binary is there
		}
		l.mu.Lock()
		r.mu.Unlock()
		l.err = l.load(r, ref)
		l.mu.Unlock()
		return l
	}
	r.mu.Unlock()
	return l
}

// Err tells why line information is missing; nil if all was well, or there is
// none.
func (l *Lines) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && l.dwarf != nil {
		return l.dwarf.Err()
	}
	return l.err
}

// Calls appends the calls that addr, an address of the file's own address space,
// belongs to: leaf first, each but the last inlined into the next one. It
// appends nothing for an address that is not known.
func (l *Lines) Calls(dst []Call, addr uint64) []Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dwarf != nil {
		l.namesLeft = l.dwarf.Calls(l.namesLeft[:0], addr)
		for i := range l.namesLeft {
			c := &l.namesLeft[i]
			dst = append(dst, Call{Name: l.demangle(c.Name), File: c.File, Line: c.Line, Source: "dwarf"})
		}
		return dst
	}
	if l.goTable != nil {
		l.goNamesLeft = l.goTable.Calls(l.goNamesLeft[:0], addr)
		for i := range l.goNamesLeft {
			c := &l.goNamesLeft[i]
			dst = append(dst, Call{Name: c.Name, File: c.File, Line: c.Line, Source: "pclntab"})
		}
	}
	return dst
}

// SaveLines keeps in the cache what was read of DWARF. That it cannot be kept is
// no loss.
func (r *Resolver) SaveLines() {
	r.mu.Lock()
	list := slices.Collect(maps.Values(r.lines))
	r.mu.Unlock()
	for _, l := range list {
		l.mu.Lock()
		if l.dwarf != nil {
			_ = l.dwarf.Save()
		}
		l.mu.Unlock()
	}
}

func (l *Lines) demangle(name string) string {
	if !mangled(name) {
		return name
	}
	text, ok := l.demangled[name]
	if !ok {
		text = l.names.name(name)
		l.demangled[name] = text
	}
	return text
}

// load reads what the binary of ref, or its debug file, has.
func (l *Lines) load(r *Resolver, ref Ref) error {
	f, size, err := r.Open(ref)
	if err != nil {
		return err
	}
	defer f.Close()
	bin, err := openELF(f, size)
	if err != nil {
		return err
	}
	if bin.Type == elf.ET_REL {
		return nil // needs relocations, which nothing that is mapped has
	}
	id, err := buildid.FromFile(f, size)
	if err != nil && !errors.Is(err, buildid.ErrNoID) {
		return fmt.Errorf("read build-id: %w", err)
	}
	find := &lineFinder{r: r, ref: ref, id: id}
	if dwarfline.Has(bin) {
		l.dwarf, err = find.dwarf(bin, f, size)
		return err
	}
	err = r.debugOf(ref).find(id, readDebugLink(bin), func(d io.ReaderAt, size int64) error {
		debug, err := openDebugFile(bin, id, d, size)
		if err != nil {
			return err
		}
		if !dwarfline.Has(debug) {
			return fmt.Errorf("debug file without DWARF: %w", fs.ErrNotExist)
		}
		l.dwarf, err = find.dwarf(debug, d, size)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		if l.goTable, err = pclntab.Read(bin, f, uint64(size)); errors.Is(err, pclntab.ErrNone) {
			return nil
		}
	}
	return err
}

// lineFinder finds the parts of a binary's DWARF that are in other files.
type lineFinder struct {
	r   *Resolver
	ref Ref
	id  buildid.ID
}

func (x *lineFinder) dwarf(f *elf.File, r io.ReaderAt, size int64) (*dwarfline.Data, error) {
	if !x.r.mayLoad(0) {
		return nil, fmt.Errorf("line information: %w: that of other binaries has %d bytes", dwarfline.ErrTooMuch,
			int64(maxDWARF))
	}
	src, err := dwarfline.Load(f, r, uint64(size), false)
	if err != nil {
		return nil, fmt.Errorf("line information: %w", err)
	}
	x.r.mayLoad(src.Size())
	alt := readAltLink(f)
	return dwarfline.New(src, &dwarfline.Options{
		Alt:     func() *dwarfline.Source { return x.alt(alt) },
		Split:   func(dir, name string) *dwarfline.Source { return x.split(dir, name) },
		Package: func() *dwarfline.Source { return x.open(x.ref.Path+".dwp", true, buildid.ID{}) },
		Cache:   x.r.cache,
	}), nil
}

// maxDWARF bounds the DWARF that is held of all binaries: what is beyond has no
// lines. One file has at most dwarfline.MaxSize.
const maxDWARF = 1 << 31

// mayLoad counts n bytes of DWARF that were loaded, and reports whether more may
// be.
func (r *Resolver) mayLoad(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loaded += int64(n)
	return r.loaded < maxDWARF
}

// split opens the split DWARF of a unit. Which one it is, its content tells.
func (x *lineFinder) split(dir, name string) *dwarfline.Source {
	if !path.IsAbs(name) {
		name = path.Join(dir, name)
	}
	return x.open(name, true, buildid.ID{})
}

// open reads the DWARF of the file at a path, beside the binary; with an id,
// only if it is the file's.
func (x *lineFinder) open(name string, split bool, id buildid.ID) (src *dwarfline.Source) {
	if !path.IsAbs(name) {
		return nil
	}
	for _, o := range x.r.openers {
		o, ok := o.(LinkOpener)
		if !ok {
			continue
		}
		if useFile(x.reader(&src, split, id))(o.OpenLink(x.ref, name)) == nil {
			return src
		}
	}
	return nil
}

// reader gives a function that reads the DWARF of a file.
func (x *lineFinder) reader(src **dwarfline.Source, split bool, id buildid.ID) func(io.ReaderAt, int64) error {
	return func(r io.ReaderAt, size int64) error {
		f, err := openELF(r, size)
		if err != nil {
			return err
		}
		if !id.IsZero() {
			got, err := buildid.FromFile(r, size)
			if err != nil {
				return err
			}
			if !id.Matches(got) {
				return fmt.Errorf("%w: its build-id is %q", ErrMismatch, got)
			}
		}
		if !x.r.mayLoad(0) {
			return dwarfline.ErrTooMuch
		}
		if *src, err = dwarfline.Load(f, r, uint64(size), split); err == nil {
			x.r.mayLoad((*src).Size())
		}
		return err
	}
}

// altLink is the .gnu_debugaltlink of a file: what dwz moved into a file that
// several share.
type altLink struct {
	path string
	id   buildid.ID
}

func readAltLink(f *elf.File) (a altLink) {
	name, id, ok := bytes.Cut(elffile.LinkSection(f, ".gnu_debugaltlink"), []byte{0})
	if !ok {
		return a
	}
	a.path = string(name)
	a.id, _ = buildid.New(id)
	return a
}

// alt opens the file of an altLink: by its build-id or, with that id, at its
// path. A path that is not absolute begins at the debug file, which is below
// the directory of them all.
func (x *lineFinder) alt(a altLink) (src *dwarfline.Source) {
	if a.id.IsZero() {
		return nil
	}
	ref := x.ref
	ref.BuildID = a.id
	for _, o := range x.r.openers {
		if o, ok := o.(DebugOpener); ok && useFile(x.reader(&src, false, a.id))(o.OpenDebug(ref)) == nil {
			return src
		}
	}
	places := []string{a.path}
	if !path.IsAbs(a.path) {
		dir := path.Dir(path.Clean(x.ref.Path))
		places = []string{
			path.Join(dir, a.path), path.Join(debugRoot, dir, a.path),
			path.Join(debugRoot, ".build-id/00", a.path), path.Join(debugRoot, ".dwz", path.Base(a.path)),
		}
	}
	for _, place := range places {
		if src := x.open(place, false, a.id); src != nil {
			return src
		}
	}
	return nil
}
