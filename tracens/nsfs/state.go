// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nsfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"

	"github.com/gantry-tools/gantry/tracens"
)

// What is kept of namespaces, so that the next server has them again: a directory for each,
// with its options, which is there as long as the namespace is.
const (
	stateOptions = "options"
	stateMode    = 0o600
)

// stateOf is the file that says that a namespace is there.
func (f *FS) stateOf(ns *tracens.Namespace) string {
	return filepath.Join(f.state, ns.Name, stateOptions)
}

// keep writes what a namespace is set to.
func (f *FS) keep(ns *tracens.Namespace) {
	if f.state == "" {
		return
	}
	text, err := f.registry.Show(ns)
	if err == nil {
		var b strings.Builder
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "#") {
				b.WriteString(line)
			}
		}
		err = replaceFile(f.stateOf(ns), b.String())
	}
	if err != nil {
		f.log.Printf("namespace %s will not be there after a restart: %v", ns.Name, err)
	}
}

// replaceFile writes a file, whole or not at all.
func replaceFile(name, text string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	next := name + ".new"
	if err := os.WriteFile(next, []byte(text), stateMode); err != nil {
		return err
	}
	return os.Rename(next, name)
}

// forget removes what is kept of a namespace, but traces.
func (f *FS) forget(ns string) {
	if f.state == "" {
		return
	}
	err := os.Remove(filepath.Join(f.state, ns, stateOptions))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.log.Printf("namespace %s will be there again after a restart: %v", ns, err)
	}
	for _, dir := range []string{filepath.Join(f.state, ns), f.state} {
		if os.Remove(dir) != nil {
			return // there is more in it
		}
	}
}

// restore makes the namespaces that the server before had.
func (f *FS) restore(ctx context.Context, t *top) error {
	if f.state == "" {
		return nil
	}
	list, err := os.ReadDir(f.state)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range list {
		text, err := os.ReadFile(filepath.Join(f.state, entry.Name(), stateOptions))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err == nil {
			err = f.restoreOne(ctx, t, entry.Name(), string(text))
		}
		if err != nil {
			f.log.Printf("namespace %s of the server before: %v", entry.Name(), err)
		}
	}
	return nil
}

// restoreOne makes one namespace. Options that cannot be set any more are told.
func (f *FS) restoreOne(ctx context.Context, t *top, name, options string) error {
	ns, err := f.registry.Create(name)
	if err != nil {
		return err
	}
	s := &space{of: of{f, ns}}
	node := t.NewPersistentInode(ctx, s, fs.StableAttr{Mode: syscall.S_IFDIR})
	s.fill(ctx, node)
	t.AddChild(name, node, true)
	t.serve(ns)
	var failed []error
	for line := range strings.Lines(options) {
		if err := f.registry.Configure(ns, line); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", strings.TrimSpace(line), err))
		}
	}
	return errors.Join(append(failed, f.rings.of(ns).restoreRings())...)
}
