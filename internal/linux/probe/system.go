// SPDX-License-Identifier: Apache-2.0

//go:build linux

package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	bpffilter "github.com/gantry-tools/gantry/internal/linux/bpf/filter"
	"github.com/gantry-tools/gantry/internal/linux/bpf/loads"
	"github.com/gantry-tools/gantry/internal/linux/bpf/tasks"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// target is what a probing event watches.
type target struct {
	pid, cpu int
	cgroup   string // a directory, or ""
}

// system is the kernel as the checks see it, so that tests can play one.
type system interface {
	syscallReached() error
	syscallAllowed() error
	openEvent(a *perf.Attr, t target) error
	// mapRings maps n rings of pages data pages at once.
	mapRings(n, pages int) error
	capabilities() (sys.Capabilities, error)
	cpus() ([]int, error)
	memlock() (soft uint64, err error)
	// tracefs is tracefs and where it is mounted, "" if nowhere visible.
	// The caller calls close.
	tracefs() (tree fs.FS, where string, close func() error, err error)
	procmapQuery() error
	// loadIterators loads the BPF programs of the snapshot, and unloads them.
	loadIterators() error
	// loadFilter loads the BPF program that filters samples, sets it on an
	// event of this thread, and unloads it.
	loadFilter() error
	// loadCopier loads the BPF program that copies others, and attaches it.
	loadCopier() error
	// bpfPrograms opens some BPF program by its id.
	bpfPrograms() error
}

// errNotMounted: tracefs is mounted nowhere, and could not be.
var errNotMounted = errors.New("tracefs is not mounted")

// live is this machine.
type live struct{}

func (live) syscallReached() error { return sys.PerfSyscallReached() }
func (live) syscallAllowed() error { return sys.PerfSyscallAllowed() }

func (live) openEvent(a *perf.Attr, t target) error {
	fd, err := openFD(a, t)
	if err != nil {
		return err
	}
	return fd.Close()
}

func openFD(a *perf.Attr, t target) (*sys.FD, error) {
	raw := a.Append(nil, perf.LittleEndian)
	if t.cgroup == "" {
		return sys.PerfEventOpen(raw, t.pid, t.cpu, nil, 0)
	}
	dir, err := sys.Open(t.cgroup, os.O_RDONLY|sys.ODirectory)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return sys.PerfEventOpen(raw, dir.Int(), t.cpu, nil, sys.PerfPIDCgroup)
}

func (live) mapRings(n, pages int) error {
	for range n {
		fd, err := openFD(dummy(), target{cpu: -1})
		if err != nil {
			return err
		}
		defer fd.Close()
		ring, err := sys.Mmap(fd, (pages+1)*sys.PageSize(), true)
		if err != nil {
			return err
		}
		defer ring.Close()
	}
	return nil
}

func (live) capabilities() (sys.Capabilities, error) { return sys.EffectiveCapabilities() }
func (live) cpus() ([]int, error)                    { return sys.OnlineCPUs() }

func (live) memlock() (uint64, error) {
	soft, _, err := sys.MemlockLimit()
	return soft, err
}

// tracefs looks where the recorder looks: the two usual places, then a mount
// that only this process sees.
func (live) tracefs() (fs.FS, string, func() error, error) {
	for _, p := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		if typ, err := sys.FSTypeOf(p); err == nil && typ == sys.TraceFS {
			return os.DirFS(p), p, func() error { return nil }, nil
		}
	}
	mount, err := sys.DetachedMount("tracefs")
	if err != nil {
		return nil, "", nil, fmt.Errorf("%w: %w", errNotMounted, err)
	}
	return os.DirFS(mount.Path()), "", mount.Close, nil
}

func (live) loadIterators() error {
	progs, err := tasks.Load()
	if err != nil {
		return err
	}
	return progs.Close()
}

func (live) loadFilter() error {
	p, err := bpffilter.Load(new(bpffilter.Config))
	if err != nil {
		return err
	}
	defer p.Close()
	a := perf.Attr{Type: perf.TypeSoftware, Config: perf.SWTaskClock, SampleCount: 1 << 40, Flags: perf.AttrDisabled}
	ev, err := sys.PerfEventOpen(a.Append(nil, perf.LittleEndian), 0, -1, nil, 0)
	if err != nil {
		return err
	}
	defer ev.Close()
	return p.Attach(ev, false)
}

func (live) loadCopier() error {
	p, err := loads.Load()
	if err != nil {
		return err
	}
	defer p.Close()
	now, err := sys.ClockBoottime.Now()
	if err != nil {
		return err
	}
	return p.Start(now)
}

func (live) bpfPrograms() error {
	id, err := sys.BPFNextID(sys.BPFProg, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there is none
	}
	if err != nil {
		return err
	}
	fd, err := sys.BPFOpen(sys.BPFProg, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is gone
	}
	if err != nil {
		return err
	}
	return fd.Close()
}

func (live) procmapQuery() error {
	q := sys.NewProcmap()
	defer q.Close()
	fd, err := sys.Open("/proc/self/maps", os.O_RDONLY)
	if err != nil {
		return err
	}
	defer fd.Close()
	var v sys.VMA
	err = q.Query(fd, 0, sys.ProcmapOrNext, true, &v)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no mapping of our own: %w", err)
	}
	return err
}

// dummy is an event that counts nothing and that everyone may open.
func dummy() *perf.Attr {
	return &perf.Attr{
		Type: perf.TypeSoftware, Config: perf.SWDummy, Size: perf.AttrSizeVer0,
		Flags: perf.AttrDisabled | perf.AttrExcludeKernel | perf.AttrExcludeHV,
	}
}
