// SPDX-License-Identifier: Apache-2.0

//go:build linux

package procroot

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
)

var (
	// ErrTimeout is a file whose file system did not answer in time, or did not
	// answer others before.
	ErrTimeout = errors.New("its file system did not answer in time")
	// ErrNotStarted is an operation that was not begun, because too many were
	// abandoned that have not returned. errors.Is finds ErrTimeout in it too.
	ErrNotStarted = fmt.Errorf("%w, as others did not", ErrTimeout)
)

// Access bounds access to file systems that may hang. It runs each operation in
// a goroutine and waits for it up to a deadline. An operation that exceeds it is
// abandoned: it goes on until the file system answers, and its result is
// discarded.
//
// A thread that waits inside of the kernel cannot be ended, so there are quotas of
// abandoned operations: for one file system, for the processes of one cgroup, so
// that a container cannot use up what others need, and for all. The timeout of Do
// backs off: each operation that is abandoned halves it, and it recovers with
// time, because a machine can also be too busy for a moment.
//
// File systems that a program serves (FUSE) are not waited for at all, see
// [Files]: a thread that waits for one cannot even be killed, and would keep
// this process from ending.
//
// The zero value is ready. Access may be used by several goroutines.
type Access struct {
	mu        sync.Mutex
	abandoned int            // operations that have not returned yet
	perTarget map[any]int    // of them, by what they wait for
	perCgroup map[string]int // of them, by the cgroup of the process
	timeouts  int            // lately; each halves the next timeout
	last      time.Time      // when timeouts changed
}

const (
	// Quotas of abandoned operations: of all, for processes of one cgroup, and
	// of those that wait for the same file system.
	maxAbandoned, maxPerCgroup, maxPerTarget = 64, 8, 2

	// Timeouts of Do: at first, and the least after backing off, which a
	// spinning disk needs.
	localTimeout, minLocalTimeout = time.Second, 50 * time.Millisecond
	// The same where a server elsewhere has the files.
	remoteTimeout, minRemoteTimeout = 100 * time.Millisecond, 10 * time.Millisecond
	// recovery is after how long one timeout no longer counts.
	recovery = 8 * localTimeout
)

// Op is one operation. Its fields are guarded by the mutex of its Access. A nil
// Op belongs to a caller that waits for as long as it takes.
type Op struct {
	access    *Access
	proc      procfs.Proc
	cgroup    string // of proc, once abandoned
	target    any    // what it waits for; nil: not known
	remote    bool
	deadline  time.Time
	committed bool
	abandoned bool
	returned  bool
	release   func() // releases a result that comes too late
}

// Do runs work, which is about files of proc, and waits for it for a second at
// most, or a tenth of that for a server elsewhere. On an error, which is
// ErrTimeout, work goes on or was not begun (ErrNotStarted), and the caller must
// not look at what it sets.
func (a *Access) Do(proc procfs.Proc, work func(op *Op)) error {
	backoff := a.backoff()
	remote, local := max(remoteTimeout>>backoff, minRemoteTimeout), max(localTimeout>>backoff, minLocalTimeout)
	op, done, err := a.start(proc, local, work)
	if err != nil {
		return err
	}
	timer := time.NewTimer(remote)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
	}
	if op.isRemote() {
		return op.abandon(done, true)
	}
	return op.wait(done, true)
}

// DoWithin is Do with a timeout of the caller's, which Op.Extend can prolong and
// which does not back off: for copying, in the background.
func (a *Access) DoWithin(proc procfs.Proc, timeout time.Duration, work func(op *Op)) error {
	op, done, err := a.start(proc, timeout, work)
	if err != nil {
		return err
	}
	return op.wait(done, false)
}

func (a *Access) start(proc procfs.Proc, timeout time.Duration, work func(op *Op)) (*Op, <-chan struct{}, error) {
	if a.full(proc) {
		return nil, nil, ErrNotStarted
	}
	op := &Op{access: a, proc: proc, deadline: time.Now().Add(timeout)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		work(op)
		op.end()
	}()
	return op, done, nil
}

// wait waits for the operation until its deadline, and abandons it then.
func (op *Op) wait(done <-chan struct{}, backoff bool) error {
	timer := time.NewTimer(op.remaining())
	defer timer.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-timer.C:
		}
		left := op.remaining() // it may have been extended
		if left <= 0 {
			return op.abandon(done, backoff)
		}
		timer.Reset(left)
	}
}

// full reports whether no more may be abandoned, at all or for proc.
func (a *Access) full(proc procfs.Proc) bool {
	a.mu.Lock()
	n := a.abandoned
	a.mu.Unlock()
	if n < maxPerCgroup || n >= maxAbandoned {
		return n >= maxAbandoned
	}
	cgroup, _ := proc.CgroupText() // "" if it has ended
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.perCgroup[cgroup] >= maxPerCgroup
}

// backoff returns by how many powers of two timeouts are shorter, at most 10.
func (a *Access) backoff() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := time.Now(); a.timeouts > 0 && now.Sub(a.last) >= recovery {
		a.timeouts, a.last = a.timeouts-1, now
	}
	return min(a.timeouts, 10)
}

// WaitFor says what the operation may wait for from here on: a comparable value
// that stands for a file system, and whether that is a server elsewhere. On
// ErrTimeout others wait for the same already, and the operation must end.
func (op *Op) WaitFor(target any, remote bool) error {
	if op == nil {
		return nil
	}
	op.access.mu.Lock()
	defer op.access.mu.Unlock()
	if op.abandoned || op.access.perTarget[target] >= maxPerTarget {
		return ErrTimeout
	}
	op.target, op.remote = target, remote
	return nil
}

// OnAbandon sets what releases the result of an operation that returns after it
// was abandoned.
func (op *Op) OnAbandon(release func()) {
	op.access.mu.Lock()
	defer op.access.mu.Unlock()
	op.release = release
}

// Extend moves the deadline to d from now on.
func (op *Op) Extend(d time.Duration) {
	if op == nil {
		return
	}
	op.access.mu.Lock()
	defer op.access.mu.Unlock()
	op.deadline = time.Now().Add(d)
}

// Commit keeps the operation from being abandoned from here on, so that it may
// publish its result. It is false if it was abandoned before.
func (op *Op) Commit() bool {
	if op == nil {
		return true
	}
	op.access.mu.Lock()
	defer op.access.mu.Unlock()
	op.committed = !op.abandoned
	return op.committed
}

func (op *Op) remaining() time.Duration {
	op.access.mu.Lock()
	defer op.access.mu.Unlock()
	return time.Until(op.deadline)
}

func (op *Op) isRemote() bool {
	op.access.mu.Lock()
	defer op.access.mu.Unlock()
	return op.remote
}

// abandon abandons the operation, unless it returned or committed itself in the
// last moment: then it waits for the end.
func (op *Op) abandon(done <-chan struct{}, backoff bool) error {
	cgroup, _ := op.proc.CgroupText()
	a := op.access
	a.mu.Lock()
	if op.returned || op.committed {
		a.mu.Unlock()
		<-done
		return nil
	}
	defer a.mu.Unlock()
	op.abandoned, op.cgroup = true, cgroup
	a.abandoned++
	if backoff {
		a.timeouts, a.last = a.timeouts+1, time.Now()
	}
	if a.perTarget == nil {
		a.perTarget, a.perCgroup = make(map[any]int), make(map[string]int)
	}
	a.perTarget[op.target]++
	a.perCgroup[cgroup]++
	return ErrTimeout
}

// end is the return of the operation, in time or late.
func (op *Op) end() {
	a := op.access
	a.mu.Lock()
	op.returned = true
	abandoned, release := op.abandoned, op.release
	if abandoned {
		a.abandoned--
		if a.perTarget[op.target]--; a.perTarget[op.target] == 0 {
			delete(a.perTarget, op.target)
		}
		if a.perCgroup[op.cgroup]--; a.perCgroup[op.cgroup] == 0 {
			delete(a.perCgroup, op.cgroup)
		}
	}
	a.mu.Unlock()
	if abandoned && release != nil {
		release()
	}
}
