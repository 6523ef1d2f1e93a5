// SPDX-License-Identifier: Apache-2.0

//go:build linux

package broker

import (
	"errors"
	"syscall"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// ErrTracers says that somebody who sees a container's opener could trace it, and have it
// tell the kernel's addresses.
var ErrTracers = errors.New("the container has CAP_SYS_PTRACE")

// Accepts reports, as an error, what keeps a container from having events at all.
func (b *Broker) Accepts(s *Scope) error { return s.refuseTracers(s.pidns, b.policy.Kernel) }

// refuseTracers refuses an opener in a pid namespace that somebody could trace there. A
// process that has given the capability up says nothing: others may have it still.
func (s *Scope) refuseTracers(ns uint64, kernel bool) error {
	if kernel {
		return nil
	}
	self := procfs.New("").Self()
	host, err := self.Namespace("pid")
	if err != nil {
		return err
	}
	users, err := self.Namespace("user")
	if err != nil {
		return err
	}
	// Processes that end while we look may have been followed by others; and one that a
	// runtime just runs in the container has all capabilities for a moment.
	const looks, moment = 5, 50 * time.Millisecond
	found, again := false, true
	for range looks {
		var vanished bool
		if found, vanished, err = s.findTracers(ns, host, users); err != nil {
			return err
		}
		if !found && !(vanished && again) {
			break
		}
		again = false
		if found {
			time.Sleep(moment)
		}
	}
	if found {
		return refuse(syscall.EACCES, "%w, with which the kernel's addresses could be learnt", ErrTracers)
	}
	return nil
}

// findTracers looks for a task that could trace an opener in a pid namespace: it sees it,
// and has or may get the capability outside of a user namespace. Whoever sees the host's
// processes sees more than an opener; there it is the container's own that count.
func (s *Scope) findTracers(ns, host, users uint64) (found, vanished bool, err error) {
	pids, err := procfs.New("").PIDs()
	if err != nil {
		return false, false, err
	}
	for _, pid := range pids {
		p := procfs.New("").Proc(pid)
		theirs, err := p.Namespace("pid")
		if err != nil {
			vanished = true
			continue
		}
		// Namespaces around the opener's see it too: those are the container's own.
		seesIt := theirs == ns && ns != host
		if !seesIt && (theirs == host && ns != host || !s.Contains(pid)) {
			continue
		}
		can, gone := tracer(p, users)
		if can {
			return true, false, nil
		}
		vanished = vanished || gone
	}
	return false, vanished, nil
}

// tracer reports whether a thread of a process has CAP_SYS_PTRACE where it counts.
func tracer(p procfs.Proc, users uint64) (can, gone bool) {
	tids, err := p.Tasks()
	if err != nil {
		return false, true
	}
	for _, tid := range tids {
		task := p.Task(tid)
		st, err := task.Status()
		if err != nil {
			gone = true
			continue
		}
		if !sys.Capabilities(st.CapBnd | st.CapPrm).Has(sys.CapSysPtrace) {
			continue
		}
		theirs, err := task.Namespace("user")
		if err != nil {
			gone = true
			continue
		}
		if theirs == users {
			return true, false
		}
	}
	return false, gone
}
