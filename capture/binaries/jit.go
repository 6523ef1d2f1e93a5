// SPDX-License-Identifier: Apache-2.0

//go:build linux

package binaries

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

const (
	// maxJITFile bounds one perf map or jitdump, and codeShare all of them: one
	// part in so many of what is there for
	maxJITFile = 128 << 20
	jitShare   = 4
	// maxJITProcesses bounds the processes that are remembered, and the results.
	maxJITProcesses = 1 << 14
	// maxOpen bounds the processes of which descriptors are held, and openShare
	// is how much of what this process may open they may take.
	maxOpen   = 512
	openShare = 8
	// maxJitdumps bounds the jitdump files of a process, as for their reader.
	maxJitdumps = 16
	// A perf map that is not there is looked for again after a round, then
	// after twice as many each time, up to lastPause. After one of settledPause its
	// directory is taken for settled: a process that changes its root does so early.
	maxRetryPause = 32
	settledPause  = 1
)

// jitProcess is a process that has executable memory of no file: it generates
// code. The compiler that does so may write the names of its functions to a perf
// map, or to a jitdump file that it maps for everybody to see.
type jitProcess struct {
	pid int32
	mnt uint64 // its mount namespace, 0: not known

	// Guarded by the collector's mutex.
	queued     bool
	ended      bool // its first thread has
	retrying   bool // it is in looking
	retryRound uint64
	retryPause uint64
	// exitPause is the pause while others go on after the first thread, or are on their
	// way out.
	exitPause uint64
	jitdumps  []*jitdump

	// Of the worker alone. The descriptors outlive the process: its root does
	// not.
	holds   bool
	nsPID   int      // its number in its own pid namespace, 0: not known yet
	start   uint64   // when it began, of /proc/PID/stat
	tmpDir  *sys.FD  // its /tmp
	perfMap *os.File // its perf map
	err     error    // why nobody could look for one; nil: somebody has looked
}

// jitdump is a jitdump file.
type jitdump struct {
	key  binaryKey
	at   mappedAt
	file *os.File
	err  error
}

// jitCollector keeps perf maps and jitdump files in the store, as they are when
// their process ends or the recording does.
type jitCollector struct {
	fs      procfs.FS
	store   *buildid.Store // nil: nothing is kept
	access  *procroot.Access
	files   procroot.Files
	hostMnt uint64
	left    atomic.Int64 // bytes
	maxOpen int

	mu        sync.Mutex
	wake      *sync.Cond
	all       map[int32]*jitProcess
	retries   []*jitProcess // for a perf map that was not there
	waiting   []*jitProcess
	round     uint64
	stop      bool
	closed    bool // up: what comes now comes too late
	open      int  // generators that hold descriptors
	done      chan struct{}
	collected []jitFile
	missing   map[string]int
	owners    map[mapFile]owner // of perf maps
}

func newJITCollector(fsys procfs.FS, a *procroot.Access, store *buildid.Store, hostMnt uint64,
	max int64) *jitCollector {
	c := &jitCollector{
		fs: fsys, store: store, access: a, hostMnt: hostMnt, maxOpen: maxOpen,
		all: make(map[int32]*jitProcess), missing: make(map[string]int), done: make(chan struct{}),
	}
	c.left.Store(max / jitShare)
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		c.maxOpen = int(min(uint64(maxOpen), limit.Cur/openShare))
	}
	c.wake = sync.NewCond(&c.mu)
	return c
}

// anonMemory is what the collector calls memory of generated code.
const anonMemory = "//anon"

// isJitdump reports whether a mapping is that by which a process tells where its
// jitdump file is.
func isJitdump(key *binaryKey) bool {
	base := path.Base(key.Path)
	return key.id == "" && strings.HasPrefix(base, "jit-") && strings.HasSuffix(base, ".dump")
}

// enqueue takes note of generated code: memory of no file, or a jitdump file. It
// never waits.
func (c *jitCollector) enqueue(key *binaryKey, at mappedAt) {
	if c.store == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.all[int32(at.pid)]
	switch {
	case g == nil && len(c.all) >= maxJITProcesses:
		c.countMissing(errTooManyFiles)
		return
	case g == nil:
		g = &jitProcess{pid: int32(at.pid), mnt: at.mnt}
		c.all[g.pid] = g
		c.push(g)
	}
	if perf.HoldsCode(key.Path) || slices.ContainsFunc(g.jitdumps, func(d *jitdump) bool { return d.key == *key }) {
		return
	}
	if len(g.jitdumps) == maxJitdumps {
		c.countMissing(errTooManyFiles)
		return
	}
	g.jitdumps = append(g.jitdumps, &jitdump{key: *key, at: at})
	c.push(g)
}

// push has the worker look at g; c.mu is held.
func (c *jitCollector) push(g *jitProcess) {
	if !g.queued {
		g.queued = true
		c.waiting = append(c.waiting, g)
		c.wake.Signal()
	}
}

func (c *jitCollector) countMissing(err error) { c.missing["generated code: "+reason(err)]++ }

// exited is called for every thread that ends. A process is over when none is left,
// the first one may end before others.
func (c *jitCollector) exited(pid, tid int32) {
	if c == nil || c.store == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.all[pid]; g != nil {
		g.ended = g.ended || pid == tid
		if g.ended {
			g.exitPause = 0
			c.push(g)
		}
	}
}

// nextRound looks again for the perf maps that were not there, and whether the
// processes have ended whose first thread has.
func (c *jitCollector) nextRound() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.round++
	c.retries = slices.DeleteFunc(c.retries, func(g *jitProcess) bool {
		if g.retryRound > c.round {
			return false
		}
		g.retrying = false
		c.push(g)
		return true
	})
}

// start works in the background until wait is called, then keeps what is left.
func (c *jitCollector) start() { go c.run() }

func (c *jitCollector) run() {
	defer close(c.done)
	for {
		g, over := c.next()
		if g == nil {
			return
		}
		err := c.access.DoWithin(c.fs.Proc(int(g.pid)), copyTimeout, func(op *procroot.Op) {
			if over || c.over(g) {
				c.finish(op, g)
			} else {
				c.inspect(op, g)
			}
		})
		if err != nil {
			c.abandon(g, errors.Is(err, procroot.ErrNotStarted))
		}
	}
}

// next is what to look at next, and whether the recording is over.
func (c *jitCollector) next() (g *jitProcess, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for len(c.waiting) == 0 && !c.stop {
			c.wake.Wait()
		}
		if c.closed || len(c.waiting) == 0 {
			break
		}
		g = c.waiting[0]
		c.waiting = c.waiting[1:]
		if g.queued = false; c.all[g.pid] == g {
			return g, c.stop
		}
	}
	for _, g := range c.all {
		if !c.closed {
			return g, true
		}
	}
	return nil, true
}

// abandon keeps nothing of a process whose file system does not answer. The
// operation that waits for it releases what it has opened, if it was begun.
func (c *jitCollector) abandon(g *jitProcess, notStarted bool) {
	c.mu.Lock()
	if c.all[g.pid] == g {
		delete(c.all, g.pid)
	}
	c.countMissing(procroot.ErrTimeout)
	dumps := g.jitdumps
	c.mu.Unlock()
	if !notStarted {
		return
	}
	for _, d := range dumps {
		d.file.Close() // nil too
	}
	c.release(g)
}

// over reports whether a process whose first thread has ended has no other that goes
// on. One that executes a program does so with the number of the first
// (de_thread in fs/exec.c), as if that had not ended.
func (c *jitCollector) over(g *jitProcess) bool {
	c.mu.Lock()
	ended := g.ended
	g.ended = false // unless it ends again while this looks
	c.mu.Unlock()
	if !ended {
		return false
	}
	st, err := c.fs.Proc(int(g.pid)).Stat()
	if err != nil || g.nsPID != 0 && st.StartTime != g.start {
		return true
	}
	if !st.Exiting() {
		return false
	}
	if st.NumThreads <= 1 {
		return true
	}
	c.mu.Lock()
	g.ended = true // others go on, or have not ended yet
	c.mu.Unlock()
	return false
}

// end has the rest be kept.
func (c *jitCollector) end() {
	c.mu.Lock()
	c.stop = true
	c.wake.Signal()
	c.mu.Unlock()
}

// wait waits for what end has begun, but not for ever.
func (c *jitCollector) wait(deadline time.Time) {
	await(c.done, deadline)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for range c.all {
		c.countMissing(errUnfinished)
	}
}

// inspect opens what there is of a process while it runs. There is nothing to copy
// before its end.
func (c *jitCollector) inspect(op *procroot.Op, g *jitProcess) {
	if !c.hold(g) {
		g.err = errTooManyFiles
	} else if c.find(op, g); !op.Commit() {
		c.release(g)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case g.ended:
		g.exitPause = min(max(1, 2*g.exitPause), maxRetryPause)
		g.retryRound = c.round + g.exitPause
	case g.holds && g.perfMap == nil && !g.retrying:
		g.retryPause = min(max(1, 2*g.retryPause), maxRetryPause)
		g.retryRound = c.round + g.retryPause
	default:
		return
	}
	if !g.retrying {
		g.retrying = true
		c.retries = append(c.retries, g)
	}
}

// hold reports whether g may hold descriptors.
func (c *jitCollector) hold(g *jitProcess) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !g.holds && c.open < c.maxOpen {
		g.holds = true
		c.open++
	}
	return g.holds
}

// find opens the files of g that are not open yet.
func (c *jitCollector) find(op *procroot.Op, g *jitProcess) {
	proc := c.fs.Proc(int(g.pid))
	c.mu.Lock()
	dumps := slices.Clone(g.jitdumps)
	c.mu.Unlock()
	for _, d := range dumps {
		if d.file == nil && d.err == nil {
			d.file, d.err = c.openDump(op, proc, d)
		}
	}
	if g.perfMap != nil {
		return
	}
	if g.tmpDir != nil && g.retryPause > settledPause {
		g.open()
		return
	}
	dir, err := c.findDir(g, proc)
	if err != nil {
		if g.tmpDir == nil {
			g.err = cmp.Or(g.err, gone(err))
		}
		return
	}
	g.tmpDir.Close()
	g.tmpDir = dir
	g.open()
}

// open opens the perf map in the directory that was found, if it is there.
func (g *jitProcess) open() {
	g.err = nil
	if g.tmpDir == nil {
		return
	}
	f, err := procroot.OpenIn(g.tmpDir, g.name())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		g.err = err
	}
	g.perfMap = f
}

// findDir finds the /tmp of a process, nil if it has none. It must be the
// process that was there the first time.
func (c *jitCollector) findDir(g *jitProcess, proc procfs.Proc) (*sys.FD, error) {
	err := g.identify(proc)
	var dir *sys.FD
	if err == nil {
		dir, err = procroot.FindDir(proc, tmpName)
	}
	if err == nil {
		if err = g.identify(proc); err == nil {
			return dir, nil
		}
		dir.Close()
	}
	if c.onHost(g) {
		return procroot.FindDir(c.fs.Self(), tmpName)
	}
	return nil, err
}

// onHost: the files of g are those of this process's mount namespace.
func (c *jitCollector) onHost(g *jitProcess) bool { return g.mnt != 0 && g.mnt == c.hostMnt }

// tmpName is where perf maps are, below the root of their process.
const tmpName = "tmp"

// identify finds out which process it is, while it is there, or that it is
// still the same.
func (g *jitProcess) identify(proc procfs.Proc) error {
	st, err := proc.Stat()
	if err != nil {
		return err
	}
	if g.nsPID != 0 {
		if st.StartTime != g.start {
			return errGone
		}
		return nil
	}
	status, err := proc.Status()
	if err != nil {
		return err
	}
	g.nsPID, g.start = status.InnerPID(), st.StartTime
	return nil
}

// name is what the perf map is called. A process of the host that was never seen
// most likely has the number that it has here.
func (g *jitProcess) name() string { return fmt.Sprintf("perf-%d.map", cmp.Or(g.nsPID, int(g.pid))) }

func (c *jitCollector) openDump(op *procroot.Op, proc procfs.Proc, d *jitdump) (*os.File, error) {
	k := &d.key
	if c.files.OnFUSE(proc, k.Major, k.Minor, k.Path) {
		return nil, ErrOnFUSE
	}
	f, err := c.files.Root(proc, op).OpenMapped(d.at.start, d.at.end, k.Path)
	if err != nil {
		return nil, gone(err)
	}
	info, err := f.Stat()
	if err == nil && info.Sys().(*syscall.Stat_t).Ino != k.Inode {
		err = errReplaced
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// finish keeps what g has written, and forgets it.
func (c *jitCollector) finish(op *procroot.Op, g *jitProcess) {
	c.find(op, g) // of a process that is there, or was never looked at
	var kept []jitFile
	var errs []error
	add := func(file *os.File, k jitFile, err error) {
		if err == nil && file != nil {
			k.id, err = c.add(op, file, k.dump != nil)
		}
		if err != nil {
			errs = append(errs, err)
		} else if !k.id.IsZero() {
			kept = append(kept, k)
		}
	}
	if g.tmpDir != nil {
		// The one that has the name now may be another one.
		if f, err := procroot.OpenIn(g.tmpDir, g.name()); err == nil {
			if g.perfMap != nil {
				g.perfMap.Close()
			}
			g.perfMap, g.err = f, nil
		}
	}
	ambiguous := 0
	if g.perfMap != nil && g.err == nil {
		ambiguous, g.err = c.owns(g)
	}
	add(g.perfMap, jitFile{pid: g.pid, mnt: g.mnt}, g.err)
	c.mu.Lock()
	dumps := g.jitdumps
	c.mu.Unlock()
	for _, d := range dumps {
		add(d.file, jitFile{pid: g.pid, mnt: g.mnt, dump: &d.key}, d.err)
		if d.file != nil {
			d.file.Close()
		}
	}
	c.release(g)
	committed := op.Commit()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[g.pid] == g {
		delete(c.all, g.pid)
	}
	if c.closed || !committed {
		return
	}
	for _, err := range errs {
		c.countMissing(err)
	}
	for range ambiguous {
		c.countMissing(errShared)
	}
	if len(c.collected)+len(kept) > maxJITProcesses {
		c.countMissing(errTooManyFiles)
		return
	}
	c.collected = append(c.collected, kept...)
}

func (c *jitCollector) release(g *jitProcess) {
	if g.perfMap != nil {
		g.perfMap.Close()
	}
	g.tmpDir.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.holds {
		g.holds = false
		c.open--
	}
}
