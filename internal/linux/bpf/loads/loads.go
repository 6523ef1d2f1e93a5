// SPDX-License-Identifier: Apache-2.0

//go:build linux

package loads

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/bpf"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// ErrNoList says that the kernel's list of BPF symbols was not found.
var ErrNoList = errors.New("the list of BPF symbols was not found")

// Programs are the loaded programs, for one goroutine. Close releases them.
type Programs struct {
	objects programObjects
	link    link.Link
	reader  *ringbuf.Reader
	record  ringbuf.Record
	parser  parser
}

// Load loads the programs and finds what they need. The errors are those of
// bpf.Load, and ErrNoList.
func Load() (_ *Programs, err error) {
	spec, err := loadProgram()
	if err != nil {
		return nil, fmt.Errorf("read BPF object: %w", err)
	}
	p := new(Programs)
	if err := bpf.Load(spec, &p.objects); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	if err := p.find(); err != nil {
		return nil, err
	}
	if p.reader, err = ringbuf.NewReader(p.objects.Ring); err != nil {
		return nil, fmt.Errorf("open BPF ring: %w", err)
	}
	p.reader.SetDeadline(time.Unix(1, 0)) // nobody wakes it: it is only looked at
	return p, nil
}

// find has the kernel find its list of symbols.
func (p *Programs) find() error {
	info, err := p.objects.Find.Info()
	if err != nil {
		return fmt.Errorf("describe BPF program: %w", err)
	}
	id, ok := info.ID()
	if !ok {
		return fmt.Errorf("describe BPF program: no id: %w", ebpf.ErrNotSupported)
	}
	if err := p.objects.Anchor.Set(uint32(id)); err != nil {
		return fmt.Errorf("find BPF symbols: %w", err)
	}
	it, err := link.AttachIter(link.IterOptions{Program: p.objects.Find})
	if err != nil {
		return fmt.Errorf("attach BPF iterator: %w", err)
	}
	defer it.Close()
	r, err := it.Open()
	if err != nil {
		return fmt.Errorf("open BPF iterator: %w", err)
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("read BPF iterator: %w", err)
	}
	var head uint64
	if err := p.objects.Symbols.Get(&head); err != nil {
		return fmt.Errorf("find BPF symbols: %w", err)
	}
	if head == 0 {
		return hint.Wrap(fmt.Errorf("find BPF symbols: %w", ErrNoList),
			"sysctl net.core.bpf_jit_enable=1 has programs compiled")
	}
	return nil
}

// Start copies what is loaded from now on. since is the time, CLOCK_BOOTTIME.
func (p *Programs) Start(since time.Duration) error {
	if err := p.objects.Since.Set(uint64(since)); err != nil {
		return fmt.Errorf("copy BPF programs: %w", err)
	}
	var err error
	if p.link, err = link.AttachTracing(link.TracingOptions{Program: p.objects.Loaded}); err != nil {
		return fmt.Errorf("attach BPF program: %w", err)
	}
	return nil
}

// Read calls fn with what was loaded since the last time, and does not wait.
// fn may keep it. Programs are passed over with a record that makes no sense, or
// one of their code missing.
func (p *Programs) Read(fn func(*Program)) error {
	for {
		err := p.reader.ReadInto(&p.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read BPF ring: %w", err)
		}
		l, err := p.parser.parse(p.record.RawSample)
		if err == nil && l != nil {
			fn(l)
		}
	}
}

// Full returns a descriptor of the caller's that is readable when there is much to
// Read: a program that has just been copied makes it so.
func (p *Programs) Full() (*sys.FD, error) {
	ring, err := sys.NewFD(p.objects.Ring.FD())
	if err != nil {
		return nil, fmt.Errorf("open BPF ring: %w", err)
	}
	defer ring.Disown() // it is the map's
	return ring.Dup()
}

// Lost is how many records there was no room for.
func (p *Programs) Lost() (uint64, error) {
	var n uint64
	err := p.objects.Lost.Get(&n)
	return n, err
}

// Close releases everything. Closing twice does nothing.
func (p *Programs) Close() error {
	var errs []error
	if p.link != nil {
		errs = append(errs, p.link.Close())
		p.link = nil
	}
	if p.reader != nil {
		errs = append(errs, p.reader.Close())
		p.reader = nil
	}
	return errors.Join(append(errs, p.objects.Close())...)
}
