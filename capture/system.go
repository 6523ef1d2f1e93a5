// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
)

// keepKernel keeps the kernel's symbols, so that they have names on another
// machine and after an update. A copy of this boot is not made again.
func (k *keeper) keepKernel() (buildid.ID, error) {
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
	now, err := parseKernelText(live, 1)
	if err != nil || now.start == 0 || k.hasKernel(id, now) {
		return id, err
	}
	if _, err := live.Seek(0, 0); err != nil {
		return id, err
	}
	return id, k.store.AddKallsyms(live, id)
}

// hasKernel: the store has the kernel's symbols, where it is now.
func (k *keeper) hasKernel(id buildid.ID, now textRange) bool {
	f, err := k.store.Kallsyms(id)
	if err != nil {
		return false
	}
	defer f.Close()
	old, err := parseKernelText(f, 1)
	return err == nil && old.start == now.start
}

// maxVDSO bounds the vdso, which has a few pages.
const maxVDSO = 1 << 20

// keepVDSO keeps the piece of kernel that every process has mapped.
func (k *keeper) keepVDSO() (buildid.ID, error) {
	image, err := k.readVDSO()
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

// readVDSO copies the vdso out of this process. It is nil if there is none.
func (k *keeper) readVDSO() ([]byte, error) {
	var vdso procfs.Mapping
	err := k.fs.Self().Maps(procfs.NewMapsScanner(), func(m *procfs.Mapping) error {
		if m.Path == "[vdso]" {
			vdso = *m
		}
		return nil
	})
	if err != nil || vdso.End == vdso.Start || vdso.End-vdso.Start > maxVDSO {
		return nil, err
	}
	mem, err := os.Open(k.fs.Self().Path("mem"))
	if err != nil {
		return nil, err
	}
	defer mem.Close()
	image := make([]byte, vdso.End-vdso.Start)
	if _, err := mem.ReadAt(image, int64(vdso.Start)); err != nil {
		return nil, fmt.Errorf("read vdso: %w", err)
	}
	return image, nil
}

// close releases what there is, after wait. Closing twice does nothing.
func (k *keeper) close() {
	if k == nil || k.closed {
		return
	}
	k.closed = true
	k.ids.Close()
	k.code.ids.Close()
	if k.store != nil {
		k.store.Close()
	}
}
