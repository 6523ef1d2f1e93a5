// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bpfprog

import (
	"errors"
	"fmt"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/bpf/loads"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

const (
	// latePause is how often to look for what is late, lateLimit how long: the
	// record of a load can be read before the program on the other CPU has copied it all.
	latePause, lateLimit = 2 * time.Millisecond, 100 * time.Millisecond
	// maxCopies bounds the copies of programs whose record was lost.
	maxCopies = 1024
)

// A copier has programs copied in the kernel as they are loaded. A nil one copies
// nothing.
type copier struct {
	programs *loads.Programs
	got      map[uint32]*loads.Program
	full     *sys.FD // readable when much was copied
	failed   error
}

func newCopier() (*copier, error) {
	p, err := loads.Load()
	if err != nil {
		return nil, err
	}
	full, err := p.Full()
	if err != nil {
		p.Close()
		return nil, err
	}
	return &copier{programs: p, got: make(map[uint32]*loads.Program), full: full}, nil
}

func (c *copier) start() error {
	now, err := sys.ClockBoottime.Now()
	if err != nil {
		return err
	}
	return c.programs.Start(now)
}

func (c *copier) close() error {
	if c == nil {
		return nil
	}
	return errors.Join(c.full.Close(), c.programs.Close())
}

// report notes what went wrong.
func (c *copier) report(b *ProgramTable) {
	if c == nil {
		return
	}
	if n, err := c.programs.Lost(); err == nil && n > 0 {
		b.Note(fmt.Sprintf("for %d pieces of copies there was no room", n))
	}
	if c.failed != nil {
		b.Note(c.failed.Error())
	}
}

// take is the copy of a program, once, or nil.
func (c *copier) take(id uint32) *copied {
	if c == nil {
		return nil
	}
	p := c.got[id]
	delete(c.got, id)
	if p == nil {
		return nil
	}
	return &copied{p}
}

// read reads what was copied since the last time.
func (c *copier) read() {
	if c == nil {
		return
	}
	if err := c.programs.Read(func(p *loads.Program) {
		if len(c.got) >= maxCopies {
			clear(c.got)
		}
		c.got[p.ID] = p
	}); err != nil {
		c.failed = err
	}
}

// copied is a program as it was copied.
type copied struct{ *loads.Program }

// setLoader fills in who loaded it. It is false if it was copied while another task
// of that CPU loaded one as well.
func (c *copied) setLoader(l *perfdata.BPFLoader) bool {
	if c.Loader.TID != l.TID {
		return false
	}
	*l = c.Loader
	return true
}

func (c *copied) details() *Details { return &Details{BPFProgram: c.BPFProgram, BTF: c.BTF} }

// lateLoad is a load of which neither route knows.
type lateLoad struct {
	id     uint32
	loader *perfdata.BPFLoader
	since  time.Time
	err    error
}

// settle looks for what is late. last: it does not wait any more.
func (w *Watcher) settle(last bool) {
	if len(w.late) == 0 {
		return
	}
	w.copier.read()
	rest := w.late[:0]
	for _, l := range w.late {
		if !w.settled(&l, last || time.Since(l.since) > lateLimit) {
			rest = append(rest, l)
		}
	}
	clear(w.late[len(rest):])
	w.late = rest
}

// settleOne settles a load before its unload is reported.
func (w *Watcher) settleOne(id uint32) {
	for i := range w.late {
		if w.late[i].id == id {
			w.settled(&w.late[i], true)
			w.late = append(w.late[:i], w.late[i+1:]...)
			return
		}
	}
}

func (w *Watcher) settled(l *lateLoad, last bool) bool {
	c := w.copier.take(l.id)
	switch {
	case c != nil:
		w.table.setDetails(c.details(), perfdata.BPFRouteKernel, w.bootOffset)
		loader := *l.loader
		if c.setLoader(&loader) {
			w.table.setLoader(l.id, &loader)
		}
	case last:
		w.table.setMissed(l.id, reason(l.err))
	default:
		return false
	}
	call(w.opts.Load, l.id)
	return true
}
