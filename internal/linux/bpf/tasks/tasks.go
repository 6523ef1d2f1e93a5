// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tasks

import (
	"fmt"
	"io"

	"github.com/cilium/ebpf/link"

	"github.com/gantry-tools/gantry/internal/linux/bpf"
)

// Programs are the loaded iterators. Close releases them.
type Programs struct {
	programs programPrograms
}

// Load loads the iterators; the errors are those of bpf.Load.
func Load() (*Programs, error) {
	spec, err := loadProgram()
	if err != nil {
		return nil, fmt.Errorf("read BPF object: %w", err)
	}
	p := new(Programs)
	if err := bpf.Load(spec, &p.programs); err != nil {
		return nil, err
	}
	return p, nil
}

// Close releases the iterators.
func (p *Programs) Close() error { return p.programs.Close() }

// Tasks runs the iterator over all tasks; what is read are task records. The
// caller closes it.
func (p *Programs) Tasks() (io.ReadCloser, error) {
	it, err := link.AttachIter(link.IterOptions{Program: p.programs.Tasks})
	if err != nil {
		return nil, fmt.Errorf("attach BPF iterator: %w", err)
	}
	defer it.Close()
	r, err := it.Open()
	if err != nil {
		return nil, fmt.Errorf("open BPF iterator: %w", err)
	}
	return r, nil
}
