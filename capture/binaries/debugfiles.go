// SPDX-License-Identifier: Apache-2.0

//go:build linux

package binaries

import (
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/elffile"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
)

// debugRoot is where packages install separate symbols.
const debugRoot = "/usr/lib/debug"

// collectDebug keeps the separate symbols of a stripped binary that the container
// has on its root file system, by build-id or by the name in the binary. That
// there are none is the rule.
func (k *Collector) collectDebug(op *procroot.Op, f *outcome, proc procfs.Proc, binary *os.File, name string) {
	info, err := binary.Stat()
	if err != nil || f.id.Len() < 2 {
		return
	}
	for _, at := range debugPaths(binary, info.Size(), f.id, name) {
		file, err := procroot.OpenOnRootMount(proc, at)
		if err == nil {
			err = k.addDebug(op, f, file, at)
			file.Close()
		}
		switch {
		case err == nil:
			f.debug = true
			return
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EXDEV):
		default:
			f.debugErr = err
		}
	}
}

// addDebug copies symbols, which count for the limits as binaries do.
func (k *Collector) addDebug(op *procroot.Op, f *outcome, file *os.File, at string) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	switch {
	case info.Size() > k.max:
		return errTooLarge
	case info.Size() > k.left.Load():
		return errTooMuch
	}
	op.Extend(copyTime(info.Size()))
	if err := k.store.AddContainerDebug(f.content, &io.LimitedReader{R: file, N: info.Size()},
		buildid.Source{Path: at, Want: f.id}); err != nil {
		return err
	}
	k.left.Add(-info.Size())
	return nil
}

// debugPaths is where the separate symbols of a binary may be, as gdb looks for
// them; nowhere if it has its own.
func debugPaths(r io.ReaderAt, size int64, id buildid.ID, name string) []string {
	f, err := elffile.Open(r, size)
	if err != nil || f.SectionByType(elf.SHT_SYMTAB) != nil {
		return nil
	}
	text := id.String()
	list := []string{path.Join(debugRoot, ".build-id", text[:2], text[2:]+".debug")}
	link, _ := elffile.DebugLink(f)
	if link == "" || !path.IsAbs(name) {
		return list
	}
	dir := path.Dir(path.Clean(name))
	return append(list, path.Join(dir, link), path.Join(dir, ".debug", link), path.Join(debugRoot, dir, link))
}
