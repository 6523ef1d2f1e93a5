// SPDX-License-Identifier: Apache-2.0

package binfile

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/analysis/symbol"
)

var (
	_ symbol.PerfMapOpener = (*Root)(nil)
	_ symbol.PerfMapOpener = (*Processes)(nil)
	_ symbol.PerfMapOpener = (*Store)(nil)
)

// mapPath is where compilers that run with a program write its perf map. The
// number is that of the process in its own pid namespace.
func mapPath(pid int32) string { return fmt.Sprintf("/tmp/perf-%d.map", pid) }

// OpenPerfMap opens the perf map of a process of this mount namespace, by its number
// on the host; it may have exited.
func (r *Root) OpenPerfMap(ref symbol.Ref) (symbol.File, int64, error) {
	if ref.MountNS != r.mountNS {
		return nil, 0, fmt.Errorf("open perf map of another mount namespace: %w", fs.ErrNotExist)
	}
	return openMap(r.root, mapPath(ref.PID), ref.Unchanged)
}

// openMap opens a perf map below root. A link in its place is not followed:
// anybody may write to /tmp. One that was not written to since a time (0: any) is
// that of an earlier process.
func openMap(root *os.Root, path string, since int64) (symbol.File, int64, error) {
	info, err := root.Lstat("." + path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: %v", ErrNotRegular, info.Mode())
	}
	if err != nil {
		return nil, 0, fmt.Errorf("open %s: %w", path, err)
	}
	if err := writtenSince(info, since); err != nil {
		return nil, 0, fmt.Errorf("open %s: %w", path, err)
	}
	f, opened, err := openRegular(root, "."+path)
	if err == nil && !os.SameFile(info, opened) {
		f.Close()
		err = fmt.Errorf("%w: it was replaced", symbol.ErrMismatch)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("open %s: %w", path, err)
	}
	return f, opened.Size(), nil
}

// tick is how much earlier than true the time of a change may be.
const tick = 10_000_000

func writtenSince(info fs.FileInfo, since int64) error {
	if info.ModTime().UnixNano()+tick < since {
		return fmt.Errorf("%w: it was written before the process had code to name", symbol.ErrMismatch)
	}
	return nil
}

// OpenPerfMap opens the perf map of a process that still runs, below its root and by
// its number in its pid namespace. As another process may have the number by
// now, it must be in the mount namespace of ref, if that is known.
func (p *Processes) OpenPerfMap(ref symbol.Ref) (symbol.File, int64, error) {
	root, err := p.root(ref.PID)
	if err != nil {
		return nil, 0, err
	}
	defer root.Close()
	if err := p.checkMountNS(ref); err != nil {
		return nil, 0, fmt.Errorf("open perf map: %w", err)
	}
	dir := filepath.Join(p.proc(), strconv.Itoa(int(ref.PID)))
	return openMap(root, mapPath(innerPID(dir, ref.PID)), ref.Unchanged)
}

// innerPID is the number of a process in its own pid namespace, the last one of
// NSpid in /proc/PID/status; the number on the host if that is not told.
func innerPID(dir string, pid int32) int32 {
	f, err := os.Open(filepath.Join(dir, "status"))
	if err != nil {
		return pid
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		list, ok := strings.CutPrefix(s.Text(), "NSpid:")
		if !ok {
			continue
		}
		numbers := strings.Fields(list)
		if len(numbers) == 0 {
			break
		}
		if n, err := strconv.ParseInt(numbers[len(numbers)-1], 10, 32); err == nil {
			return int32(n)
		}
	}
	return pid
}

// OpenPerfMap opens what was kept of generated code under the id of ref.
func (s *Store) OpenPerfMap(ref symbol.Ref) (symbol.File, int64, error) {
	return opened(s.LookupJIT(ref.BuildID))
}
