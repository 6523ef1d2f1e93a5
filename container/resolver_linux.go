// SPDX-License-Identifier: Apache-2.0

package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
)

// ResolverOptions says where to look. The zero value is this machine.
type ResolverOptions struct {
	// Root is the directory below which proc, sys and run are; default "/".
	Root string
	// Sources are asked in this order, and of two names the later counts;
	// default DefaultSources(Root), found anew by each Refresh.
	Sources []Source
	// Sockets are asked after the default sources.
	Sockets []Socket
	// Timeout is how long one source may take; default 2 s.
	Timeout time.Duration
}

const defaultTimeout = 2 * time.Second

// Resolver finds the containers of a machine. It is not safe for concurrent
// use.
type Resolver struct {
	fs      procfs.FS
	trees   *procfs.CgroupTrees
	tree    *procfs.CgroupTree // nil if none is mounted
	noIDs   bool               // perf events have the ids of another tree
	prefix  string             // in front of the paths of tree.Walk
	nsRoot  string             // of the own cgroup namespace, if ".." is in tree.Root
	sources []Source
	sockets []Socket
	timeout time.Duration
	table   Table
	alone   map[*Container]int // processes of containers without a cgroup
	ended   bool               // RememberEnded
	among   func(context.Context) ([]int, bool)
}

// Warning is something that could not be read; names may be missing.
type Warning struct {
	Where string
	Err   error
}

// Error is one line, cleaned for printing.
func (w Warning) Error() string { return Printable(w.Where + ": " + w.Err.Error()) }

// Unwrap is the cause.
func (w Warning) Unwrap() error { return w.Err }

// ErrNoCgroupIDs says that samples will not tell their cgroup, for their
// hierarchy is not mounted: only namespaces tell containers apart.
var ErrNoCgroupIDs = errors.New("the cgroup tree of perf events is not mounted, only namespaces tell samples apart")

// NewResolver is a resolver that has found nothing yet: call Refresh.
func NewResolver(o *ResolverOptions) (*Resolver, error) {
	if o == nil {
		o = &ResolverOptions{}
	}
	r := &Resolver{fs: procfs.New(o.Root), sources: o.Sources, sockets: o.Sockets, timeout: o.Timeout}
	if r.timeout == 0 {
		r.timeout = defaultTimeout
	}
	trees, err := r.fs.CgroupTrees()
	if err != nil {
		return nil, err
	}
	r.trees = trees
	if r.tree = trees.Perf(); r.tree == nil {
		r.tree, r.noIDs = trees.Fallback(), true
	}
	if r.tree != nil && r.tree.Root != "/" && !strings.HasPrefix(r.tree.Root, "/..") {
		r.prefix = r.tree.Root
	}
	r.table.Host, err = r.host()
	return r, err
}

// host is the namespaces of the first process; of the kernel's threads, if those
// are not readable, which some machines refuse even root; or of this process.
func (r *Resolver) host() (Namespaces, error) {
	ns, err := readNamespaces(r.fs.Proc(1))
	if err != nil {
		if st, e := r.fs.Proc(2).Stat(); e == nil && st.KernelThread() {
			ns, err = readNamespaces(r.fs.Proc(2))
		}
	}
	if err != nil {
		ns, err = readNamespaces(r.fs.Self())
	}
	if err != nil {
		return ns, fmt.Errorf("read the host's namespaces: %w", err)
	}
	return ns, nil
}

// Inside tells a resolver that runs in a container, and so sees neither the host nor
// its runtimes, what somebody on the host says: what the host's namespaces are, and
// which container this process is in. It is called before Refresh.
func (r *Resolver) Inside(host Namespaces, c *Container) {
	r.table.Host = host
	r.table.Add(*c)
}

// readNamespaces reads all namespaces of a task; kinds that the kernel does
// not have stay unknown.
func readNamespaces(p procfs.Proc) (Namespaces, error) {
	var ns Namespaces
	for n := range NumNS {
		ino, err := p.Namespace(n.String())
		if errors.Is(err, fs.ErrNotExist) && n != PIDNS {
			continue
		}
		if err != nil {
			return Namespaces{}, err
		}
		ns[n] = ino
	}
	return ns, nil
}

// Table is what was found. It belongs to the resolver and changes with
// Refresh.
func (r *Resolver) Table() *Table { return &r.table }

// Refresh looks again: at the cgroup tree, the sources and the processes.
// What is gone stays in the table. The warnings say what could not be read.
func (r *Resolver) Refresh(ctx context.Context) []Warning {
	warnings := r.walk()
	sources := r.sources
	if sources == nil {
		sources = DefaultSources(r.fs.Root())
		for _, s := range r.sockets {
			sources = append(sources, s.source())
		}
	}
	// Users may let their sources hang: together they have the time of one.
	left := r.timeout
	for _, s := range sources {
		limit := r.timeout
		_, user := s.(userSource)
		if user {
			limit = max(left, 1)
		}
		begun := time.Now()
		if err := r.ask(ctx, s, limit); err != nil {
			warnings = append(warnings, Warning{s.Name(), err})
		}
		if user {
			left -= time.Since(begun)
		}
	}
	if err := r.scan(ctx); err != nil {
		warnings = append(warnings, Warning{"processes", err})
	}
	if r.table.Full {
		warnings = append(warnings, Warning{"containers", ErrFull})
	}
	return warnings
}

// userSource is a source that is a user's to make and to serve.
type userSource struct{ Source }

// ErrFull says that not all containers and cgroups are known.
var ErrFull = fmt.Errorf("there are more than %d, or %d cgroups: not all are known", maxContainers, maxCgroups)

// walk adds every cgroup of the tree.
func (r *Resolver) walk() (warnings []Warning) {
	if r.noIDs {
		warnings = append(warnings, Warning{"cgroups", ErrNoCgroupIDs})
	}
	if r.tree == nil {
		return warnings
	}
	err := r.tree.Walk(func(id uint64, path string) error {
		r.table.AddCgroup(CgroupID(id), r.full(path))
		return nil
	})
	if err != nil {
		warnings = append(warnings, Warning{"cgroups", err})
	}
	return warnings
}

// full is the path of a cgroup from its path below the tree's mount point.
func (r *Resolver) full(path string) string {
	if r.prefix == "" {
		return path
	}
	return r.prefix + strings.TrimSuffix(path, "/")
}

// ask adds what one source tells, within a time.
func (r *Resolver) ask(ctx context.Context, s Source, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	list, err := s.Containers(ctx)
	for i := range list {
		if in := &list[i]; r.admit(in) {
			r.table.Add(in.Container)
		}
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no answer in %v: %w", limit.Round(time.Millisecond), ctx.Err())
	}
	return err
}

// admit completes an info by what the kernel says, and reports whether it is
// to be believed.
func (r *Resolver) admit(in *Info) bool {
	in.clip()
	list := r.table.byID[in.ID]
	if in.ID == "" || in.Hint && len(list) == 0 || !r.table.hasCapacity() {
		return false
	}
	if in.PID > 0 {
		return r.complete(in) || r.ended && r.remember(in)
	}
	if in.Owner == 0 {
		return true
	}
	// A user tells of a container by its id, which may be another's, too: the
	// one in the user's slice is meant, and no other.
	for _, known := range slices.Backward(list[max(0, len(list)-maxSame):]) {
		if inSlice(known.CgroupPath, in.Owner) {
			in.CgroupID, in.CgroupPath, in.StartTime = known.CgroupID, known.CgroupPath, known.StartTime
			return true
		}
	}
	return false
}

// complete fills in what the container's first process tells. It is false if
// that process is gone, or is not one of the info's owner.
func (r *Resolver) complete(in *Info) bool {
	p := r.fs.Proc(in.PID)
	st, err := p.Stat()
	if err != nil || st.State == 'Z' || in.StartTime != 0 && in.StartTime != st.Start() {
		return false
	}
	in.StartTime = st.Start()
	task, err := r.Task(in.PID)
	if err != nil && procfs.Gone(err) {
		return false
	}
	if in.Owner != 0 && !r.owns(p, task.CgroupPath, in.Owner) {
		return false
	}
	in.Namespaces = task.Namespaces
	in.CgroupPath = ownCgroup(task.CgroupPath, in.cgroup)
	in.CgroupID = 0
	if in.CgroupPath != "" {
		in.CgroupID = r.cgroupID(in.CgroupPath)
	}
	return true
}

// RememberEnded makes Refresh take containers whose first process has ended, as
// long as their runtime has not forgotten them and the table knows their
// cgroup. It is for a recording: what ran a moment ago has samples.
func (r *Resolver) RememberEnded() { r.ended = true }

// Among has Refresh look for containers that no cgroup tells of among the
// processes of a list, which has to have all that are in a pid and a mount
// namespace other than the host's. list is called by each Refresh, after it
// has asked the sources; where it is false, all processes are looked at. nil
// is how it was before.
func (r *Resolver) Among(list func(context.Context) (pids []int, ok bool)) { r.among = list }

// remember completes an info by the cgroup that the runtime noted. Nothing can
// be checked any more, so only root's word counts.
func (r *Resolver) remember(in *Info) bool {
	if in.Owner != 0 {
		return false
	}
	for path := in.cgroup; path != "" && path != "/"; {
		if id, ok := r.table.ids[path]; ok && !r.table.reused[path] {
			in.CgroupPath, in.CgroupID, in.Namespaces = path, id, Namespaces{}
			return true
		}
		// The runtime may have noted a directory: skip its mount point.
		next := strings.IndexByte(path[1:], '/')
		if next < 0 {
			return false
		}
		path = path[1+next:]
	}
	return false
}

// owns reports whether a process belongs to a user who says so.
func (r *Resolver) owns(p procfs.Proc, cgroup string, uid uint32) bool {
	st, err := p.Status()
	return err == nil && st.UID[0] == uid || inSlice(cgroup, uid)
}

// inSlice reports whether a cgroup is in the slice that systemd gives a user.
func inSlice(path string, uid uint32) bool {
	return strings.Contains(path, fmt.Sprintf("/user-%d.slice/", uid))
}

// ownCgroup is the cgroup of the container whose first process is in path:
// what the runtime noted, if the process is there or below, else what the
// text names. It is "" for a container that shares the cgroup of others.
func ownCgroup(path, noted string) string {
	for noted != "" && noted != "/" {
		if path == noted || strings.HasPrefix(path, noted+"/") {
			return noted
		}
		// The runtime may have noted a directory: skip its mount point.
		next := strings.IndexByte(noted[1:], '/')
		if next < 0 {
			break
		}
		noted = noted[1+next:]
	}
	if ref, ok := FromCgroupPath(path); ok && ref.Kind == KindContainer {
		return ref.Path
	}
	return ""
}

// cgroupID is the id of a cgroup by its full path, 0 if it is not known.
func (r *Resolver) cgroupID(path string) CgroupID {
	rest, ok := strings.CutPrefix(path, r.prefix)
	if r.tree == nil || !ok {
		return 0
	}
	id, err := procfs.Inode(r.tree.Point + rest)
	if err != nil {
		return 0
	}
	r.table.AddCgroup(CgroupID(id), path)
	return CgroupID(id)
}

// Task finds out where a task is now: cgroup and namespaces. With an error
// the result holds what could be read.
func (r *Resolver) Task(pid int) (Task, error) {
	t, _, err := r.task(pid)
	return t, err
}

// task also gives the task's places in all hierarchies.
func (r *Resolver) task(pid int) (t Task, list []procfs.Cgroup, err error) {
	p := r.fs.Proc(pid)
	list, err = p.Cgroups()
	if err != nil {
		return t, nil, err
	}
	if r.tree != nil {
		if c := r.tree.Of(list); c != nil {
			t.CgroupPath, err = r.absolute(c.Path)
		}
		if t.CgroupPath != "" {
			t.Cgroup = r.cgroupID(t.CgroupPath)
		}
	}
	ns, nsErr := readNamespaces(p)
	t.Namespaces = ns
	return t, list, errors.Join(err, nsErr)
}

// absolute is the full path of the cgroup that a cgroup file calls path.
func (r *Resolver) absolute(path string) (string, error) {
	dir, err := r.tree.Dir(path)
	if err == nil {
		rest := strings.TrimPrefix(dir, r.tree.Point)
		if rest == "" {
			rest = "/"
		}
		return r.full(rest), nil
	}
	if !strings.HasPrefix(r.tree.Root, "/..") {
		return "", err
	}
	return r.fromNSRoot(path)
}
