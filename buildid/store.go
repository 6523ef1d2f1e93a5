// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
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
	maxNameSize = 2 << 10
)

// Store is a directory of files addressed by build-id. Any number of processes
// may add to it at once, perf among them: a file appears in it whole or not at
// all. The layout is
//
//	PATH/ID/elf             the file, under the path it had ("vdso", "kallsyms"
//	                        for those two)
//	PATH/ID/debug           the symbols stripped from it, if another tool put
//	                        them there
//	.build-id/ID[:2]/ID[2:] a symbolic link to its directory PATH/ID
//
// Nothing outside of the directory is ever read or written, whatever the links
// in it say. Several goroutines may use a Store.
type Store struct {
	root *os.Root
}

// OpenStore opens the store in an existing directory. The caller closes it.
func OpenStore(dir string) (*Store, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open build-id store: %w", err)
	}
	return &Store{root: root}, nil
}

// CreateStore opens the store in a directory, which it makes if need be.
func CreateStore(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create build-id store: %w", err)
	}
	return OpenStore(dir)
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
}

// Add copies an ELF file into the store and returns its build-id. The copy is
// what is checked, so the file may change meanwhile: ErrMismatch is returned if
// the copy does not have the wanted id, ErrNoID or ErrNotELF if it has none.
// A file that is in the store already is not written again.
func (s *Store) Add(r io.Reader, src Source) (ID, error) {
	if !src.Want.IsZero() && s.Has(src.Want) {
		return src.Want, nil
	}
	temp, err := s.copyTemp(r)
	if err != nil {
		return ID{}, fmt.Errorf("add %s to build-id store: %w", src.Path, err)
	}
	defer s.root.Remove(temp) // fails if it was put in place
	id, err := s.checkFile(temp, src.Want)
	if err != nil {
		return ID{}, fmt.Errorf("add %s to build-id store: %w", src.Path, err)
	}
	if s.Has(id) {
		return id, nil
	}
	name := elfFileName
	if src.Path == vdsoPath {
		name = vdsoFileName
	}
	if err := s.place(temp, id, src.Path, name); err != nil {
		return ID{}, fmt.Errorf("add %s to build-id store: %w", src.Path, err)
	}
	return id, nil
}

// AddKallsyms copies /proc/kallsyms into the store, for the kernel with this
// build-id. Nothing in the text tells whether it belongs to that kernel: the
// caller has to know. It replaces an earlier copy, made before other modules
// were loaded. Only its owner may read it, as it tells where the kernel is.
func (s *Store) AddKallsyms(r io.Reader, kernel ID) error {
	if kernel.IsZero() {
		return fmt.Errorf("add kernel symbols to build-id store: %w", ErrNoID)
	}
	temp, err := s.copyTemp(r)
	if err != nil {
		return fmt.Errorf("add kernel symbols to build-id store: %w", err)
	}
	defer s.root.Remove(temp)
	if err := s.place(temp, kernel, kallsymsPath, kallsymsName); err != nil {
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

// Lookup opens the ELF file with a build-id, which it reads again to be sure.
// The caller closes the file. The error is fs.ErrNotExist if there is none, and
// ErrMismatch if there is another in its place.
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
	if id.Len() < 2 {
		return nil, 0, fmt.Errorf("look up build-id %q: %w", id, fs.ErrNotExist)
	}
	for _, name := range names {
		f, size, err = s.openFile(path.Join(linkOf(id), name))
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("look up build-id %s: %w", id, err)
	}
	got, err := FromFile(f, size)
	if err == nil && !id.Matches(got) {
		err = fmt.Errorf("%w: %s", ErrMismatch, got)
	}
	if err != nil {
		f.Close()
		return nil, 0, fmt.Errorf("look up build-id %s: %w", id, err)
	}
	return f, size, nil
}

// Kallsyms opens the copy of /proc/kallsyms made for the kernel with this
// build-id. The caller closes it.
func (s *Store) Kallsyms(kernel ID) (*os.File, error) {
	if kernel.Len() < 2 {
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
		err = fmt.Errorf("%s is not a regular file", name)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// copyTemp writes what r has into a new file and returns its name.
func (s *Store) copyTemp(r io.Reader) (name string, err error) {
	name = tempPrefix + rand.Text()
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(f, r)
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		s.root.Remove(name)
		return "", err
	}
	return name, nil
}

// checkFile returns the build-id of a file, if it is the wanted one.
func (s *Store) checkFile(name string, want ID) (ID, error) {
	f, size, err := s.openFile(name)
	if err != nil {
		return ID{}, err
	}
	defer f.Close()
	id, err := FromFile(f, size)
	if err != nil {
		return ID{}, err
	}
	if id.Len() < 2 {
		return ID{}, fmt.Errorf("build-id %s is too short for the store", id)
	}
	if !want.IsZero() && !want.Matches(id) {
		return ID{}, fmt.Errorf("%w: %s, not %s", ErrMismatch, id, want)
	}
	return id, s.root.Chmod(name, 0o644)
}

// place moves a finished file to where its id leads.
func (s *Store) place(temp string, id ID, origin, name string) error {
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
// into that of a directory below the store.
func directoryName(origin string) string {
	name := strings.TrimPrefix(path.Clean("/"+origin), "/")
	if name == "" || len(name) > maxNameSize || strings.HasPrefix(name, ".") || strings.Contains(name, "\x00") {
		return unnamedPath
	}
	return name
}
