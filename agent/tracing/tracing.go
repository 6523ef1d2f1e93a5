// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package tracing makes tracing directories that have some tracepoints only: what perf
// reads of one to open them, and nothing that could be changed.
//
// Start with Find, which looks tracepoints up in the machine's tracing directory; then
// Write or Mount makes a directory of them.
package tracing

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Dir is where a program in a container sees the directory, and Env the variable that
// tells perf.
const (
	Dir = "/sys/kernel/tracing"
	Env = "TRACEFS_PATH"
)

// Set is some tracepoints. A nil Set has none.
type Set struct {
	list  []*perfevent.Tracepoint
	names map[uint64]string
}

// Find is the tracepoints that the patterns mean, such as "syscalls:sys_enter_*". One
// that means none is an error, fs.ErrNotExist.
func Find(patterns []string) (*Set, error) {
	if len(patterns) == 0 {
		return nil, nil
	}
	from, err := perfevent.OpenTracefs()
	if err != nil {
		return nil, err
	}
	defer from.Close()
	s := &Set{names: make(map[uint64]string)}
	for _, p := range patterns {
		system, name, ok := strings.Cut(p, ":")
		if !ok || system == "" || name == "" {
			return nil, fmt.Errorf("tracepoint %q is not SYSTEM:NAME", p)
		}
		found, err := from.Find(system, name)
		if err != nil {
			return nil, fmt.Errorf("tracepoint %q: %w", p, err)
		}
		if len(found) == 0 {
			return nil, hint.Wrap(fmt.Errorf("tracepoint %q: %w", p, fs.ErrNotExist),
				"'perf list tracepoint' on the host has all")
		}
		s.list = append(s.list, found...)
	}
	for _, tp := range s.list {
		s.names[tp.ID] = tp.System + ":" + tp.Name
	}
	return s, nil
}

// Name is the name of one of the tracepoints by its id, SYSTEM:NAME, or "".
func (s *Set) Name(id uint64) string {
	if s == nil {
		return ""
	}
	return s.names[id]
}

// Mount makes the directory in a mount that is attached nowhere yet, and cannot be
// written to. The caller closes it.
func (s *Set) Mount() (*sys.FD, error) {
	mount, err := sys.DetachedMemory()
	if err != nil {
		return nil, err
	}
	if err = s.Write(mount.Path()); err == nil {
		err = sys.SealMount(mount)
	}
	if err != nil {
		return nil, errors.Join(err, mount.Close())
	}
	return mount, nil
}

// Write copies what perf reads into a directory.
func (s *Set) Write(dir string) error {
	from, err := perfevent.OpenTracefs()
	if err != nil {
		return err
	}
	defer from.Close()
	files := []string{"events/header_page", "events/header_event"}
	own, err := fs.Glob(from.FS, "events/ftrace/*/format")
	if err != nil {
		return err
	}
	files = append(files, own...)
	if slices.ContainsFunc(s.list, func(tp *perfevent.Tracepoint) bool { return tp.System == "raw_syscalls" }) {
		// perf trace has the names of system calls and of their arguments from
		// there. They are described, and not allowed by it.
		calls, err := fs.Glob(from.FS, "events/syscalls/*/format")
		if err != nil {
			return err
		}
		files = append(files, calls...)
	}
	for _, tp := range s.list {
		for _, f := range []string{"id", "format"} {
			files = append(files, path.Join("events", tp.System, tp.Name, f))
		}
	}
	for _, name := range files {
		text, err := fs.ReadFile(from.FS, name)
		if err != nil {
			return fmt.Errorf("copy tracing directory: %w", err)
		}
		if err := writeIn(dir, name, text); err != nil {
			return err
		}
	}
	// perf.data needs them to be there. What they have is the kernel's own.
	for _, name := range []string{"printk_formats", "saved_cmdlines"} {
		if err := writeIn(dir, name, nil); err != nil {
			return err
		}
	}
	return nil
}

func writeIn(dir, name string, text []byte) error {
	file := path.Join(dir, name)
	if err := os.MkdirAll(path.Dir(file), 0o755); err != nil {
		return fmt.Errorf("copy tracing directory: %w", err)
	}
	if err := os.WriteFile(file, text, 0o444); err != nil {
		return fmt.Errorf("copy tracing directory: %w", err)
	}
	return nil
}
