// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/archive"
	"github.com/gantry-tools/gantry/analysis/binfile"
	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/buildid/debuginfod"
	"github.com/gantry-tools/gantry/internal/hint"
)

// symbolFlags say where the names of functions come from.
type symbolFlags struct {
	buildIDDir string
	symfs      string
	kallsyms   string
	debuginfod string
	keepText   bool // for an archive: keep the text of the kernel's symbols
}

func (f *symbolFlags) register(fl *pflag.FlagSet) {
	fl.StringVar(&f.buildIDDir, "buildid-dir", "", "build-id store to take binaries from (default ~/.debug)")
	fl.StringVar(&f.symfs, "symfs", "/", "directory that stands for / when binaries are opened by their path")
	fl.StringVar(&f.kallsyms, "kallsyms", "",
		"file with the kernel's symbols (default: the store's, else /proc/kallsyms)")
	fl.StringVar(&f.debuginfod, "debuginfod", "",
		"ask debuginfod servers for binaries and symbols that this machine does not have: `URL,...`, "+
			"without a value those of DEBUGINFOD_URLS")
	fl.Lookup("debuginfod").NoOptDefVal = debuginfodEnv
}

// defaultStore is the build-id store of perf, ~/.debug; "" where there is no home
// directory, which is not made for it.
func defaultStore() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	if info, err := os.Stat(home); err != nil || !info.IsDir() {
		return ""
	}
	return filepath.Join(home, ".debug")
}

// symbolSources are the open places that names come from.
type symbolSources struct {
	named     *symbol.Kallsyms // those of the file that the user named
	store     *buildid.Store
	remote    *debuginfod.Client // nil: no server is asked
	archive   *archive.Archive   // nil: the recording is none
	root      *binfile.Root
	closers   []io.Closer
	openers   []symbol.Opener
	procfs    string
	kernelIDs string
	// kallsyms is the text that readKallsyms took, if keepText is set.
	keepText bool
	kallsyms []byte
}

// sources opens what there is. A place that the user named must be there; of
// others, what is missing is only missed when a binary is looked for.
func (f symbolFlags) sources(e *env) (_ *symbolSources, err error) {
	s := &symbolSources{procfs: "/proc/kallsyms", kernelIDs: "/sys/kernel/notes", keepText: f.keepText}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if f.kallsyms != "" {
		if s.named, err = s.readKallsymsFile(f.kallsyms, nil); err == nil && s.named.Len() == 0 {
			err = fmt.Errorf("%s: no symbols in it", f.kallsyms)
		}
		if err != nil {
			return nil, named("--kallsyms", err, "give a copy of /proc/kallsyms, read as root on the recorded machine")
		}
	}
	if err := s.openStore(f.buildIDDir); err != nil {
		return nil, named("--buildid-dir", err,
			"give the directory that the recording's binaries were kept in, as ~/.debug")
	}
	s.root, err = binfile.OpenRoot(f.symfs, 0)
	switch {
	case err == nil:
		s.closers = append(s.closers, s.root)
		s.openers = append(s.openers, s.root)
	case f.symfs != "/":
		return nil, named("--symfs", err, "give a directory with the recorded machine's files")
	}
	s.openers = append(s.openers, &binfile.Processes{})
	if s.store != nil {
		s.openers = append(s.openers, &binfile.Store{Store: s.store})
	}
	s.openers = append(s.openers, binfile.VDSO{})
	return s, s.addDebuginfod(e, f.debuginfod)
}

// named is the error of a place that a flag names. A hint that the error has
// is the better one.
func named(flag string, err error, what string) error {
	err = fmt.Errorf("%s: %w", flag, err)
	if hint.Of(err) != "" {
		return err
	}
	return hint.Wrap(err, what)
}

// openStore opens the build-id store in dir, or the usual one.
func (s *symbolSources) openStore(dir string) error {
	place := dir
	if place == "" {
		place = defaultStore()
	}
	store, err := buildid.OpenStore(place)
	if err != nil {
		if dir == "" {
			return nil
		}
		return err
	}
	s.store = store
	s.closers = append(s.closers, store)
	return nil
}

// Close closes the places.
func (s *symbolSources) Close() {
	for _, c := range s.closers {
		c.Close()
	}
}

func (s *symbolSources) options() *analysis.Options {
	o := &analysis.Options{Binaries: s.openers, Kallsyms: s.readKallsyms, VDSO: s.readVDSO}
	if s.store != nil {
		o.Cache = s.store
	}
	return o
}

// readVDSO is the build-id of the vdso of the recorded kernel: that of the
// archive, or of the running kernel if it is the same.
func (s *symbolSources) readVDSO(k analysis.Kernel) (id buildid.ID) {
	if s.archive != nil {
		return s.archive.VDSO()
	}
	if !k.BuildID.IsZero() && s.runs(k.BuildID) {
		id = binfile.VDSO{}.ID()
	}
	return id
}

// errOtherKernel: the symbols at hand are those of another kernel.
var errOtherKernel = errors.New("the recording is of another kernel or boot, and its symbols were not kept")

// readKallsyms finds the symbols of the recorded kernel: the file that the
// user named, the running kernel's if it is the same, or the store's copy. That
// is much cheaper to read, and as good for the kernel itself; modules may have
// been loaded since.
func (s *symbolSources) readKallsyms(k analysis.Kernel) (*symbol.Kallsyms, error) {
	if s.named != nil {
		return s.named, nil
	}
	if s.archive != nil {
		return s.archivedKallsyms()
	}
	if !k.BuildID.IsZero() && !s.runs(k.BuildID) {
		if t := s.keptKallsyms(k); t != nil {
			return t, nil
		}
		return nil, hint.Wrap(errOtherKernel,
			"report on the recorded machine, or give its /proc/kallsyms with --kallsyms FILE")
	}
	if k.Text != 0 && k.Addrs != nil {
		if t := s.keptKallsyms(k); t != nil && t.Proper(k.Addrs) {
			return t, nil
		}
	}
	t, err := s.runningKallsyms(k)
	if err != nil {
		if kept := s.keptKallsyms(k); kept != nil {
			return kept, nil
		}
	}
	return t, err
}

// keptKallsyms are the store's copy of the recorded kernel's symbols, nil if it
// has none of that boot. What modules had been loaded when it was made, nothing
// tells.
func (s *symbolSources) keptKallsyms(k analysis.Kernel) *symbol.Kallsyms {
	if s.store == nil || k.BuildID.IsZero() {
		return nil
	}
	f, err := s.store.Kallsyms(k.BuildID)
	if err != nil {
		return nil
	}
	defer f.Close()
	t, err := s.parseKallsyms(f, k.Addrs)
	if err != nil || k.Text != 0 && t.Text() != k.Text {
		return nil
	}
	return t
}

// runningKallsyms are the running kernel's symbols, if it is still the boot
// that was recorded.
func (s *symbolSources) runningKallsyms(k analysis.Kernel) (*symbol.Kallsyms, error) {
	t, err := s.readKallsymsFile(s.procfs, k.Addrs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, hint.Wrap(errOtherKernel, "give the recorded machine's /proc/kallsyms with --kallsyms FILE")
	}
	if err == nil && k.Text != 0 && t.Text() != k.Text {
		return nil, hint.Wrap(errOtherKernel, "give the /proc/kallsyms of that boot with --kallsyms FILE")
	}
	return t, err
}

// runs reports whether the running kernel is the one with the given id.
func (s *symbolSources) runs(id buildid.ID) bool {
	notes, err := os.ReadFile(s.kernelIDs)
	if err != nil {
		return false
	}
	running, err := buildid.FromKernelNotes(notes)
	return err == nil && running.Matches(id)
}

// readKallsymsFile reads the symbols at some addresses, or all if addrs is nil.
// The addresses are those of the recording, so that symbols of a kernel that
// lay elsewhere must be read whole.
func (s *symbolSources) readKallsymsFile(path string, addrs []uint64) (*symbol.Kallsyms, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read kernel symbols: %w", err)
	}
	defer f.Close()
	t, err := s.parseKallsyms(f, addrs)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// parseKallsyms reads the kernel's symbols, and keeps their text if it is wanted.
func (s *symbolSources) parseKallsyms(r io.Reader, addrs []uint64) (*symbol.Kallsyms, error) {
	var text bytes.Buffer
	if s.keepText {
		r = io.TeeReader(r, &text)
	}
	read := symbol.ReadKallsyms
	if addrs != nil {
		read = func(r io.Reader) (*symbol.Kallsyms, error) { return symbol.ReadKallsymsAt(r, addrs) }
	}
	t, err := read(r)
	if err == nil && s.keepText {
		s.kallsyms = text.Bytes()
	}
	return t, err
}
