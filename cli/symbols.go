// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
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
	named   *symbol.Kallsyms // those of the file that the user named
	store   *buildid.Store
	remote  *debuginfod.Client // nil: no server is asked
	archive *archive.Archive   // nil: the recording is none
	root    *binfile.Root
	closers []io.Closer
	openers []symbol.Opener
	kernel  runningKernel
	// kallsyms is the text that readKallsyms took, of the kernel recorded, if
	// keepText is set.
	keepText bool
	kallsyms []byte
	recorded analysis.Kernel
}

// sources opens what there is. A place that the user named must be there; of
// others, what is missing is only missed when a binary is looked for.
func (f symbolFlags) sources(e *env) (_ *symbolSources, err error) {
	s := &symbolSources{kernel: thisKernel(), keepText: f.keepText}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if f.kallsyms != "" {
		if s.named, err = s.readKallsymsFile(f.kallsyms); err == nil && s.named.Len() == 0 {
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
	kallsyms := func(k analysis.Kernel) (*symbol.Kallsyms, error) {
		s.recorded = k
		return s.readKallsyms(k)
	}
	o := &analysis.Options{Binaries: s.openers, Kallsyms: kallsyms, VDSO: s.readVDSO}
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
	if !k.BuildID.IsZero() && s.kernel.hasID(k.BuildID) {
		id = binfile.VDSO{}.ID()
	}
	return id
}
