// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// ErrNoTracefs: tracefs is not mounted and could not be.
var ErrNoTracefs = errors.New("tracefs is not there")

// Tracefs is the kernel's description of its tracepoints.
type Tracefs struct {
	FS fs.FS
	// Path is where it is mounted, "" for a private mount.
	Path string
	// mount is a detached mount that only this process reaches, or nil.
	mount *sys.FD
}

// OpenTracefs finds tracefs. If it is mounted nowhere, it is mounted without
// options, read only and detached: visible to no one else, and gone with
// Close or with the process. The error is ErrNoTracefs or a permission, with
// a hint.
func OpenTracefs() (*Tracefs, error) {
	for _, p := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		if typ, err := sys.FSTypeOf(p); err == nil && typ == sys.TraceFS {
			return mountedTracefs(p)
		}
	}
	return privateTracefs()
}

// privateTracefs mounts tracefs for this process only.
func privateTracefs() (*Tracefs, error) {
	mount, err := sys.DetachedMount("tracefs")
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("%w: %w", ErrNoTracefs, err),
			"run as root, or have root mount it: mount -t tracefs tracefs /sys/kernel/tracing")
	}
	return &Tracefs{FS: os.DirFS(mount.Path()), mount: mount}, nil
}

func mountedTracefs(p string) (*Tracefs, error) {
	t := &Tracefs{FS: os.DirFS(p), Path: p}
	if _, err := fs.Stat(t.FS, "events"); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			err = hint.Wrap(err, "run as root: "+p+" is closed to others; see 'gantry doctor tracepoints'")
		}
		return nil, fmt.Errorf("read tracefs: %w", err)
	}
	return t, nil
}

// Close releases a private mount. Closing nil or twice does nothing.
func (t *Tracefs) Close() error {
	if t == nil {
		return nil
	}
	return t.mount.Close()
}

// Systems lists the systems that have tracepoints.
func (t *Tracefs) Systems() ([]string, error) { return t.dirs("events") }

// Names lists the tracepoints of a system.
func (t *Tracefs) Names(system string) ([]string, error) {
	return t.dirs(path.Join("events", system))
}

func (t *Tracefs) dirs(dir string) ([]string, error) {
	if !fs.ValidPath(dir) {
		return nil, fmt.Errorf("tracefs %q: %w", dir, fs.ErrNotExist)
	}
	list, err := fs.ReadDir(t.FS, dir)
	if err != nil {
		return nil, fmt.Errorf("read tracefs: %w", err)
	}
	var names []string
	for _, e := range list {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// internalSystem holds the formats of ftrace's own records; they are no
// tracepoints that could be opened.
const internalSystem = "ftrace"

// Find returns the tracepoints that match; both system and name may be globs
// (*, ?, [...]). None is no error.
func (t *Tracefs) Find(system, name string) ([]*Tracepoint, error) {
	systems, err := t.expand("events", system)
	if err != nil {
		return nil, err
	}
	var found []*Tracepoint
	for _, sys := range systems {
		if sys == internalSystem && isGlob(system) {
			continue
		}
		names, err := t.expand(path.Join("events", sys), name)
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			tp, err := t.lookup(sys, n)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			found = append(found, tp)
		}
	}
	return found, nil
}

func isGlob(s string) bool { return strings.ContainsAny(s, "*?[") }

// expand lists the directories in dir that pattern stands for.
func (t *Tracefs) expand(dir, pattern string) ([]string, error) {
	if !isGlob(pattern) {
		return []string{pattern}, nil
	}
	all, err := t.dirs(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, n := range all {
		ok, err := path.Match(pattern, n)
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", pattern, err)
		}
		if ok {
			names = append(names, n)
		}
	}
	return names, nil
}

// lookup reads a tracepoint's id.
func (t *Tracefs) lookup(system, name string) (*Tracepoint, error) {
	file := path.Join("events", system, name, "id")
	if !fs.ValidPath(file) || strings.Contains(system+name, "/") {
		return nil, fmt.Errorf("tracepoint %s:%s: %w", system, name, fs.ErrNotExist)
	}
	text, err := readText(t.FS, file, maxSysfsFile)
	if err != nil {
		return nil, fmt.Errorf("tracepoint %s:%s: %w", system, name, err)
	}
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("tracepoint %s:%s: id: %w", system, name, err)
	}
	return &Tracepoint{System: system, Name: name, ID: id}, nil
}
