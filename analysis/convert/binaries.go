// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/analysis/timeline"
	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/elffile"
)

// Stats count what was copied.
type Stats struct {
	Binaries, Debug int
	Missing         int // binaries that were not found
	Bytes           int64
}

// Binaries is a directory with copies of binaries.
type Binaries struct {
	root  *os.Root
	dir   string                // absolute
	dirs  map[string]uniquePath // by path in the directory
	files map[*timeline.File]uniquePath
	known *timeline.Timeline
	stats Stats
}

// uniquePath is where a binary is.
type uniquePath struct {
	path    string     // absolute
	number  uint64     // counts from 1; stands for the inode
	buildID buildid.ID // that the file has, zero if none
}

// NewBinaries makes the directory, if it is not there, and opens it.
func NewBinaries(dir string) (*Binaries, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	const own = 0o700 // as recordings are
	if err := os.MkdirAll(abs, own); err != nil {
		return nil, fmt.Errorf("make a directory for binaries: %w", err)
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, fmt.Errorf("open the directory for binaries: %w", err)
	}
	return &Binaries{root: root, dir: abs, dirs: make(map[string]uniquePath),
		files: make(map[*timeline.File]uniquePath)}, nil
}

// Close closes the directory.
func (b *Binaries) Close() error { return b.root.Close() }

// Stats count what was copied.
func (b *Binaries) Stats() Stats { return b.stats }

// Add copies the binaries that s has looked at, and their debug files. One that is
// not found gets a path all the same, where nothing is: what is at its own may
// be another one.
func (b *Binaries) Add(s *analysis.Session) error {
	b.known = s.Timeline
	for _, bin := range s.Binaries() {
		if err := b.add(s.Resolver(), bin); err != nil {
			return err
		}
	}
	return nil
}

func (b *Binaries) add(r *symbol.Resolver, bin analysis.Binary) error {
	id := bin.Ref.BuildID.String()
	if id == "" {
		id = fmt.Sprintf("file-%d", bin.File.Index)
	}
	name := path.Join(id, baseName(bin.File.Path))
	if p, ok := b.dirs[name]; ok {
		b.files[bin.File] = p
		return nil
	}
	p := uniquePath{path: filepath.Join(b.dir, filepath.FromSlash(name)), number: uint64(len(b.dirs) + 1)}
	f, size, err := r.Open(bin.Ref)
	if err == nil {
		defer f.Close()
		if _, err = elffile.Open(f, size); err == nil {
			p.buildID, _ = buildid.FromFile(f, size)
		}
	}
	if err != nil {
		b.stats.Missing++
	} else {
		if err := b.copy(name, f, size); err != nil {
			return err
		}
		b.stats.Binaries++
		if err := b.addDebug(r, bin.Ref, path.Dir(name), p.buildID); err != nil {
			return err
		}
	}
	b.dirs[name], b.files[bin.File] = p, p
	return nil
}

// addDebug copies the debug file of a binary in dir to where tools look for it.
func (b *Binaries) addDebug(r *symbol.Resolver, ref symbol.Ref, dir string, id buildid.ID) error {
	var failed error
	err := r.SeparateDebug(ref, func(f io.ReaderAt, size int64, link string) error {
		name := path.Join(dir, ".debug", link)
		if link == "" || baseName(link) != link {
			text := id.String() // it is found by nothing else
			if len(text) < 4 {
				return fs.ErrNotExist
			}
			name = path.Join(".build-id", text[:2], text[2:]+".debug")
		}
		failed = b.copy(name, f, size)
		return nil
	})
	if err == nil && failed == nil {
		b.stats.Debug++
	}
	return failed // that there is no such file is the rule
}

// copy writes a file; it is there in whole or not at all.
func (b *Binaries) copy(name string, f io.ReaderAt, size int64) (err error) {
	dir, temp := path.Dir(name), path.Join(path.Dir(name), ".new")
	defer func() {
		if err != nil {
			err = fmt.Errorf("copy %s: %w", name, err)
		}
	}()
	if err := b.root.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := b.root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := b.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, io.NewSectionReader(f, 0, size))
	b.stats.Bytes += n
	if err == nil && n < size {
		err = io.ErrUnexpectedEOF // it became shorter
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = b.root.Rename(temp, name)
	}
	if err != nil {
		err = errors.Join(err, b.root.Remove(temp))
	}
	return err
}

// sorted are the places in the order in which they were made.
func (b *Binaries) sorted() []uniquePath {
	return slices.SortedFunc(maps.Values(b.dirs), func(x, y uniquePath) int { return cmp.Compare(x.number, y.number) })
}

// baseName is the name of the file at a path that a recording gave.
func baseName(name string) string {
	const longest = 200
	base := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '_'
		}
		return r
	}, path.Base(name))
	if base == "/" || strings.HasPrefix(base, ".") {
		base = "_" + strings.TrimLeft(base, "./")
	}
	return strings.ToValidUTF8(base[:min(len(base), longest)], "_")
}
