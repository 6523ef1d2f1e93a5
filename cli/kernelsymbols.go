// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/archive"
	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/perf"
)

// runningKernel is where the running kernel tells what it is, and its symbols.
type runningKernel struct {
	notes, release, kallsyms string // files
	arch                     perf.Arch
}

func thisKernel() runningKernel {
	k := runningKernel{notes: "/sys/kernel/notes", release: "/proc/sys/kernel/osrelease", kallsyms: "/proc/kallsyms"}
	switch runtime.GOARCH {
	case "amd64":
		k.arch = perf.AMD64
	case "arm64":
		k.arch = perf.ARM64
	}
	return k
}

// hasID reports whether the running kernel is the one with the given build-id.
func (r *runningKernel) hasID(id buildid.ID) bool {
	notes, err := os.ReadFile(r.notes)
	if err != nil {
		return false
	}
	running, err := buildid.FromKernelNotes(notes)
	return err == nil && running.Matches(id)
}

// is reports whether nothing that a recording tells of its kernel speaks
// against the running one: the build-id or, without one, the release and the
// machine.
func (r *runningKernel) is(k analysis.Kernel) bool {
	if !k.BuildID.IsZero() {
		return r.hasID(k.BuildID)
	}
	if k.Arch != "" && perf.ArchOf(k.Arch) != r.arch {
		return false
	}
	release, err := os.ReadFile(r.release)
	return k.Release == "" || err == nil && strings.TrimSpace(string(release)) == k.Release
}

// errOtherKernel: the symbols at hand are those of another kernel.
var errOtherKernel = errors.New("the recording is of another kernel or boot, and its symbols were not kept")

// otherKernel is errOtherKernel, with what the recording tells of its kernel.
func otherKernel(k analysis.Kernel) error {
	err := errOtherKernel
	if told := strings.TrimSpace(k.Release + " " + k.Arch); told != "" {
		err = fmt.Errorf("%w (it is %s)", err, told)
	}
	return hint.Wrap(err, "report on the recorded machine, or give its /proc/kallsyms with --kallsyms FILE")
}

// readKallsyms finds the symbols of the recorded kernel: the file that the
// user named, the running kernel's if it is the same, or the store's copy. That
// is much cheaper to read, and as good for the kernel itself; modules may have
// been loaded since.
//
// A kernel is told by its build-id, which also makes sure that it is the same
// at another address: the next boot's. Without one, release, machine and address
// must be the recorded ones.
func (s *symbolSources) readKallsyms(k analysis.Kernel) (*symbol.Kallsyms, error) {
	if s.named != nil {
		return s.named, nil
	}
	if s.archive != nil {
		return s.archivedKallsyms(k)
	}
	runs := s.kernel.is(k)
	if !runs || k.Reference.Addr != 0 && k.Addrs != nil {
		if t, exact := s.keptKallsyms(k); t != nil && (!runs || exact && t.Proper(k.Addrs)) {
			return t, nil
		}
	}
	if !runs {
		return nil, otherKernel(k)
	}
	t, err := s.runningKallsyms(k)
	if shift, ok := shiftOf(t, k); err == nil && (!ok || shift == 0) {
		return t, nil
	}
	if kept, exact := s.keptKallsyms(k); kept != nil && (exact || err != nil) {
		return kept, nil
	}
	return t, err
}

func shiftOf(t *symbol.Kallsyms, k analysis.Kernel) (shift uint64, known bool) {
	if t == nil {
		return 0, false
	}
	return t.Shift(k.Reference)
}

// keptKallsyms are the store's copy of the recorded kernel's symbols, nil if it
// has none; exact if it is of that boot. What modules had been loaded when it was
// made, nothing tells.
func (s *symbolSources) keptKallsyms(k analysis.Kernel) (t *symbol.Kallsyms, exact bool) {
	if s.store == nil || k.BuildID.IsZero() {
		return nil, false
	}
	t, shift, err := s.parseShifted(k, func() (io.ReadCloser, error) { return s.store.Kallsyms(k.BuildID) })
	if err != nil {
		return nil, false
	}
	return t, shift == 0
}

// runningKallsyms are the running kernel's symbols, if that is the kernel that
// was recorded.
func (s *symbolSources) runningKallsyms(k analysis.Kernel) (*symbol.Kallsyms, error) {
	t, shift, err := s.parseShifted(k, func() (io.ReadCloser, error) { return os.Open(s.kernel.kallsyms) })
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, otherKernel(k)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", s.kernel.kallsyms, err)
	case shift != 0 && k.BuildID.IsZero():
		return nil, otherKernel(k)
	}
	return t, nil
}

// parseShifted reads the kernel's symbols at the addresses that are asked for.
// Those are the recording's: of a kernel that lay elsewhere, all are read.
func (s *symbolSources) parseShifted(k analysis.Kernel, open func() (io.ReadCloser, error)) (*symbol.Kallsyms, uint64,
	error) {
	for {
		f, err := open()
		if err != nil {
			return nil, 0, err
		}
		t, err := s.parseKallsyms(f, k.Addrs)
		f.Close()
		if err != nil {
			return nil, 0, err
		}
		shift, _ := shiftOf(t, k)
		if shift == 0 || k.Addrs == nil {
			return t, shift, nil
		}
		k.Addrs = nil
	}
}

// readKallsymsFile reads all symbols in a file that the user named.
func (s *symbolSources) readKallsymsFile(path string) (*symbol.Kallsyms, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read kernel symbols: %w", err)
	}
	defer f.Close()
	t, err := s.parseKallsyms(f, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// parseKallsyms reads the kernel's symbols at some addresses, or all if addrs is
// nil, and keeps their text if it is wanted.
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

// archivedKallsyms are the kernel's symbols in the archive, if they are of the
// recorded kernel: so says the archive or, in one that does not tell, the address
// of the kernel.
func (s *symbolSources) archivedKallsyms(k analysis.Kernel) (*symbol.Kallsyms, error) {
	text, err := s.archive.Kallsyms()
	if errors.Is(err, os.ErrNotExist) {
		return nil, hint.Wrap(errors.New("the archive has no symbols of the kernel"),
			"give the recorded machine's /proc/kallsyms with --kallsyms FILE")
	}
	if err != nil {
		return nil, err
	}
	t, err := symbol.ReadKallsyms(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	if shift, ok := shiftOf(t, k); s.archive.Kernel() != archivedKernel(k) && (!ok || shift != 0) {
		return nil, hint.Wrap(errors.New("the archive has the symbols of another kernel"),
			"give the recorded machine's /proc/kallsyms with --kallsyms FILE")
	}
	return t, nil
}

func archivedKernel(k analysis.Kernel) archive.Kernel {
	return archive.Kernel{BuildID: k.BuildID, Release: k.Release, Arch: k.Arch}
}
