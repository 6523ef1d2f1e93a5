// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gantry-tools/gantry/internal/elffile"
)

// ErrMismatch is returned for a file whose build-id is not the wanted one.
var ErrMismatch = errors.New("file has another build-id")

// Names of files and directories in the store, as perf has them.
const (
	linkDir      = ".build-id"
	elfFileName  = "elf"
	vdsoFileName = "vdso"
	debugName    = "debug"
	kallsymsName = "kallsyms"

	vdsoPath     = "[vdso]"
	kallsymsPath = "[kernel.kallsyms]"

	unnamedPath = "[unnamed]" // for files whose own name cannot be a directory
	tempPrefix  = ".gantry-"
	lockName    = ".gantry.lock"
	maxNameSize = 2 << 10

	// touchAfter is how exactly the store remembers when a file was used.
	touchAfter = 10 * time.Minute
)

// Store is a directory of files addressed by build-id. Any number of processes
// may add to it at once, perf among them: a file appears in it whole or not at
// all. The layout is
//
//	PATH/ID/elf             the file, under the path it had ("vdso", "kallsyms"
//	                        for those two)
//	PATH/ID/debug           the symbols stripped from it
//	.build-id/ID[:2]/ID[2:] a symbolic link to its directory PATH/ID
//
// The time of PATH/ID says when the file was last used.
//
// Nothing outside of the directory is ever read or written, whatever the links
// in it say. What is written appears by a rename; what removes something holds
// a lock that those who put something in its place share. Several goroutines
// may use a Store.
type Store struct {
	root    *os.Root
	dropped atomic.Uint64
}

// OpenStore opens the store in an existing directory. The caller closes it.
func OpenStore(dir string) (*Store, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open build-id store: %w", err)
	}
	return &Store{root: root}, nil
}

// CreateStore opens the store in a directory, which it makes if need be, for a
// writer: it removes what writers that were killed left half written.
func CreateStore(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create build-id store: %w", err)
	}
	s, err := OpenStore(dir)
	if err != nil {
		return nil, err
	}
	s.removeTemps(time.Now()) // what cannot be removed is tried again by the next
	return s, nil
}

// Close releases the directory. Files that Lookup returned stay open.
func (s *Store) Close() error { return s.root.Close() }

// Source says what is added to a store.
type Source struct {
	// Path is what the file is called: the path where a process mapped it, or
	// "[vdso]". perf buildid-cache --list shows it; it decides nothing.
	Path string

	// Want is the build-id that the file must have. If it is zero, any will do.
	Want ID

	// Content: the file is kept by the hash of its content, although it may
	// have a build-id. It is for one that has the build-id of another file.
	Content bool

	// Limit is the largest size in bytes; 0 is none.
	Limit int64
}

// Add copies an ELF file into the store and returns its id, that of Identify.
// The copy is what is checked, so the file may change meanwhile: ErrMismatch is
// returned if the copy does not have the wanted id, ErrNotELF if it is none,
// ErrTooLarge if it exceeds the limit. A file that is in the store already is
// not written again. Of an *os.File or an io.LimitedReader of one the kernel
// shares the blocks with the copy, where the file system can.
func (s *Store) Add(r io.Reader, src Source) (ID, error) {
	name := elfFileName
	if src.Path == vdsoPath {
		name = vdsoFileName
	}
	id, err := s.add(r, src, name, s.Has)
	if err != nil {
		return ID{}, fmt.Errorf("add %s to build-id store: %w", src.Path, err)
	}
	return id, nil
}

// AddDebug copies the file with the symbols that were stripped from the ELF file
// with the wanted id, as Add does the file itself. A file that is known by the
// hash of its content has none.
func (s *Store) AddDebug(r io.Reader, src Source) (ID, error) {
	id, err := s.add(r, src, debugName, s.hasDebug)
	if err != nil {
		return ID{}, fmt.Errorf("add symbols %s to build-id store: %w", src.Path, err)
	}
	return id, nil
}

func (s *Store) add(r io.Reader, src Source, name string, has func(ID) bool) (ID, error) {
	if !src.Content && !src.Want.IsZero() && has(src.Want) {
		return src.Want, nil
	}
	temp, err := s.copyTemp(r, src.Limit)
	if err != nil {
		return ID{}, err
	}
	defer temp.close(s) // removes what was not put in place
	id, err := s.checkFile(temp.name, src)
	if err == nil && name == debugName && id.Kind() == KindContent {
		err = fmt.Errorf("which binary they are of is not known: %w", ErrNoID)
	}
	if err != nil {
		return ID{}, err
	}
	if has(id) {
		return id, nil
	}
	return id, s.place(temp.name, id, src.Path, name)
}

// AddKallsyms copies /proc/kallsyms into the store, for the kernel with this
// build-id. Nothing in the text tells whether it belongs to that kernel: the
// caller has to know. It replaces an earlier copy, made before other modules
// were loaded. Only its owner may read it, as it tells where the kernel is.
func (s *Store) AddKallsyms(r io.Reader, kernel ID) error {
	if kernel.IsZero() {
		return fmt.Errorf("add kernel symbols to build-id store: %w", ErrNoID)
	}
	temp, err := s.copyTemp(r, 0)
	if err != nil {
		return fmt.Errorf("add kernel symbols to build-id store: %w", err)
	}
	defer temp.close(s)
	if err := s.place(temp.name, kernel, kallsymsPath, kallsymsName); err != nil {
		return fmt.Errorf("add kernel symbols to build-id store: %w", err)
	}
	return nil
}

// Has reports whether the store has a file with this build-id, and can prove it.
func (s *Store) Has(id ID) bool {
	f, _, err := s.Lookup(id)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

func (s *Store) hasDebug(id ID) bool {
	f, _, err := s.LookupDebug(id)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// Same reports whether the file in r is, byte for byte, what the store has for
// an id. It reads both. The error is that of Lookup or of reading.
func (s *Store) Same(id ID, r io.ReaderAt, size int64) (bool, error) {
	f, have, err := s.Lookup(id)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if have != size {
		return false, nil
	}
	const chunk = 128 << 10
	a, b := make([]byte, chunk), make([]byte, chunk)
	for off := int64(0); off < size; off += chunk {
		n := min(chunk, size-off)
		if _, err := f.ReadAt(a[:n], off); err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		if m, err := r.ReadAt(b[:n], off); int64(m) < n {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return false, err
		}
		if !bytes.Equal(a[:n], b[:n]) {
			return false, nil
		}
	}
	return true, nil
}

// Lookup opens the ELF file with a build-id, which it reads again to be sure.
// The caller closes the file. The error is fs.ErrNotExist if there is none, and
// ErrMismatch if there is another in its place, which is dropped.
func (s *Store) Lookup(id ID) (f *os.File, size int64, err error) {
	return s.lookup(id, elfFileName, vdsoFileName)
}

// LookupDebug opens the file with the symbols that were stripped from the ELF
// file with a build-id, as Lookup does the file itself. Stripping keeps the id.
func (s *Store) LookupDebug(id ID) (f *os.File, size int64, err error) {
	return s.lookup(id, debugName)
}

// lookup opens the first file there is of the names, and checks its build-id.
func (s *Store) lookup(id ID, names ...string) (f *os.File, size int64, err error) {
	if id.Len() < minSize {
		return nil, 0, fmt.Errorf("look up build-id %q: %w", id, fs.ErrNotExist)
	}
	name := ""
	for _, n := range names {
		name = path.Join(linkOf(id), n)
		f, size, err = s.openFile(name)
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("look up build-id %s: %w", id, err)
	}
	check := func(f *os.File, size int64, id ID) error { return Check(f, size, id) }
	if names[0] == debugName {
		check = s.checkDebug
	}
	if err := check(f, size, id); err != nil {
		f.Close()
		s.drop(id, name, err)
		return nil, 0, fmt.Errorf("look up build-id %s: %w", id, err)
	}
	s.touch(id)
	return f, size, nil
}

// touch notes that the file of an id is used. A store that may only be read
// does not learn of it.
func (s *Store) touch(id ID) {
	link, now := linkOf(id), time.Now()
	if info, err := s.root.Stat(link); err == nil && now.Sub(info.ModTime()).Abs() > touchAfter {
		s.root.Chtimes(link, now, now)
	}
}

// Kallsyms opens the copy of /proc/kallsyms made for the kernel with this
// build-id. The caller closes it.
func (s *Store) Kallsyms(kernel ID) (*os.File, error) {
	if kernel.Len() < minSize {
		return nil, fmt.Errorf("look up kernel symbols: %w", fs.ErrNotExist)
	}
	f, _, err := s.openFile(path.Join(linkOf(kernel), kallsymsName))
	if err != nil {
		return nil, fmt.Errorf("look up kernel symbols of %s: %w", kernel, err)
	}
	return f, nil
}

// openFile opens a regular file. It does not wait for the writer of a FIFO.
func (s *Store) openFile(name string) (*os.File, int64, error) {
	f, err := s.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w", name, errNotRegular)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// checkFile returns the id of a file, if it is the wanted one.
func (s *Store) checkFile(name string, src Source) (ID, error) {
	f, size, err := s.openFile(name)
	if err != nil {
		return ID{}, err
	}
	defer f.Close()
	id := src.Want
	if !id.IsZero() {
		err = Check(f, size, id)
	} else if _, err = elffile.ReadHeaders(f, size); err == nil && !src.Content {
		id, err = Identify(f, size)
	}
	if err == nil && src.Content {
		id, err = hashContent(f, size)
	}
	if err != nil {
		return ID{}, err
	}
	if id.Len() < minSize {
		return ID{}, fmt.Errorf("build-id %s is too short for the store", id)
	}
	return id, s.root.Chmod(name, 0o644)
}

// place moves a finished file to where its id leads.
func (s *Store) place(temp string, id ID, origin, name string) error {
	defer s.lock(shared)()
	link := linkOf(id)
	if err := s.root.MkdirAll(path.Dir(link), 0o755); err != nil {
		return err
	}
	var err error
	for range 2 { // a second time if the link leads nowhere
		if err = s.makeLink(link, id, origin); err != nil {
			return err
		}
		if err = s.root.Rename(temp, path.Join(link, name)); err == nil {
			return nil
		}
		if info, e := s.root.Stat(link); e == nil && info.IsDir() {
			break // it is not the link's fault
		}
		if e := s.root.Remove(link); e != nil && !errors.Is(e, fs.ErrNotExist) {
			return e
		}
	}
	return err
}

// makeLink makes the directory of a file and the link to it, if there is no
// link yet.
func (s *Store) makeLink(link string, id ID, origin string) error {
	if _, err := s.root.Lstat(link); err == nil {
		return nil
	}
	dir := path.Join(directoryName(origin), id.String())
	if err := s.root.MkdirAll(dir, 0o755); err != nil {
		dir = path.Join(unnamedPath, id.String())
		if err := s.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	err := s.root.Symlink(path.Join("../..", dir), link)
	if errors.Is(err, fs.ErrExist) {
		return nil // another writer was faster
	}
	return err
}

// linkOf is where the store has the link for an id of two bytes or more.
func linkOf(id ID) string {
	text := id.String()
	return path.Join(linkDir, text[:2], text[2:])
}

// directoryName turns the path of a file, which a container may have chosen,
// into that of a directory below the store. A path through what could be the
// directory of an entry would put one entry into another.
func directoryName(origin string) string {
	name := strings.TrimPrefix(path.Clean("/"+origin), "/")
	if name == "" || len(name) > maxNameSize || strings.HasPrefix(name, ".") || strings.Contains(name, "\x00") {
		return unnamedPath
	}
	for part := range strings.SplitSeq(name, "/") {
		if id, err := Parse(part); err == nil && id.Len() >= usualSize {
			return unnamedPath
		}
	}
	return name
}
