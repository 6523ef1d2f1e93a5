// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// KernelMapping is what perf calls the kernel's text: the symbol that marks
// its start, so that a reader can tell by how much it was moved.
const KernelMapping = "[kernel.kallsyms]"

// Kernel reports where the kernel and its modules are. It reports nothing, and
// hidden, if this user may not know.
func (s *Synthesizer) Kernel() (hidden bool, err error) {
	now, err := sys.ClockMonotonic.Now()
	if err != nil {
		return false, err
	}
	send := func(name string, start, size, off uint64) error {
		rec := &perf.Mmap{PID: -1, Addr: start, Len: size, PgOff: off, Filename: name}
		rec.Misc = perf.MiscKernel | perf.MiscStatusOnly
		rec.SampleID.Time = uint64(now)
		return s.Write(rec)
	}
	text, err := s.FS.KernelText()
	if err != nil {
		return false, err
	}
	if text.Start == 0 {
		return true, nil
	}
	if err := send(KernelMapping+text.Symbol, text.Start, text.End-text.Start, text.Start); err != nil {
		return false, err
	}
	mods, err := s.FS.Modules()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("list modules: %w", err)
	}
	files := moduleFiles(s.FS.Path("proc/sys/kernel/osrelease"))
	for _, m := range mods {
		if m.Address == 0 || m.State != "Live" {
			continue
		}
		name, ok := files[moduleName(m.Name)]
		if !ok {
			name = "[" + m.Name + "]"
		}
		if err := send(name, m.Address, m.Size, 0); err != nil {
			return false, err
		}
	}
	return false, nil
}

// moduleFiles maps the names of modules to their files, by modules.dep.
func moduleFiles(osrelease string) map[string]string {
	release, err := readText(osrelease)
	if err != nil {
		return nil
	}
	dir := path.Join("/lib/modules", release)
	b, err := os.ReadFile(path.Join(dir, "modules.dep"))
	if err != nil {
		return nil
	}
	files := make(map[string]string)
	for line := range strings.Lines(string(b)) {
		file, _, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		base, _, _ := strings.Cut(path.Base(file), ".ko")
		files[moduleName(base)] = path.Join(dir, file)
	}
	return files
}

// moduleName: the kernel writes "_" where a file may have "-".
func moduleName(s string) string { return strings.ReplaceAll(s, "-", "_") }

// maxText bounds the files of a few words that readText is for.
const maxText = 1 << 20

func readText(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxText))
	return strings.TrimSpace(string(b)), err
}
