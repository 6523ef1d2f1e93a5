// SPDX-License-Identifier: Apache-2.0

//go:build linux

package broker

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"github.com/gantry-tools/gantry/internal/linux/helper/opener"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// client is the thread that asks. What is read of it counts only if its notification
// is valid afterwards.
type client struct {
	tid  int
	proc procfs.Proc
	// valid reports whether what was read of it is its own: the number was not
	// another thread's.
	valid func() bool
	// peer is set for one that asks through a socket.
	peer *sys.Peer
	// status is read when it is needed first.
	status *procfs.Status
}

func newClient(tid int) client {
	return client{tid: tid, proc: procfs.New("").Proc(tid)}
}

func (c *client) Status() (*procfs.Status, error) {
	if c.status == nil {
		st, err := c.proc.Status()
		if err != nil {
			return nil, refuse(syscall.ESRCH, "the process that asks is gone")
		}
		c.status = &st
	}
	return c.status, nil
}

// isAmong reports whether the client is one of those users of a container. Root is that
// of the container's own user namespace: every user may be root of one below it.
func (c *client) isAmong(w Who, s *Scope) (bool, error) {
	switch w {
	case Anyone:
		return true, nil
	case Nobody:
		return false, nil
	}
	uid, _, err := c.user(1)
	if err != nil {
		return false, err
	}
	ns, err := c.proc.Namespace("user")
	if err != nil {
		return false, errClientGone
	}
	return ns == s.userns && uid == s.root, nil
}

// user is the client's user and group, as the host numbers them: 0 for the real
// one, 1 for that which counts.
func (c *client) user(kind int) (uid, gid uint32, err error) {
	if c.peer != nil {
		return c.peer.UID, c.peer.GID, nil
	}
	st, err := c.Status()
	if err != nil {
		return 0, 0, err
	}
	return st.UID[kind], st.GID[kind], nil
}

// target is a task of which events are wanted, held by a pidfd.
type target struct {
	pidfd *sys.FD
	pid   int // in the opener's pid namespace
}

// findTarget looks a pid up in the client's pid namespace, and checks that the task
// is of the container and that the client may look at it. The caller closes pidfd.
func (b *Broker) findTarget(s *Scope, o *opener.Opener, c *client, pid int) (*target, error) {
	pidfd, err := o.Pin(pid, true)
	if errors.Is(err, syscall.EINVAL) { // before Linux 6.9 first threads only
		pidfd, err = o.Pin(pid, false)
	}
	if errors.Is(err, opener.ErrGone) || errors.Is(err, opener.ErrStopped) {
		return nil, err
	}
	if err != nil {
		return nil, refuse(syscall.ESRCH, "there is no task %d in its pid namespace", pid)
	}
	t := &target{pidfd, pid}
	host, err := hostPID(pidfd)
	if err == nil && !s.Contains(host) {
		err = refuse(syscall.ESRCH, "the task %d is not of the container", host)
	}
	if err == nil {
		err = b.mayLook(s, c, host)
	}
	if err != nil {
		return nil, errors.Join(err, pidfd.Close())
	}
	return t, nil
}

// hostPID is the number of the task of a pidfd in our pid namespace.
func hostPID(pidfd *sys.FD) (int, error) {
	var buf [512]byte
	f, err := sys.Open("/proc/self/fdinfo/"+pidfd.String(), os.O_RDONLY)
	if err != nil {
		return 0, fmt.Errorf("look at a task: %w", err)
	}
	defer f.Close()
	n, err := f.Read(buf[:])
	if err != nil {
		return 0, fmt.Errorf("look at a task: %w", err)
	}
	for line := range bytes.Lines(buf[:n]) {
		if text, ok := bytes.CutPrefix(line, []byte("Pid:")); ok {
			pid, err := strconv.Atoi(string(bytes.TrimSpace(text)))
			if err != nil || pid <= 0 {
				return 0, refuse(syscall.ESRCH, "the task ended")
			}
			return pid, nil
		}
	}
	return 0, refuse(syscall.ESRCH, "the task ended")
}

// mayLook reports, as an error, what keeps a client from looking at a task: who may
// see all tasks of the container may see one, and else it is what the kernel asks of
// ptrace (PTRACE_MODE_READ_REALCREDS): the same user in all ids, no capability more,
// and a memory that may be dumped.
func (b *Broker) mayLook(s *Scope, c *client, host int) error {
	if all, err := c.isAmong(b.policy.AllTasks, s); err != nil || all {
		return err
	}
	st, err := c.Status()
	if err != nil {
		return err
	}
	p := procfs.New("").Proc(host)
	other, err := p.Status()
	if err != nil {
		return refuse(syscall.ESRCH, "the task ended")
	}
	if other.TGID == st.TGID {
		return nil
	}
	uid, gid, err := c.user(0)
	if err != nil {
		return err
	}
	same := other.UID[0] == uid && other.UID[1] == uid && other.UID[2] == uid &&
		other.GID[0] == gid && other.GID[1] == gid && other.GID[2] == gid
	// The kernel gives what of a process may not be dumped to root.
	fi, err := os.Stat(p.Path("stat"))
	if err != nil {
		return refuse(syscall.ESRCH, "the task ended")
	}
	owner, ok := fi.Sys().(*syscall.Stat_t)
	if !same || other.CapPrm&^st.CapPrm != 0 || !ok || owner.Uid != uid {
		return refuse(syscall.EACCES, "the task %d is another user's", host)
	}
	return nil
}

// closing has room for the descriptors that Discard closes at a time.
var closing = make(chan struct{}, 16)

// Discard closes a descriptor that may be of any file, such as one of a file
// system that the client itself serves and that never answers. Where too many never
// ended it stays open: few are enough to tell what is going on.
func Discard(fd *sys.FD) {
	if fd == nil {
		return
	}
	select {
	case closing <- struct{}{}:
		go func() {
			fd.Close()
			<-closing
		}()
	default:
	}
}

// takeGroup takes the client's descriptor of a group's leader.
func takeGroup(c *client, number int) (*sys.FD, error) {
	if link, err := os.Readlink(c.proc.Path("fd/" + strconv.Itoa(number))); err != nil || link != eventLink {
		return nil, refuse(syscall.EBADF, "the group's descriptor is no event")
	}
	pidfd, err := sys.PidfdOpenThread(c.tid)
	if errors.Is(err, syscall.EINVAL) { // before Linux 6.9 by its process
		st, e := c.Status()
		if e != nil {
			return nil, e
		}
		pidfd, err = sys.PidfdOpen(st.TGID)
	}
	if err != nil {
		return nil, refuse(syscall.ESRCH, "the process that asks is gone")
	}
	defer pidfd.Close()
	fd, err := sys.PidfdGetFD(pidfd, number)
	if err != nil {
		return nil, refuse(syscall.EBADF, "the group's descriptor cannot be taken: %v", err)
	}
	// Another thread may have put another file there in between.
	return fd, onlyEvent(fd)
}

// onlyEvent closes a descriptor that is no event.
func onlyEvent(fd *sys.FD) error {
	if link, err := fd.Target(); err != nil || link != eventLink {
		Discard(fd)
		return refuse(syscall.EBADF, "the group's descriptor is no event")
	}
	return nil
}

const eventLink = "anon_inode:[perf_event]"
