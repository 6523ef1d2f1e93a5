// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/config"
	"github.com/gantry-tools/gantry/internal/elffile"
	"github.com/gantry-tools/gantry/internal/hint"
)

// addFlags are the flags of gantry buildid add.
type addFlags struct {
	storeFlags
	container string
	maxFile   string
	sourceOf  string
}

// defaultMaxFile is how large a file may be unless --max-file says otherwise.
const defaultMaxFile = "1G"

func newBuildidAddCmd(e *env) *cobra.Command {
	f := new(addFlags)
	cmd := &cobra.Command{
		Use:   "add [flags] PATH...",
		Short: "keep binaries in the store",
		Long: `Copy ELF files into the store. A file with the symbols that were stripped from a
binary (*.debug) is kept beside that binary.

With --source-of the paths are source files of a binary that is in the store;
'gantry buildid serve' gives them to debuggers under the path that they have.

With --container the paths are those that the container's first process sees:
nothing outside of its root directory is opened, whatever the links in it say,
and neither is anything but a regular file on a file system that no program
serves (FUSE).`,
		Example: `  gantry buildid add ./server
  gantry buildid add --container web /usr/sbin/nginx /usr/lib/libssl.so.3
  gantry buildid add --source-of 3a1f70 /src/server/*.c`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.formatFlags.run(e, cmd, func(e *env) error {
				if len(args) == 0 {
					return usageError(cmd, errors.New("say which files to add"))
				}
				limit, err := config.ParseSize("--max-file", f.maxFile)
				if err != nil {
					return usageError(cmd, err)
				}
				return f.run(e, cmd.Context(), args, limit)
			})
		},
	}
	f.register(cmd, changeOutputs)
	fl := cmd.Flags()
	fl.StringVar(&f.container, "container", "", "`NAME`, id or other selector of the container that the paths are in")
	fl.StringVar(&f.sourceOf, "source-of", "", "the paths are source files of the binary with this `ID`, or its begin")
	fl.StringVar(&f.maxFile, "max-file", defaultMaxFile, "largest `SIZE` of a file")
	return cmd
}

// opener opens a regular file that is to be added.
type opener func(path string) (*os.File, error)

// addedJSON is a file that was added in --format json.
type addedJSON struct {
	ID    buildid.ID   `json:"id"`
	Kind  buildid.Kind `json:"kind"`
	Path  string       `json:"path"`
	Debug bool         `json:"debug,omitempty"`
	// Source: it is a source file of the binary with the id.
	Source bool `json:"source,omitempty"`
}

func (f *addFlags) run(e *env, ctx context.Context, paths []string, limit int64) error {
	open := opener(openHostFile)
	if f.container != "" {
		if i := slices.IndexFunc(paths, func(p string) bool { return !filepath.IsAbs(p) }); i >= 0 {
			return hint.Wrap(fmt.Errorf("%q is not an absolute path", paths[i]),
				"give the path as the container sees it, from /")
		}
		inside, err := containerOpener(ctx, e.stderr, f.container)
		if err != nil {
			return err
		}
		defer inside.Close()
		open = inside.Open
	}
	s, err := f.create()
	if err != nil {
		return err
	}
	defer s.Close()
	add := addOne
	if f.sourceOf != "" {
		id, err := oneID(s, f.sourceOf)
		if err != nil {
			return err
		}
		add = func(s *buildid.Store, file *os.File, path string, limit int64) (addedJSON, error) {
			return addedJSON{ID: id, Kind: id.Kind(), Path: path, Source: true}, s.AddSource(id, path, file, limit)
		}
	}
	added := []addedJSON{}
	status := 0
	for _, p := range paths {
		a, err := openAndAdd(s, open, p, limit, add)
		if err != nil {
			status = explain(e.stderr, err)
			continue
		}
		added = append(added, a)
	}
	if err := f.write(e.stdout, added); err != nil {
		return err
	}
	if status != 0 {
		return &exitError{code: status}
	}
	return nil
}

func (f *addFlags) write(w io.Writer, added []addedJSON) error {
	if f.format == "json" {
		return writeJSON(w, added)
	}
	for _, a := range added {
		if _, err := fmt.Fprintf(w, "%s %s\n", a.ID, container.Printable(a.Path)); err != nil {
			return err
		}
	}
	return nil
}

// oneID is the one id in the store that a text is the begin of.
func oneID(s *buildid.Store, text string) (buildid.ID, error) {
	list, err := s.List()
	if err != nil {
		return buildid.ID{}, err
	}
	found, err := chooseEntries(list, []string{text})
	if err != nil {
		return buildid.ID{}, err
	}
	for i := range found {
		if found[i].ID != found[0].ID {
			return buildid.ID{}, hint.Wrap(fmt.Errorf("%q is the begin of %s and %s", text, found[0].ID, found[i].ID),
				"give more digits")
		}
	}
	return found[0].ID, nil
}

// openAndAdd opens a file that is not too large, and adds it.
func openAndAdd(s *buildid.Store, open opener, path string, limit int64,
	add func(*buildid.Store, *os.File, string, int64) (addedJSON, error)) (addedJSON, error) {
	file, err := openInTime(open, path, openTimeout)
	if err != nil {
		return addedJSON{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return addedJSON{}, err
	}
	if info.Size() > limit {
		return addedJSON{}, hint.Wrap(fmt.Errorf("%s: %w: %d bytes", path, buildid.ErrTooLarge, info.Size()),
			"--max-file SIZE allows more")
	}
	if path, err = filepath.Abs(path); err != nil {
		return addedJSON{}, err
	}
	return add(s, file, path, info.Size())
}

// addOne adds a file of so many bytes as what it is: a binary, or the symbols of
// one.
func addOne(s *buildid.Store, file *os.File, path string, size int64) (a addedJSON, err error) {
	a = addedJSON{Path: path, Debug: separateSymbols(file, size)}
	add := s.Add
	if a.Debug {
		add = s.AddDebug
	}
	a.ID, err = add(&io.LimitedReader{R: file, N: size}, buildid.Source{Path: a.Path})
	if errors.Is(err, buildid.ErrNotELF) {
		err = hint.Wrap(err, "give a program, a library or a file of symbols")
	}
	a.Kind = a.ID.Kind()
	return a, err
}

// separateSymbols reports whether an ELF file has symbols for code that is not in
// it.
func separateSymbols(r io.ReaderAt, size int64) bool {
	f, err := elffile.Open(r, size)
	if err != nil {
		return false // Add says why
	}
	return slices.ContainsFunc(f.Sections, func(sec *elf.Section) bool {
		return sec.Type == elf.SHT_NOBITS && sec.Flags&elf.SHF_EXECINSTR != 0
	})
}

// openTimeout bounds the walk to a file: a directory on the way may be served
// by a program that never answers.
const openTimeout = 10 * time.Second

// openInTime gives up on a file that takes too long to open. The goroutine that
// waits for it ends with the process.
func openInTime(open opener, path string, timeout time.Duration) (*os.File, error) {
	type result struct {
		file *os.File
		err  error
	}
	done := make(chan result, 1)
	go func() {
		file, err := open(path)
		done <- result{file, err}
	}()
	select {
	case r := <-done:
		return r.file, r.err
	case <-time.After(timeout):
		return nil, fmt.Errorf("open %s: no answer in %v", path, timeout)
	}
}

var errNotRegular = errors.New("not a regular file")

// openHostFile opens a file of this mount namespace. It does not wait for the
// writer of a FIFO.
func openHostFile(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", path, errNotRegular)
	}
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// closableOpener opens files somewhere until it is closed.
type closableOpener interface {
	Open(path string) (*os.File, error)
	Close() error
}
