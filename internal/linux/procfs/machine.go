// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

var errMissing = errors.New("value missing")

// MemTotal is the machine's memory in kilobytes.
func (f FS) MemTotal() (uint64, error) {
	return parseFile(f.Path("proc/meminfo"), ParseMemTotal)
}

// ParseMemTotal finds MemTotal in /proc/meminfo.
func ParseMemTotal(r io.Reader) (uint64, error) {
	v, err := value(r, "MemTotal:")
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSuffix(v, " kB"), 10, 64)
}

// value is the text behind the first line that starts with prefix.
func value(r io.Reader, prefix string) (string, error) {
	sc := lines(r)
	for sc.Scan() {
		if v, ok := strings.CutPrefix(sc.Text(), prefix); ok {
			return strings.TrimSpace(v), nil
		}
	}
	if err := sc.Err(); err != nil {
		return "", err
	}
	return "", fmt.Errorf("%s %w", strings.TrimSpace(prefix), errMissing)
}

// Module is a loaded kernel module: a line of /proc/modules.
type Module struct {
	Name    string
	Size    uint64
	State   string // Live, Loading, Unloading
	Address uint64 // 0 if the kernel hides it (kptr_restrict)
}

// Modules lists the loaded modules.
func (f FS) Modules() ([]Module, error) {
	return parseFile(f.Path("proc/modules"), ParseModules)
}

// ParseModules parses "name size refs users state address [taint]".
func ParseModules(r io.Reader) ([]Module, error) {
	return parseLines(r, func(line string) (Module, error) {
		f := strings.Fields(line)
		if len(f) < 6 {
			return Module{}, fmt.Errorf("%d fields", len(f))
		}
		size, err1 := strconv.ParseUint(f[1], 10, 64)
		addr, err2 := strconv.ParseUint(strings.TrimPrefix(f[5], "0x"), 16, 64)
		return Module{Name: f[0], Size: size, State: f[4], Address: addr}, errors.Join(err1, err2)
	})
}
