// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// errNotRegular is a directory, link, device or FIFO where a file should be.
var errNotRegular = errors.New("not a regular file")

// Entry is what the store has for one id.
type Entry struct {
	ID ID
	// Path is where the file was when it was added, or "[vdso]" and the like.
	Path string
	// Files are the names in its directory: elf, debug, vdso, kallsyms and
	// what other tools put there. Without any, the link leads nowhere.
	Files []string
	// Size is that of all files, in bytes.
	Size int64
	// Used is when the entry was last added or looked up.
	Used time.Time
	// Orphan: another directory has the link of this id. perf leaves such
	// behind when it adds one file under two paths. No look-up finds it.
	Orphan bool

	dir string
}

// Kind is where the id comes from, or what an entry is that has no ELF file:
// "code" that a process generated, or "derived" content, made of other files.
func (e *Entry) Kind() string {
	switch e.Path {
	case jitPath:
		return jitName
	case derivedPath:
		return derivedName
	}
	return e.ID.Kind().String()
}

// List is all that the store has, sorted by path and id. What is no entry of
// such a store is not told.
func (s *Store) List() ([]Entry, error) {
	list, err := s.linked()
	if err != nil {
		return nil, fmt.Errorf("list build-id store: %w", err)
	}
	orphans, err := s.orphans(list)
	if err != nil {
		return nil, fmt.Errorf("list build-id store: %w", err)
	}
	list = append(list, orphans...)
	slices.SortFunc(list, func(a, b Entry) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.ID.raw, b.ID.raw),
			strings.Compare(a.dir, b.dir))
	})
	return list, nil
}

// linked lists what the links lead to.
func (s *Store) linked() ([]Entry, error) {
	heads, err := s.readDir(linkDir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return nil, err
	}
	var list []Entry
	for _, head := range heads {
		if len(head.Name()) != 2 || !head.IsDir() {
			continue
		}
		tails, err := s.readDir(path.Join(linkDir, head.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, tail := range tails {
			id, err := Parse(head.Name() + tail.Name())
			if err == nil && id.Len() >= minSize && linkOf(id) == path.Join(linkDir, head.Name(), tail.Name()) {
				list = append(list, s.entry(id))
			}
		}
	}
	return list, nil
}

// Entry is what the store has for an id; without Files if that is nothing.
func (s *Store) Entry(id ID) Entry {
	if id.Len() < minSize {
		return Entry{ID: id}
	}
	return s.entry(id)
}

// entry looks at what the link of an id leads to: a directory that is called as
// the id is, for nothing else is to be removed in its name.
func (s *Store) entry(id ID) Entry {
	dir := linkOf(id)
	if target, err := s.root.Readlink(dir); err == nil {
		to := path.Join(path.Dir(dir), target)
		if path.IsAbs(target) || path.Base(to) != id.String() || !fs.ValidPath(to) {
			return Entry{ID: id}
		}
		dir = to
	}
	return s.directory(id, dir)
}

// directory looks at a directory of files.
func (s *Store) directory(id ID, dir string) Entry {
	e := Entry{ID: id, dir: dir, Path: originOf(dir)}
	info, err := s.root.Stat(dir)
	if err != nil {
		return e
	}
	e.Used = info.ModTime()
	fs.WalkDir(s.root.FS(), dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // gone meanwhile, or not ours to read
		}
		if info, err := d.Info(); err == nil && d.Type().IsRegular() {
			e.Size += info.Size()
		}
		if path.Dir(name) == dir {
			e.Files = append(e.Files, d.Name())
		}
		return nil
	})
	return e
}

// originOf is the path of the file that has a directory of the store.
func originOf(dir string) string {
	origin := path.Dir(dir)
	if strings.HasPrefix(origin, "[") || origin == "." || strings.HasPrefix(origin, linkDir) {
		return origin
	}
	return "/" + strings.TrimLeft(origin, "/")
}

// orphans finds directories of files that no link leads to.
func (s *Store) orphans(linked []Entry) ([]Entry, error) {
	known := make(map[string]bool, len(linked))
	for _, e := range linked {
		known[e.dir] = true
	}
	var list []Entry
	err := fs.WalkDir(s.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)):
			return fs.SkipDir
		case err != nil:
			return err
		case !d.IsDir():
			return nil
		case name == linkDir || known[name]:
			return fs.SkipDir
		}
		id, err := Parse(d.Name())
		if err != nil || id.Len() < minSize || name == d.Name() {
			return nil
		}
		if e := s.directory(id, name); slices.ContainsFunc(e.Files, isOurs) && s.entry(id).dir != name {
			e.Orphan = true
			list = append(list, e)
			return fs.SkipDir
		}
		return nil
	})
	return list, err
}

// oldUnwindName is a file that gantry 0.1 put beside others. Nothing reads it; it goes with its entry.
const oldUnwindName = "unwind"

func isOurs(name string) bool {
	return name == elfFileName || name == debugName || name == vdsoFileName || name == kallsymsName ||
		name == oldUnwindName || name == jitName || name == derivedName
}

func (s *Store) readDir(name string) ([]fs.DirEntry, error) {
	return fs.ReadDir(s.root.FS(), name)
}

// Remove removes an entry that List returned. An entry that is gone is no error.
func (s *Store) Remove(e *Entry) error {
	defer s.lock(exclusive)()
	if err := s.remove(e); err != nil {
		return fmt.Errorf("remove %s from build-id store: %w", e.ID, err)
	}
	return nil
}

// remove removes the files, then the link: a link that leads nowhere is made
// again by who adds the file, a directory without a link is found by nobody.
func (s *Store) remove(e *Entry) error {
	link := linkOf(e.ID)
	if e.dir != "" {
		if err := s.root.RemoveAll(e.dir); err != nil {
			return err
		}
	}
	if !e.Orphan {
		if err := s.root.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, dir := range []string{path.Dir(e.dir), path.Dir(link)} {
		for dir != "." && dir != linkDir && s.root.Remove(dir) == nil { // if it is empty now
			dir = path.Dir(dir)
		}
	}
	return nil
}

// Limits say what a store keeps. A limit of 0 is none.
type Limits struct {
	// MaxSize is how many bytes all files may have.
	MaxSize int64
	// MaxAge is how long a file is kept after its last use.
	MaxAge time.Duration
	// DryRun: nothing is removed, only reported.
	DryRun bool
}

// Pruned is what Prune did.
type Pruned struct {
	Removed []Entry
	Freed   int64 // bytes of what was removed
	Kept    int   // entries
	Size    int64 // their bytes
	Temps   int   // half-written files of writers that were killed
}

// Prune removes what exceeds the limits, the longest unused first; links that
// lead nowhere and files that no link leads to, if they are not new; and what
// killed writers left. It stops at the first error; what was removed until then
// is told.
func (s *Store) Prune(l Limits) (Pruned, error) {
	var p Pruned
	now := time.Now()
	if !l.DryRun {
		p.Temps = s.removeTemps(now)
	}
	list, err := s.List()
	if err != nil {
		return p, err
	}
	for _, e := range list {
		p.Size += e.Size
	}
	p.Kept = len(list)
	slices.SortStableFunc(list, func(a, b Entry) int { return a.Used.Compare(b.Used) })
	for i := range list {
		e := &list[i]
		old := l.MaxAge > 0 && now.Sub(e.Used) > l.MaxAge
		large := l.MaxSize > 0 && p.Size > l.MaxSize
		stray := (e.Orphan || len(e.Files) == 0) && now.Sub(e.Used) > lockDelay
		if !old && !large && !stray {
			continue
		}
		if !l.DryRun {
			if err := s.Remove(e); err != nil {
				return p, err
			}
		}
		p.Removed = append(p.Removed, *e)
		p.Freed += e.Size
		p.Size -= e.Size
		p.Kept--
	}
	return p, nil
}

// BadFile is a file of the store that is not what its place says.
type BadFile struct {
	Entry *Entry
	Name  string // elf, debug or vdso
	Err   error
}

// Verify reads all files of the entries and drops, if wanted, those that do not
// have the id of their place. Of files that could not be read it tells, too,
// but they stay. It returns how many were read.
func (s *Store) Verify(list []Entry, drop bool) (files int, bad []BadFile) {
	for i := range list {
		e := &list[i]
		for _, name := range e.Files {
			if name != elfFileName && name != debugName && name != vdsoFileName && name != jitName {
				continue
			}
			files++
			at := path.Join(e.dir, name)
			if err := s.verify(at, e.ID); err != nil {
				bad = append(bad, BadFile{e, name, err})
				if drop {
					s.drop(e.ID, at, err)
				}
			}
		}
	}
	return files, bad
}

func (s *Store) verify(name string, id ID) error {
	f, size, err := s.openFile(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if path.Base(name) == debugName {
		err = s.checkDebug(f, size, id)
	} else {
		err = Check(f, size, id)
	}
	if errors.Is(err, ErrNotELF) && isCompressed(f) {
		return nil
	}
	return err
}

// isCompressed reports whether a file is a compressed one, as perf puts kernel
// modules into the store. What is in it nobody checks, and no look-up gives it.
func isCompressed(r io.ReaderAt) bool {
	b := make([]byte, 6)
	n, _ := r.ReadAt(b, 0) // a short file is none
	for _, magic := range []string{"\x1f\x8b", "\xfd7zXZ\x00", "\x28\xb5\x2f\xfd", "BZh"} {
		if strings.HasPrefix(string(b[:n]), magic) {
			return true
		}
	}
	return false
}

// Dropped counts the files that this Store found not to have the id of their
// place and therefore removed.
func (s *Store) Dropped() uint64 { return s.dropped.Load() }

// drop removes a file for which Check gave err, if that says for sure that it
// does not belong where it is. Another writer may have put the right one there
// meanwhile.
func (s *Store) drop(id ID, name string, err error) {
	if !wrongFile(err) {
		return
	}
	s.dropIf(id, name, func() bool {
		err := s.verify(name, id)
		return err != nil && wrongFile(err)
	})
}

// dropIf is drop of a file that is bad.
func (s *Store) dropIf(id ID, name string, bad func() bool) {
	defer s.lock(exclusive)()
	if !bad() {
		return
	}
	if s.root.Remove(name) != nil {
		return
	}
	s.dropped.Add(1)
	if e := s.entry(id); len(e.Files) == 0 {
		s.remove(&e) // a link that leads nowhere does no harm
	}
}

// wrongFile reports whether an error is about the content of a file and not about
// the reading of it.
func wrongFile(err error) bool {
	var at *fs.PathError
	var errno syscall.Errno
	return !errors.As(err, &at) && !errors.As(err, &errno)
}
