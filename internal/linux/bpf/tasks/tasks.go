// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tasks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

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
	return p.run(p.programs.Tasks, pause, busy)
}

// Mappings is Tasks for executable mappings, those of a process in a row and the
// processes in the order of their ids. After an error it cannot be called again.
//
// The error is ErrHeldUp if a process holds its mappings locked for longer than
// patience: the kernel waits for it, and with it whoever reads the iterator.
// What follows the last mapping that fn got is not known then. The end of ctx
// ends the wait, too.
func (p *Programs) Mappings(ctx context.Context, patience time.Duration, fn func(*Mapping) error,
	pause func() error) error {
	p.parser.mapping = fn
	return p.run(p.programs.Mappings, pause, func(r io.ReadCloser) io.ReadCloser {
		return newWorker(ctx, r, patience)
	})
}

// ErrHeldUp is a process that holds its mappings locked.
var ErrHeldUp = errors.New("a process holds its mappings locked")

// worker reads an iterator in a goroutine of its own, which is left behind if a
// read does not come back. It waits so that a signal to kill ends it.
type worker struct {
	ctx      context.Context
	patience time.Duration
	buf      []byte // the goroutine's between a request and its result
	requests chan []byte
	results  chan result
}

type result struct {
	n   int
	err error
}

func newWorker(ctx context.Context, r io.ReadCloser, patience time.Duration) *worker {
	w := &worker{ctx: ctx, patience: patience, buf: make([]byte, bufferSize), requests: make(chan []byte),
		results: make(chan result, 1)}
	go func() {
		defer r.Close()
		for b := range w.requests {
			n, err := r.Read(b)
			w.results <- result{n, err}
		}
	}()
	return w
}

// Close has the goroutine end, as soon as it returns from the kernel.
func (w *worker) Close() error {
	close(w.requests)
	return nil
}

// Read reads into memory of its own first: a read that comes back late writes to
// what nobody looks at.
func (w *worker) Read(b []byte) (int, error) {
	w.requests <- w.buf[:min(len(b), len(w.buf))]
	timer := time.NewTimer(w.patience)
	defer timer.Stop()
	select {
	case r := <-w.results:
		return copy(b, w.buf[:max(r.n, 0)]), r.err
	case <-w.ctx.Done():
		return 0, w.ctx.Err()
	case <-timer.C:
		return 0, ErrHeldUp
	}
}

// busyReader reads what is ready at once.
type busyReader struct{ *os.File }

func (f busyReader) Read(b []byte) (int, error) { return sys.ReadBusy(f.File, b) }

func busy(r io.ReadCloser) io.ReadCloser {
	if f, ok := r.(*os.File); ok {
		return busyReader{f}
	}
	return r
}

func (p *Programs) run(program *ebpf.Program, pause func() error, wrap func(io.ReadCloser) io.ReadCloser) error {
	it, err := link.AttachIter(link.IterOptions{Program: program})
	if err != nil {
		return fmt.Errorf("attach BPF iterator: %w", err)
	}
	defer it.Close()
	file, err := it.Open()
	if err != nil {
		return fmt.Errorf("open BPF iterator: %w", err)
	}
	r := wrap(file)
	defer r.Close()
	left := 0
	for {
		n, err := r.Read(p.buf[left:])
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
