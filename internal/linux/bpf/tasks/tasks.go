// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tasks

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/gantry-tools/gantry/internal/linux/bpf"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Programs are the loaded iterators, for one goroutine. Close releases them.
type Programs struct {
	programs programPrograms
	maps     programMaps
	parser   *parser
	buf      []byte
}

// bufferSize is what one read of an iterator gives at most (bpf_seq_read).
const bufferSize = 32 << 10

// Load loads the iterators; the errors are those of bpf.Load.
func Load() (*Programs, error) {
	spec, err := loadProgram()
	if err != nil {
		return nil, fmt.Errorf("read BPF object: %w", err)
	}
	var objects programObjects
	if err := bpf.Load(spec, &objects); err != nil {
		return nil, err
	}
	return &Programs{
		programs: objects.programPrograms, maps: objects.programMaps,
		parser: newParser(), buf: make([]byte, 2*bufferSize),
	}, nil
}

// Close releases the iterators.
func (p *Programs) Close() error {
	return errors.Join(p.programs.Close(), p.maps.Close())
}

// Tasks calls fn for all tasks of this process's pid namespace. The Task is reused.
// Between two reads of the iterator it calls pause: the tasks that follow were read
// later. Errors of both end it and are returned as they are.
func (p *Programs) Tasks(fn func(*Task) error, pause func() error) error {
	p.parser.task = fn
	return p.run(p.programs.Tasks, pause)
}

// Mappings is Tasks for executable mappings, those of a process in a row. After
// an error it cannot be called again.
func (p *Programs) Mappings(fn func(*Mapping) error, pause func() error) error {
	p.parser.mapping = fn
	return p.run(p.programs.Mappings, pause)
}

func (p *Programs) run(program *ebpf.Program, pause func() error) error {
	it, err := link.AttachIter(link.IterOptions{Program: program})
	if err != nil {
		return fmt.Errorf("attach BPF iterator: %w", err)
	}
	defer it.Close()
	r, err := it.Open()
	if err != nil {
		return fmt.Errorf("open BPF iterator: %w", err)
	}
	defer r.Close()
	read := r.Read
	if f, ok := r.(*os.File); ok {
		read = func(b []byte) (int, error) { return sys.ReadBusy(f, b) }
	}
	left := 0
	for {
		n, err := read(p.buf[left:])
		switch {
		// it went through many objects without a record
		case errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, io.EOF) && left == 0:
			return nil
		case errors.Is(err, io.EOF):
			return fmt.Errorf("read BPF iterator: %d bytes at the end: %w", left, ErrRecord)
		case err != nil:
			return fmt.Errorf("read BPF iterator: %w", err)
		}
		b := p.buf[:left+n]
		done, err := p.parser.parse(b)
		if err != nil {
			return err
		}
		left = copy(p.buf, b[done:])
		if err := pause(); err != nil {
			return err
		}
	}
}
