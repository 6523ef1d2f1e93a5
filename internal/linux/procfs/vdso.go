// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"fmt"
	"os"
)

// maxVDSO bounds the vdso, which has a few pages.
const maxVDSO = 1 << 20

// VDSO copies the vdso out of the memory of a process: an ELF image of some
// pages that the kernel maps into every process of its word size, all the same
// while the machine runs. It is nil if the process has none.
func (p Proc) VDSO() ([]byte, error) {
	var vdso Mapping
	err := p.Maps(NewMapsScanner(), func(m *Mapping) error {
		if m.Path == "[vdso]" {
			vdso = *m
		}
		return nil
	})
	if err != nil || vdso.End == vdso.Start || vdso.End-vdso.Start > maxVDSO {
		return nil, err
	}
	mem, err := os.Open(p.Path("mem"))
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
