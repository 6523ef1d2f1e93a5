// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Choice is the best Source that is open to this process. Its Stats say which
// better ones are not.
type Choice struct {
	Source
	Refused []Refusal
	// Hint is what would open the best one, "" if that is not known.
	Hint string
}

// Choose finds the best Source, which the caller closes: BPF, or else Proc with
// CLOCK_MONOTONIC. It never fails: everybody may read /proc, as far as it
// goes. Call it before an event is opened, for loading takes its time.
func Choose(fsys procfs.FS) *Choice {
	c := new(Choice)
	bpf, err := NewBPF(fsys)
	if err == nil {
		c.Source = bpf
		return c
	}
	c.refuse(ByBPF, err)
	c.Hint = hint.Of(err)
	c.useProc(fsys)
	return c
}

// ChooseProc is Choose without BPF. It is for a few processes whose sideband
// is complete, where loading programs would cost more than reading.
func ChooseProc(fsys procfs.FS) *Choice {
	c := new(Choice)
	c.useProc(fsys)
	return c
}

func (c *Choice) useProc(fsys procfs.FS) {
	proc := &Proc{FS: fsys, Clock: sys.ClockMonotonic, Access: new(procroot.Access)}
	if err := queryWorks(fsys); err != nil {
		c.refuse(ByQuery, err)
		proc.TextMaps = true
	}
	c.Source = proc
}

func (c *Choice) refuse(m Method, err error) {
	c.Refused = append(c.Refused, Refusal{Method: m, Why: err.Error()})
}

// Take implements Source.
func (c *Choice) Take(ctx context.Context, scope Scope, sink Sink) (Stats, error) {
	stats, err := c.Source.Take(ctx, scope, sink)
	stats.Refused = c.Refused
	return stats, err
}

// queryWorks tries PROCMAP_QUERY on this process.
func queryWorks(fsys procfs.FS) error {
	q := sys.NewProcmap()
	defer q.Close()
	fd, err := sys.Open(fsys.Self().Path("maps"), os.O_RDONLY)
	if err != nil {
		return err
	}
	defer fd.Close()
	var v sys.VMA
	err = q.Query(fd, 0, sys.ProcmapOrNext, false, &v)
	if errors.Is(err, syscall.ENOTTY) {
		return hint.Wrap(err, "Linux 6.11 has it")
	}
	return err
}
