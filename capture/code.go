// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

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
	// maxCode bounds one perf map or jitdump, and codeShare all of them: one
	// part in so many of what is there for binaries.
	maxCode   = 128 << 20
	codeShare = 4
	// maxGenerators bounds the processes that are remembered, and the results.
	maxGenerators = 1 << 14
	// maxOpen bounds the processes of which descriptors are held, and openShare
	// is how much of what this process may open they may take.
	maxOpen   = 512
	openShare = 8
	// maxDumps bounds the jitdump files of a process, as for their reader.
	maxDumps = 16
	// A perf map that is not there is looked for again after a round, then
	// after twice as many each time, up to lastPause. After one of settledPause its
	// directory is taken for settled: a process that changes its root does so early.
	lastPause    = 32
	settledPause = 1
)

// generator is a process that has executable memory of no file: it generates
// code. The compiler that does so may write the names of its functions to a perf
// map, or to a jitdump file that it maps for everybody to see.
type generator struct {
	pid int32
	mnt uint64 // its mount namespace, 0: not known

	// Guarded by the keeper's mutex.
	queued bool
	ended  bool // its first thread has
	listed bool // it is in looking
	due    uint64
	pause  uint64
	// late is the pause while others go on after the first thread, or are on their
	// way out.
	late  uint64
	dumps []*dump

	// Of the worker alone. The descriptors outlive the process: its root does
	// not.
	holds bool
	inner int      // its number in its own pid namespace, 0: not known yet
	start uint64   // when it began, of /proc/PID/stat
	dir   *sys.FD  // its /tmp
	file  *os.File // its perf map
	err   error    // why nobody could look for one; nil: somebody has looked
}

// dump is a jitdump file.
type dump struct {
	key  binaryKey
	at   seen
	file *os.File
	err  error
}

// codeKeeper keeps perf maps and jitdump files in the store, as they are when
// their process ends or the recording does.
type codeKeeper struct {
	fs      procfs.FS
	store   *buildid.Store // nil: nothing is kept
	access  *procroot.Access
	files   procroot.Files
	hostMnt uint64
	left    atomic.Int64 // bytes
	maxOpen int

	mu      sync.Mutex
	wake    *sync.Cond
	all     map[int32]*generator
	looking []*generator // for a perf map that was not there
	waiting []*generator
	round   uint64
	stop    bool
	given   bool // up: what comes now comes too late
	open    int  // generators that hold descriptors
	done    chan struct{}
	kept    []keptCode
	missing map[string]int
}

func newCodeKeeper(fsys procfs.FS, a *procroot.Access, store *buildid.Store, hostMnt uint64, max int64) *codeKeeper {
	c := &codeKeeper{
		fs: fsys, store: store, access: a, hostMnt: hostMnt, maxOpen: maxOpen,
		all: make(map[int32]*generator), missing: make(map[string]int), done: make(chan struct{}),
	}
	c.left.Store(max / codeShare)
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		c.maxOpen = int(min(uint64(maxOpen), limit.Cur/openShare))
	}
	c.wake = sync.NewCond(&c.mu)
	return c
}

// codeMemory is what the keeper calls memory of generated code.
const codeMemory = "//anon"

// isDump says whether a mapping is that by which a process tells where its
// jitdump file is.
func isDump(key *binaryKey) bool {
	base := path.Base(key.Path)
	return key.id == "" && strings.HasPrefix(base, "jit-") && strings.HasSuffix(base, ".dump")
}

// offer takes note of generated code: memory of no file, or a jitdump file. It
// never waits.
func (c *codeKeeper) offer(key *binaryKey, at seen) {
	if c.store == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.all[int32(at.pid)]
	switch {
	case g == nil && len(c.all) >= maxGenerators:
		c.miss(errMany)
		return
	case g == nil:
		g = &generator{pid: int32(at.pid), mnt: at.mnt}
		c.all[g.pid] = g
		c.push(g)
	}
	if perf.HoldsCode(key.Path) || slices.ContainsFunc(g.dumps, func(d *dump) bool { return d.key == *key }) {
		return
	}
	if len(g.dumps) == maxDumps {
		c.miss(errMany)
		return
	}
	g.dumps = append(g.dumps, &dump{key: *key, at: at})
	c.push(g)
}

// push has the worker look at g; c.mu is held.
func (c *codeKeeper) push(g *generator) {
	if !g.queued {
		g.queued = true
		c.waiting = append(c.waiting, g)
		c.wake.Signal()
	}
}

func (c *codeKeeper) miss(err error) { c.missing["generated code: "+reason(err)]++ }

// exited is told of every thread that ends. A process is over when none is left,
// the first one may end before others.
func (c *codeKeeper) exited(pid, tid int32) {
	if c == nil || c.store == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.all[pid]; g != nil {
		g.ended = g.ended || pid == tid
		if g.ended {
			g.late = 0
			c.push(g)
		}
	}
}

// nextRound looks again for the perf maps that were not there, and whether the
// processes have ended whose first thread has.
func (c *codeKeeper) nextRound() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.round++
	c.looking = slices.DeleteFunc(c.looking, func(g *generator) bool {
		if g.due > c.round {
			return false
		}
		g.listed = false
		c.push(g)
		return true
	})
}

// start works in the background until wait is called, then keeps what is left.
func (c *codeKeeper) start() { go c.run() }

func (c *codeKeeper) run() {
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
				c.look(op, g)
			}
		})
		if err != nil {
			c.drop(g, errors.Is(err, procroot.ErrNotStarted))
		}
	}
}

// next is what to look at next, and whether the recording is over.
func (c *codeKeeper) next() (g *generator, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for len(c.waiting) == 0 && !c.stop {
			c.wake.Wait()
		}
		if c.given || len(c.waiting) == 0 {
			break
		}
		g = c.waiting[0]
		c.waiting = c.waiting[1:]
		if g.queued = false; c.all[g.pid] == g {
			return g, c.stop
		}
	}
	for _, g := range c.all {
		if !c.given {
			return g, true
		}
	}
	return nil, true
}

// drop keeps nothing of a process whose file system does not answer. The
// operation that waits for it releases what it has opened, if it was begun.
func (c *codeKeeper) drop(g *generator, notStarted bool) {
	c.mu.Lock()
	if c.all[g.pid] == g {
		delete(c.all, g.pid)
	}
	c.miss(procroot.ErrTimeout)
	dumps := g.dumps
	c.mu.Unlock()
	if !notStarted {
		return
	}
	for _, d := range dumps {
		d.file.Close() // nil too
	}
	c.release(g)
}

// over says whether a process whose first thread has ended has no other that goes
// on. One that executes a program does so with the number of the first
// (de_thread in fs/exec.c), as if that had not ended.
func (c *codeKeeper) over(g *generator) bool {
	c.mu.Lock()
	ended := g.ended
	g.ended = false // unless it ends again while this looks
	c.mu.Unlock()
	if !ended {
		return false
	}
	st, err := c.fs.Proc(int(g.pid)).Stat()
	if err != nil || g.inner != 0 && st.StartTime != g.start {
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
func (c *codeKeeper) end() {
	c.mu.Lock()
	c.stop = true
	c.wake.Signal()
	c.mu.Unlock()
}

// wait waits for what end has begun, but not for ever.
func (c *codeKeeper) wait(deadline time.Time) {
	await(c.done, deadline)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.given = true
	for range c.all {
		c.miss(errSlow)
	}
}

// look opens what there is of a process while it runs. There is nothing to copy
// before its end.
func (c *codeKeeper) look(op *procroot.Op, g *generator) {
	if !c.hold(g) {
		g.err = errMany
	} else if c.find(op, g); !op.Commit() {
		c.release(g)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case g.ended:
		g.late = min(max(1, 2*g.late), lastPause)
		g.due = c.round + g.late
	case g.holds && g.file == nil && !g.listed:
		g.pause = min(max(1, 2*g.pause), lastPause)
		g.due = c.round + g.pause
	default:
		return
	}
	if !g.listed {
		g.listed = true
		c.looking = append(c.looking, g)
	}
}

// hold says whether g may hold descriptors.
func (c *codeKeeper) hold(g *generator) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !g.holds && c.open < c.maxOpen {
		g.holds = true
		c.open++
	}
	return g.holds
}

// find opens the files of g that are not open yet.
func (c *codeKeeper) find(op *procroot.Op, g *generator) {
	proc := c.fs.Proc(int(g.pid))
	c.mu.Lock()
	dumps := slices.Clone(g.dumps)
	c.mu.Unlock()
	for _, d := range dumps {
		if d.file == nil && d.err == nil {
			d.file, d.err = c.openDump(op, proc, d)
		}
	}
	if g.file != nil {
		return
	}
	if g.dir != nil && g.pause > settledPause {
		g.open()
		return
	}
	dir, err := c.findDir(g, proc)
	if err != nil {
		if g.dir == nil {
			g.err = cmp.Or(g.err, gone(err))
		}
		return
	}
	g.dir.Close()
	g.dir = dir
	g.open()
}

// open opens the perf map in the directory that was found, if it is there.
func (g *generator) open() {
	g.err = nil
	if g.dir == nil {
		return
	}
	f, err := procroot.OpenIn(g.dir, g.name())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		g.err = err
	}
	g.file = f
}

// findDir finds the /tmp of a process, nil if it has none. It must be the
// process that was there the first time.
func (c *codeKeeper) findDir(g *generator, proc procfs.Proc) (*sys.FD, error) {
	err := g.identify(proc)
	var dir *sys.FD
	if err == nil {
		dir, err = procroot.FindDir(proc, codeDir)
	}
	if err == nil {
		if err = g.identify(proc); err == nil {
			return dir, nil
		}
		dir.Close()
	}
	if c.onHost(g) {
		return procroot.FindDir(c.fs.Self(), codeDir)
	}
	return nil, err
}

// onHost: the files of g are those of this process's mount namespace.
func (c *codeKeeper) onHost(g *generator) bool { return g.mnt != 0 && g.mnt == c.hostMnt }

// codeDir is where perf maps are, below the root of their process.
const codeDir = "tmp"

// identify finds out which process it is, while it is there, or that it is
// still the same.
func (g *generator) identify(proc procfs.Proc) error {
	st, err := proc.Stat()
	if err != nil {
		return err
	}
	if g.inner != 0 {
		if st.StartTime != g.start {
			return errGone
		}
		return nil
	}
	status, err := proc.Status()
	if err != nil {
		return err
	}
	g.inner, g.start = status.InnerPID(), st.StartTime
	return nil
}

// name is what the perf map is called. A process of the host that was never seen
// most likely has the number that it has here.
func (g *generator) name() string { return fmt.Sprintf("perf-%d.map", cmp.Or(g.inner, int(g.pid))) }

func (c *codeKeeper) openDump(op *procroot.Op, proc procfs.Proc, d *dump) (*os.File, error) {
	k := &d.key
	if c.files.OnFUSE(proc, k.Major, k.Minor, k.Path) {
		return nil, errServed
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
func (c *codeKeeper) finish(op *procroot.Op, g *generator) {
	c.find(op, g) // of a process that is there, or was never looked at
	var kept []keptCode
	var errs []error
	add := func(file *os.File, k keptCode, err error) {
		if err == nil && file != nil {
			k.id, err = c.add(op, file, k.dump != nil)
		}
		if err != nil {
			errs = append(errs, err)
		} else if !k.id.IsZero() {
			kept = append(kept, k)
		}
	}
	if g.dir != nil {
		// The one that has the name now may be another one.
		if f, err := procroot.OpenIn(g.dir, g.name()); err == nil {
			if g.file != nil {
				g.file.Close()
			}
			g.file, g.err = f, nil
		}
	}
	add(g.file, keptCode{pid: g.pid, mnt: g.mnt}, g.err)
	c.mu.Lock()
	dumps := g.dumps
	c.mu.Unlock()
	for _, d := range dumps {
		add(d.file, keptCode{pid: g.pid, mnt: g.mnt, dump: &d.key}, d.err)
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
	if c.given || !committed {
		return
	}
	for _, err := range errs {
		c.miss(err)
	}
	if len(c.kept)+len(kept) > maxGenerators {
		c.miss(errMany)
		return
	}
	c.kept = append(c.kept, kept...)
}

func (c *codeKeeper) release(g *generator) {
	if g.file != nil {
		g.file.Close()
	}
	g.dir.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.holds {
		g.holds = false
		c.open--
	}
}
