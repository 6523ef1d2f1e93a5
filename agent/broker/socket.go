// SPDX-License-Identifier: Apache-2.0

//go:build linux

package broker

import (
	"syscall"

	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Call is a perf_event_open that a process asks for through a socket.
type Call struct {
	Attr     []byte
	PID, CPU int
	// Group is the leader of the event's group, or nil. Open closes it.
	Group *sys.FD
	Flags sys.PerfFlags
}

// Open decides about a call of a container's process that asks through a socket, and
// opens the event, which is the caller's. The error has the errno that the process
// gets.
func (b *Broker) Open(s *Scope, p *sys.Peer, c *Call) (*sys.FD, error) {
	q := &request{scope: s, client: newClient(p.PID), pid: c.PID, cpu: c.CPU, leader: c.Group, flags: c.Flags}
	q.client.peer = p
	q.client.valid = func() bool {
		alive, err := sys.PidfdAlive(p.Pidfd)
		return err == nil && alive
	}
	fd, err := b.openFor(q, c)
	if b.audit.w != nil {
		_, _ = q.client.Status() // for the log
	}
	b.note(q, err)
	s.opens.take(b.policy.MaxOpens)
	return fd, err
}

func (b *Broker) openFor(q *request, c *Call) (*sys.FD, error) {
	if q.leader != nil {
		if err := onlyEvent(q.leader); err != nil {
			return nil, err
		}
		defer q.leader.Close()
	}
	var err error
	q.attr, err = readAttr(func(at uint64, p []byte) (int, error) {
		if at > uint64(len(c.Attr)) {
			return 0, syscall.EFAULT
		}
		return copy(p, c.Attr[at:]), nil
	}, 0)
	if err != nil {
		return nil, err
	}
	if q.pid == 0 {
		return nil, refuse(syscall.EINVAL, "a socket has no thread of its own: name one")
	}
	if !q.scope.Contains(q.client.tid) || !q.client.valid() {
		q.gone = true
		return nil, errClientGone
	}
	return b.decide(q)
}
