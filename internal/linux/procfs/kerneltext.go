// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"strconv"
	"strings"
)

// KernelText is where the kernel's code is: the addresses from Start up to End. Start
// is 0 where the kernel does not tell (kernel.kptr_restrict).
type KernelText struct {
	Symbol     string // at Start: "_text" or "_stext"
	Start, End uint64
}

// KernelText finds the kernel's code. The end is not among the first symbols of
// kallsyms: iomem has the size much cheaper.
func (fs FS) KernelText() (KernelText, error) {
	f, err := os.Open(fs.Path("proc/kallsyms"))
	if errors.Is(err, iofs.ErrNotExist) || errors.Is(err, iofs.ErrPermission) {
		return KernelText{}, nil
	}
	if err != nil {
		return KernelText{}, fmt.Errorf("find kernel text: %w", err)
	}
	defer f.Close()
	size := kernelCodeSize(fs.Path("proc/iomem"))
	t, err := ParseKernelText(f, size)
	if err != nil {
		return t, fmt.Errorf("find kernel text: %w", err)
	}
	return t, nil
}

// ParseKernelText reads kallsyms up to the start of the text, and on to its
// end if size is 0.
func ParseKernelText(r io.Reader, size uint64) (KernelText, error) {
	var t KernelText
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		addr, name, ok := kallsymsLine(lines.Text())
		if !ok {
			continue
		}
		switch {
		case (name == "_text" || name == "_stext") && (t.Start == 0 || name == "_text" && addr == t.Start):
			if addr == 0 {
				return KernelText{}, nil
			}
			t.Symbol, t.Start = name, addr
		case name == "_etext":
			t.End = addr
		}
		if size != 0 && t.Start != 0 && addr > t.Start {
			t.End = t.Start + size
		}
		if t.End > t.Start && t.Start != 0 {
			return t, nil
		}
	}
	if err := lines.Err(); err != nil {
		return KernelText{}, err
	}
	return KernelText{}, nil
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

// kernelCodeSize is the size of the kernel's code in /proc/iomem, from _text to
// _etext; 0 if it is hidden or not there.
func kernelCodeSize(iomem string) uint64 {
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
