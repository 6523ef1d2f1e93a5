// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"errors"
	"sync"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
)

// ErrSilent is a file whose file system did not answer in time, or did not
// answer others before.
var ErrSilent = errors.New("its file system did not answer in time")

// Errands run what may have to wait for a file system, whose server may be gone:
// finding, opening and reading files of other processes. Who sends on an errand
// waits for it, but not for ever. One that was given up goes on by itself until
// the file system answers, and nobody looks at what it brings.
//
// Nothing else ends a thread that is inside of the kernel, so that there is a
// bound on how many are given up: on one file system, for the processes of one
// cgroup, so that a container cannot use up what the others need, and at all.
// Waiting in vain takes a few seconds at most, and an eighth of the time after
// them, as patience wears out. It comes back, for a machine can also be too busy
// for a moment.
//
// File systems that a program serves (FUSE) are not waited for at all: see
// mountTypes. A thread that waits for one cannot even be killed, and would keep
// this process from ending.
//
// The zero value is ready. Errands may be sent by several goroutines.
type Errands struct {
	mu   sync.Mutex
	out  int            // errands that were given up and have not come back
	on   map[any]int    // of them, by what they wait for
	of   map[string]int // of them, by the cgroup of the process
	vain int            // how often was waited in vain, less what is forgiven
	last time.Time      // when that grew or was forgiven last
}

const (
	// maxOut bounds the errands that were given up, maxOutOf those for processes
	// of one cgroup, and maxOutOn those that wait for the same.
	maxOut, maxOutOf, maxOutOn = 64, 8, 2
	// patience is how long an errand is waited for at first, remotePatience where
	// a server elsewhere has the files. It halves with each wait in vain, down to
	// leastPatience, which a disk needs that turns, and leastRemote.
	patience, leastPatience     = time.Second, 50 * time.Millisecond
	remotePatience, leastRemote = 100 * time.Millisecond, 10 * time.Millisecond
	// forgiven is after how long one wait in vain counts no more.
	forgiven = 8 * patience
)

// errand is one of them. Its fields are guarded by home's mutex.
type errand struct {
	home   *Errands
	proc   procfs.Proc
	of     string // the cgroup of proc, once it was given up
	on     any    // what it waits for; nil: not known
	remote bool
	lost   bool // nobody waits for it any more
	back   bool
	late   func() // releases what it brings too late
}

// run sends work on an errand, which is about files of proc. If it is not true,
// the work goes on or was not begun, and what it sets must not be looked at.
func (e *Errands) run(proc procfs.Proc, work func(x *errand)) bool {
	if e.full(proc) {
		return false
	}
	x := &errand{home: e, proc: proc}
	worn := e.wear()
	done := make(chan struct{})
	go func() {
		defer close(done)
		work(x)
		x.end()
	}()
	first, wait := max(remotePatience>>worn, leastRemote), max(patience>>worn, leastPatience)
	timer := time.NewTimer(first)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
	}
	if !x.isRemote() {
		timer.Reset(wait - first)
		select {
		case <-done:
			return true
		case <-timer.C:
		}
	}
	return x.giveUp()
}

// full says whether no more may be given up, at all or for proc.
func (e *Errands) full(proc procfs.Proc) bool {
	e.mu.Lock()
	out := e.out
	e.mu.Unlock()
	if out < maxOutOf || out >= maxOut {
		return out >= maxOut
	}
	of, _ := proc.CgroupText() // "" if it has ended
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.of[of] >= maxOutOf
}

// wear is how often patience has worn out, at most 10.
func (e *Errands) wear() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := time.Now(); e.vain > 0 && now.Sub(e.last) >= forgiven {
		e.vain, e.last = e.vain-1, now
	}
	return min(e.vain, 10)
}

// waitsFor says what the work may wait for from here on: where, a comparable
// value. If that is ErrSilent, others do so already, and the work is to end. A
// nil errand is one that may wait as long as it takes.
func (x *errand) waitsFor(where any, remote bool) error {
	if x == nil {
		return nil
	}
	x.home.mu.Lock()
	defer x.home.mu.Unlock()
	if x.lost || x.home.on[where] >= maxOutOn {
		return ErrSilent
	}
	x.on, x.remote = where, remote
	return nil
}

// release says what to do with what the work has made, if it comes too late.
func (x *errand) release(late func()) {
	x.home.mu.Lock()
	defer x.home.mu.Unlock()
	x.late = late
}

func (x *errand) isRemote() bool {
	x.home.mu.Lock()
	defer x.home.mu.Unlock()
	return x.remote
}

// giveUp is true if the errand has come back at the last moment.
func (x *errand) giveUp() bool {
	e := x.home
	of, _ := x.proc.CgroupText()
	e.mu.Lock()
	defer e.mu.Unlock()
	if x.back {
		return true
	}
	x.lost = true
	e.out++
	e.vain, e.last = e.vain+1, time.Now()
	if e.on == nil {
		e.on, e.of = make(map[any]int), make(map[string]int)
	}
	e.on[x.on]++
	x.of = of
	e.of[of]++
	return false
}

// end is for the errand that comes back.
func (x *errand) end() {
	e := x.home
	e.mu.Lock()
	x.back = true
	lost, late := x.lost, x.late
	if lost {
		e.out--
		if e.on[x.on]--; e.on[x.on] == 0 {
			delete(e.on, x.on)
		}
		if e.of[x.of]--; e.of[x.of] == 0 {
			delete(e.of, x.of)
		}
	}
	e.mu.Unlock()
	if lost && late != nil {
		late()
	}
}
