// SPDX-License-Identifier: Apache-2.0

//go:build linux

package broker

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/helper/opener"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Scope is one container, for as long as its cgroup is the one that it was found
// in: a path may be another container's the next moment.
type Scope struct {
	// Name is what the audit log calls the container.
	Name string

	tree   procfs.CgroupTree
	path   string  // of its cgroup in tree, as /proc/PID/cgroup has it
	cgroup *sys.FD // its directory; nil if it has no cgroup of its own
	id     uint64
	pidns  uint64 // of its first process
	userns uint64 // the same
	root   uint32 // user 0 of userns, as the host numbers it
	// opened counts the events that were opened.
	opened  atomic.Int64
	counted census
	opens   bucket

	mu      sync.Mutex
	openers map[uint64]*entry // by the inode of the pid namespace
}

// entry is an opener of one pid namespace.
type entry struct {
	opener *opener.Opener
	used   time.Time
}

// rootOf is the user id, as the host numbers it, of user 0 in the user namespace of a
// process; nobody if there is none, or if it was not the host's root who made that
// namespace: every user can make one, and be root there.
func rootOf(p procfs.Proc) (uint32, error) {
	fd, err := sys.Open(p.Path("ns/user"), os.O_RDONLY)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNoContainer, err)
	}
	defer fd.Close()
	if owner, err := sys.NamespaceOwner(fd); err != nil || owner != 0 {
		return nobody, err
	}
	ids, err := p.UIDMap()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNoContainer, err)
	}
	if root, ok := ids.Outside(0); ok {
		return root, nil
	}
	return nobody, nil
}

// nobody is a user that no process has.
const nobody = 1<<32 - 1

// ErrNoContainer says that a process is in no container, or in one that ended.
var ErrNoContainer = errors.New("the process is in no container that runs")

// NewScope is the container with a first process pid, whose cgroup has the given
// path in the hierarchy of perf events. A path of "" or "/" is a container without
// a cgroup of its own, in which events of all tasks cannot be had. The caller calls
// Close.
func NewScope(name string, pid int, path string) (*Scope, error) {
	s := &Scope{Name: name, path: strings.TrimSuffix(path, "/"), openers: make(map[uint64]*entry)}
	ns, err := procfs.New("").Proc(pid).Namespace("pid")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoContainer, err)
	}
	s.pidns = ns
	if s.userns, err = procfs.New("").Proc(pid).Namespace("user"); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoContainer, err)
	}
	if s.root, err = rootOf(procfs.New("").Proc(pid)); err != nil {
		return nil, err
	}
	trees, err := procfs.New("").CgroupTrees()
	if err != nil {
		return nil, err
	}
	tree := trees.Perf()
	if tree == nil || s.path == "" {
		return s, nil
	}
	s.tree = *tree
	dir, err := s.tree.Dir(s.path)
	if err != nil {
		return nil, err
	}
	if s.cgroup, err = sys.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoContainer, err)
	}
	if s.id, err = sys.CgroupID(s.cgroup.Path() + "/."); err != nil {
		return nil, errors.Join(err, s.cgroup.Close())
	}
	return s, nil
}

// CgroupID is the id of the container's cgroup, 0 if it has none.
func (s *Scope) CgroupID() uint64 { return s.id }

// Contains reports whether a task, as the host numbers it, is in the container now.
// The caller holds the task by a pidfd and looks afterwards whether it still runs.
func (s *Scope) Contains(pid int) bool {
	p := procfs.New("").Proc(pid)
	if s.cgroup == nil {
		ns, err := p.Namespace("pid")
		return err == nil && ns == s.pidns
	}
	list, err := p.Cgroups()
	if err != nil {
		return false
	}
	c := s.tree.Of(list)
	if c == nil || c.Path != s.path && !strings.HasPrefix(c.Path, s.path+"/") {
		return false
	}
	id, err := s.tree.ID(s.path)
	return err == nil && id == s.id
}

// openerOf is the opener in the pid namespace of a thread; ns is its inode. kernel says
// that the kernel's addresses are no secret.
func (s *Scope) openerOf(tid int, ns uint64, kernel bool) (*opener.Opener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.openers[ns]; e != nil {
		e.used = time.Now()
		return e.opener, nil
	}
	if len(s.openers) >= maxOpeners {
		return nil, refuse(syscall.EAGAIN, "events are opened in %d pid namespaces of the container", maxOpeners)
	}
	if err := s.refuseTracers(ns, kernel); err != nil {
		return nil, err
	}
	fd, err := sys.Open(procfs.New("").Proc(tid).Path("ns/pid"), os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer fd.Close()
	st, err := fd.Stat()
	if err != nil {
		return nil, err
	}
	if st.Inode != ns {
		return nil, ErrNoContainer
	}
	o, err := opener.Start(fd, s.cgroup)
	if err != nil {
		return nil, err
	}
	s.openers[ns] = &entry{o, time.Now()}
	return o, nil
}

// maxOpeners bounds the pid namespaces below a container's own that have an opener.
const maxOpeners = 16

// drop ends an opener that is of no use any more.
func (s *Scope) drop(ns uint64, o *opener.Opener) {
	s.mu.Lock()
	if e := s.openers[ns]; e != nil && e.opener == o {
		delete(s.openers, ns)
	}
	s.mu.Unlock()
	_ = o.Close() // it has failed before
}

// Trim ends the openers that were not used for some time, and tells whether there
// are others.
func (s *Scope) Trim(unused time.Duration) bool {
	var old []*opener.Opener
	s.mu.Lock()
	for ns, e := range s.openers {
		if time.Since(e.used) > unused {
			old = append(old, e.opener)
			delete(s.openers, ns)
		}
	}
	left := len(s.openers) > 0
	s.mu.Unlock()
	for _, o := range old {
		_ = o.Close() // nothing is asked of it any more
	}
	return left
}

// Close ends the openers. Nothing may be served for the scope any more.
func (s *Scope) Close() error {
	s.Trim(-1)
	return s.cgroup.Close()
}
