// SPDX-License-Identifier: Apache-2.0

//go:build linux

package binaries

import (
	"bytes"
	"errors"
	"io/fs"
	"os"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
)

// AddKernel keeps the kernel's symbols, so that they have names on another
// machine and after an update. A copy of this boot is not made again.
func (k *Collector) AddKernel() (buildid.ID, error) {
	notes, err := os.ReadFile(k.fs.Path("sys/kernel/notes"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return buildid.ID{}, nil
	}
	if err != nil {
		return buildid.ID{}, err
	}
	id, err := buildid.FromKernelNotes(notes)
	if err != nil || k.store == nil {
		return id, err
	}
	name := k.fs.Path("proc/kallsyms")
	live, err := os.Open(name)
	if err != nil {
		return id, err
	}
	defer live.Close()
	now, err := procfs.ParseKernelText(live, 1)
	if err != nil || now.Start == 0 || k.hasKernel(id, now) {
		return id, err
	}
	if _, err := live.Seek(0, 0); err != nil {
		return id, err
	}
	return id, k.store.AddKallsyms(live, id)
}

// hasKernel: the store has the kernel's symbols, where it is now.
func (k *Collector) hasKernel(id buildid.ID, now procfs.KernelText) bool {
	f, err := k.store.Kallsyms(id)
	if err != nil {
		return false
	}
	defer f.Close()
	old, err := procfs.ParseKernelText(f, 1)
	return err == nil && old.Start == now.Start
}

// AddVDSO keeps the piece of kernel that every process has mapped.
func (k *Collector) AddVDSO() (buildid.ID, error) {
	image, err := k.fs.Self().VDSO()
	if err != nil || image == nil {
		return buildid.ID{}, err
	}
	id, err := buildid.FromFile(bytes.NewReader(image), int64(len(image)))
	if err != nil || k.store == nil {
		return id, err
	}
	_, err = k.store.Add(bytes.NewReader(image), buildid.Source{Path: "[vdso]", Want: id})
	return id, err
}

// Close releases what there is, after wait. Closing twice does nothing.
func (k *Collector) Close() {
	if k == nil || k.closed {
		return
	}
	k.closed = true
	k.ids.Close()
	if k.store != nil {
		k.store.Close()
	}
}
