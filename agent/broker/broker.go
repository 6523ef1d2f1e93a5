// SPDX-License-Identifier: Apache-2.0

//go:build linux

package broker

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/helper/opener"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// Options of New.
type Options struct {
	Policy Policy
	// Tracepoint is the name, SYSTEM:NAME, of a tracepoint by its id, or "". It may
	// be nil if the policy has no tracepoints.
	Tracepoint func(id uint64) string
	// Audit gets an Entry in a line of JSON for each decision; nil does without.
	Audit io.Writer
}

// Broker answers for containers with one policy. It is safe for concurrent use.
type Broker struct {
	policy Policy
	check  checker
	audit  audit
	stats  stats
}

type stats struct{ granted, refused atomic.Uint64 }

// Policy is what the broker was made with.
func (b *Broker) Policy() Policy { return b.policy }

// Stats counts decisions.
type Stats struct{ Granted, Refused uint64 }

// Stats are the decisions so far.
func (b *Broker) Stats() Stats {
	return Stats{b.stats.granted.Load(), b.stats.refused.Load()}
}

// New makes a broker. It needs CAP_SYS_ADMIN, CAP_PERFMON and CAP_SYS_PTRACE.
func New(o *Options) *Broker {
	b := &Broker{policy: o.Policy, audit: audit{w: o.Audit}}
	b.check = checker{policy: &b.policy, tracepoint: o.Tracepoint, core: corePMU}
	if b.check.tracepoint == nil {
		b.check.tracepoint = func(uint64) string { return "" }
	}
	return b
}

// corePMU reports whether a dynamic PMU is one of the CPUs: others count for the
// whole machine. Those of the CPUs say which ones by "cpus", others by "cpumask".
func corePMU(t perf.EventType) bool {
	dirs, err := filepath.Glob("/sys/bus/event_source/devices/*/type")
	if err != nil {
		return false
	}
	for _, file := range dirs {
		text, err := os.ReadFile(file)
		if err != nil || strings.TrimSpace(string(text)) != strconv.FormatUint(uint64(t), 10) {
			continue
		}
		_, err = os.Stat(filepath.Join(filepath.Dir(file), "cpus"))
		return err == nil
	}
	return false
}

// errnoOf gives an error of handing over a reason. A client that is gone is none.
func errnoOf(err error, reason string, q *request) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, syscall.ENOENT) {
		q.gone = true
		return nil
	}
	return refuse(Errno(err), "%s", reason)
}

// Errno is what the process gets for an error.
func Errno(err error) syscall.Errno {
	var e syscall.Errno
	if errors.As(err, &e) {
		return e
	}
	return syscall.EAGAIN
}

// request is one call of perf_event_open.
type request struct {
	scope    *Scope
	client   client
	attr     perf.Attr
	pid, cpu int
	// leader is the descriptor of the group's leader, nil if there is none.
	leader *sys.FD
	flags  sys.PerfFlags
	// gone says that nobody waits for the answer any more.
	gone bool
}

var errClientGone = refuse(syscall.ESRCH, "the process that asks is gone")

// Flags of perf_event_open.
const knownOpenFlags = sys.PerfNoGroup | sys.PerfFDOutput | sys.PerfPIDCgroup | sys.PerfCloexec

// decide decides about a request whose attr was read, and opens the event in its
// place.
func (b *Broker) decide(q *request) (*sys.FD, error) {
	ns, err := q.client.proc.Namespace("pid")
	if err != nil || !q.client.valid() {
		q.gone = true
		return nil, errClientGone
	}
	switch {
	case q.flags&^knownOpenFlags != 0, q.pid < -1, q.cpu < -1, q.pid == -1 && q.cpu == -1:
		return nil, refuse(syscall.EINVAL, "arguments that do not exist")
	case q.flags&sys.PerfPIDCgroup != 0:
		return nil, refuse(syscall.EACCES, "events of a cgroup of its own choice are not for containers")
	}
	if err := b.check.check(&q.attr); err != nil {
		return nil, err
	}
	if err := b.mayOpen(q); err != nil {
		return nil, err
	}
	if err := q.scope.limit(&b.policy); err != nil {
		return nil, err
	}
	fd, err := b.openIn(q, ns)
	if err == nil {
		q.scope.opened.Add(1)
	}
	return fd, err
}

// mayOpen decides by who asks.
func (b *Broker) mayOpen(q *request) error {
	who, what := b.policy.Tasks, "events of tasks"
	if q.pid == -1 {
		who, what = b.policy.AllTasks, "events of all tasks of the container"
		if q.scope.cgroup == nil {
			return refuse(syscall.EACCES, "the container has no cgroup of its own")
		}
	}
	ok, err := q.client.isAmong(who, q.scope)
	if err == nil && !ok {
		err = refuse(syscall.EACCES, "%s are for %s", what, who)
	}
	return err
}

// openIn opens an event in the client's pid namespace.
func (b *Broker) openIn(q *request, ns uint64) (*sys.FD, error) {
	o, err := q.scope.openerOf(q.client.tid, ns, b.policy.Kernel)
	if err != nil {
		return nil, fmt.Errorf("opener: %w", err)
	}
	fd, err := b.openBy(o, q)
	if errors.Is(err, opener.ErrGone) || errors.Is(err, opener.ErrStopped) {
		q.scope.drop(ns, o)
		err = refuse(syscall.EAGAIN, "%v", err)
	}
	return fd, err
}

func (b *Broker) openBy(o *opener.Opener, q *request) (*sys.FD, error) {
	attr := q.attr.Append(nil, hostOrder)
	if q.pid == -1 {
		return o.Open(attr, -1, q.cpu, q.leader, q.flags|sys.PerfPIDCgroup)
	}
	pid := q.pid
	if pid == 0 {
		st, err := q.client.Status()
		if err != nil {
			return nil, err
		}
		pid = st.InnerPID()
	}
	if pid == 0 || !q.client.valid() {
		q.gone = true
		return nil, errClientGone
	}
	if q.pid == 0 {
		// The task cannot end while it waits for us.
		fd, err := o.Open(attr, pid, q.cpu, q.leader, q.flags)
		if err == nil && !q.client.valid() {
			fd.Close()
			q.gone = true
			return nil, errClientGone
		}
		return fd, err
	}
	t, err := b.findTarget(q.scope, o, &q.client, pid)
	if err != nil {
		return nil, err
	}
	defer t.pidfd.Close()
	fd, err := o.Open(attr, pid, q.cpu, q.leader, q.flags)
	if err != nil {
		return nil, err
	}
	// While it runs, its number is no other's.
	if alive, err := sys.PidfdAlive(t.pidfd); err != nil || !alive {
		fd.Close()
		return nil, refuse(syscall.ESRCH, "the task ended")
	}
	return fd, nil
}

// note writes a decision down.
func (b *Broker) note(q *request, err error) {
	if q.gone {
		return
	}
	e := Entry{
		Time: time.Now(), Container: q.scope.Name, CgroupID: q.scope.id, PID: q.client.tid,
		Event: eventName(&q.attr, b.check.tracepoint), Scope: "container", Decision: Granted,
	}
	if q.pid >= 0 {
		e.Scope, e.Target = "task", q.pid
	}
	if err == nil {
		b.stats.granted.Add(1)
	} else {
		b.stats.refused.Add(1)
		e.Decision, e.Reason, e.Error = Refused, err.Error(), Errno(err).Error()
		var r *refusal
		if errors.As(err, &r) {
			e.Reason = r.reason.Error()
		}
	}
	if b.audit.w == nil {
		return
	}
	// The client may be gone: its name is for people.
	if st, err := q.client.Status(); err == nil {
		e.Comm, e.UID, e.PID = st.Name, st.UID[1], cmp.Or(st.TGID, e.PID)
	}
	if p := q.client.peer; p != nil {
		e.UID = p.UID
	}
	b.audit.add(&e)
}
