// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// kernelMapping is what perf calls the kernel's text: the symbol that marks
// its start, so that a reader can tell by how much it was moved.
const kernelMapping = "[kernel.kallsyms]"

// kernel tells where the kernel and its modules are, if that may be known.
func (t *synthesizer) kernel() error {
	now, err := sys.ClockMonotonic.Now()
	if err != nil {
		return err
	}
	send := func(name string, start, size, off uint64) error {
		rec := &perf.Mmap{PID: -1, Addr: start, Len: size, PgOff: off, Filename: name}
		rec.Misc = perf.MiscKernel | perf.MiscStatusOnly
		rec.SampleID.Time = uint64(now)
		return t.write(rec)
	}
	text, err := kernelText(t.r.fs.Path("proc"))
	if err != nil {
		return err
	}
	if text.start == 0 {
		if t.r.set.kernelSampled() {
			t.r.result.note("kernel functions will have no names: their addresses are hidden (sysctl kernel.kptr_restrict, CAP_SYSLOG)")
		}
		return nil
	}
	if err := send(kernelMapping+text.symbol, text.start, text.end-text.start, text.start); err != nil {
		return err
	}
	mods, err := t.r.fs.Modules()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list modules: %w", err)
	}
	files := moduleFiles(t.r.fs.Path("proc/sys/kernel/osrelease"))
	for _, m := range mods {
		if m.Address == 0 || m.State != "Live" {
			continue
		}
		name, ok := files[moduleName(m.Name)]
		if !ok {
			name = "[" + m.Name + "]"
		}
		if err := send(name, m.Address, m.Size, 0); err != nil {
			return err
		}
	}
	return nil
}

// textRange is where the kernel's code is.
type textRange struct {
	symbol     string // "_text" or "_stext"
	start, end uint64
}

// kernelText finds the kernel's code; start is 0 if the kernel does not tell.
// The end is not among the first symbols: iomem has the size much cheaper.
func kernelText(proc string) (textRange, error) {
	f, err := os.Open(filepath.Join(proc, "kallsyms"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return textRange{}, nil
	}
	if err != nil {
		return textRange{}, fmt.Errorf("find kernel text: %w", err)
	}
	defer f.Close()
	size := codeSize(filepath.Join(proc, "iomem"))
	t, err := parseKernelText(f, size)
	if err != nil {
		return t, fmt.Errorf("find kernel text: %w", err)
	}
	return t, nil
}

// parseKernelText reads kallsyms up to the start of the text, and on to its
// end if size is 0.
func parseKernelText(r io.Reader, size uint64) (textRange, error) {
	var t textRange
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		addr, name, ok := kallsymsLine(lines.Text())
		if !ok {
			continue
		}
		switch {
		case (name == "_text" || name == "_stext") && (t.start == 0 || name == "_text" && addr == t.start):
			if addr == 0 {
				return textRange{}, nil
			}
			t.symbol, t.start = name, addr
		case name == "_etext":
			t.end = addr
		}
		if size != 0 && t.start != 0 && addr > t.start {
			t.end = t.start + size
		}
		if t.end > t.start && t.start != 0 {
			return t, nil
		}
	}
	if err := lines.Err(); err != nil {
		return textRange{}, err
	}
	return textRange{}, nil
}

// kallsymsLine reads "ffffffff81000000 T _text".
func kallsymsLine(line string) (addr uint64, name string, ok bool) {
	hex, rest, ok := strings.Cut(line, " ")
	if !ok || len(rest) < 3 {
		return 0, "", false
	}
	addr, err := strconv.ParseUint(hex, 16, 64)
	return addr, rest[2:], err == nil
}

// codeSize is the size of the kernel's code in /proc/iomem, from _text to
// _etext; 0 if it is hidden or not there.
func codeSize(iomem string) uint64 {
	b, err := os.ReadFile(iomem)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		span, name, _ := strings.Cut(strings.TrimSpace(line), " : ")
		if name != "Kernel code" {
			continue
		}
		from, to, _ := strings.Cut(span, "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err1 == nil && err2 == nil && end > start {
			return end + 1 - start
		}
	}
	return 0
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
