// SPDX-License-Identifier: Apache-2.0

package container

import (
	"path/filepath"
	"strings"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// StateWatch tells of containers as soon as runc or crun writes their state,
// which is before their program begins: a container may be gone when the runtimes
// are asked the next time. It watches directories that only root writes.
type StateWatch struct {
	fs      procfs.FS
	tree    *procfs.CgroupTree // and prefix, as in Resolver
	prefix  string
	inotify *sys.Inotify
	// what the directories of watches are
	dirs map[int32]watchedDir
}

// watchedDir is a directory that is watched.
type watchedDir struct {
	path string
	kind watchKind
	id   string // of the container whose directory it is
}

type watchKind uint8

const (
	parentDir    watchKind = iota // a directory of states may appear below it
	statesDir                     // a runtime's --root: one directory for each container
	containerDir                  // a container's
)

// maxWatches bounds the directories that are watched.
const maxWatches = 1 << 14

// WatchStates begins to watch the state directories below the resolver's root. The
// caller reads it with Next, and closes it.
func (r *Resolver) WatchStates() (*StateWatch, error) {
	n, err := sys.NewInotify()
	if err != nil {
		return nil, err
	}
	w := &StateWatch{fs: r.fs, tree: r.tree, prefix: r.prefix, inotify: n, dirs: make(map[int32]watchedDir)}
	w.extend()
	return w, nil
}

// Close ends the watch, and a Next that waits. A nil StateWatch is closed.
func (w *StateWatch) Close() error {
	if w == nil {
		return nil
	}
	return w.inotify.Close()
}

// Next waits for states that were written, and returns what they tell. Of a
// container whose first process still runs, the namespaces are that process's.
// The error is os.ErrClosed after Close.
func (w *StateWatch) Next() ([]Info, error) {
	for {
		events, err := w.inotify.Read()
		if err != nil {
			return nil, err
		}
		var list []Info
		for _, e := range events {
			w.event(&e, &list)
		}
		if len(list) > 0 {
			return list, nil
		}
	}
}

func (w *StateWatch) event(e *sys.InotifyEvent, list *[]Info) {
	dir, ok := w.dirs[e.Watch]
	switch {
	case e.Mask&sys.InOverflow != 0:
		*list = append(*list, w.extend()...)
	case !ok:
	case e.Mask&sys.InIgnored != 0:
		delete(w.dirs, e.Watch)
	case dir.kind == parentDir && e.Mask&sys.InIsDir != 0:
		*list = append(*list, w.extend()...)
	case dir.kind == statesDir && e.Mask&sys.InIsDir != 0:
		*list = append(*list, w.enter(dir.path, e.Name)...)
	case dir.kind == containerDir && isState(e.Name):
		*list = append(*list, w.read(filepath.Dir(dir.path), dir.id)...)
	}
}

// isState reports whether a runtime keeps its state in files of that name.
func isState(name string) bool { return name == "state.json" || name == "status" }

// extend watches the directories of states that there are by now, and those in
// which more may appear. It returns what new ones tell.
func (w *StateWatch) extend() (list []Info) {
	for _, pattern := range ociDirs(w.fs) {
		if strings.HasPrefix(pattern, "run/user/") || !strings.HasPrefix(pattern, "run/") {
			continue // a user's
		}
		parts := strings.Split(pattern, "/")
		for n := 1; n < len(parts); n++ {
			for _, dir := range expand(w.fs, strings.Join(parts[:n], "/")) {
				w.add(dir, watchedDir{path: dir, kind: parentDir}, sys.InCreate|sys.InMovedTo)
			}
		}
		for _, dir := range expand(w.fs, pattern) {
			if !w.add(dir, watchedDir{path: dir, kind: statesDir}, sys.InCreate|sys.InMovedTo) {
				continue
			}
			ids, err := subdirs(dir)
			for _, id := range ids {
				if err == nil {
					list = append(list, w.enter(dir, id)...)
				}
			}
		}
	}
	return list
}

// add watches a directory, and reports whether it was not watched before.
func (w *StateWatch) add(dir string, as watchedDir, mask uint32) bool {
	if uid, mode, err := owner(dir); err != nil || uid != 0 || mode&0o022 != 0 || len(w.dirs) >= maxWatches {
		return false
	}
	watch, err := w.inotify.AddDir(dir, mask)
	if err != nil || w.dirs[watch].path != "" && w.dirs[watch].kind >= as.kind {
		return false
	}
	w.dirs[watch] = as
	return true
}

// enter watches the directory of a container, and returns what is in it
// already.
func (w *StateWatch) enter(states, id string) []Info {
	dir := filepath.Join(states, id)
	if !w.add(dir, watchedDir{path: dir, kind: containerDir, id: id}, sys.InCloseWrite|sys.InMovedTo) {
		return nil
	}
	return w.read(states, id)
}

// read is what the state of a container tells, nothing if it has none yet.
func (w *StateWatch) read(states, id string) []Info {
	in, err := OCIState{states}.container(id)
	if err != nil || in.Owner != 0 {
		return nil // the next event, or the next question to the runtime, tells
	}
	w.see(&in)
	return []Info{in}
}

// see completes an info by its first process, if that runs: the namespaces, and
// the cgroup with its id, for the next container may have one of the same path.
func (w *StateWatch) see(in *Info) {
	p := w.fs.Proc(in.PID)
	st, err := p.Stat()
	if err != nil || st.Start() != in.StartTime || w.tree == nil {
		return
	}
	ns, err := readNamespaces(p)
	if err != nil {
		return
	}
	list, err := p.Cgroups()
	if err != nil {
		return
	}
	at := w.tree.Of(list)
	if at == nil {
		return
	}
	dir, err := w.tree.Dir(at.Path)
	if err != nil {
		return
	}
	path := w.prefix + strings.TrimPrefix(dir, w.tree.Point)
	if in.CgroupPath = ownCgroup(path, in.cgroup); in.CgroupPath != "" {
		id, err := procfs.Inode(w.tree.Point + strings.TrimPrefix(in.CgroupPath, w.prefix))
		if err != nil {
			in.CgroupPath = ""
			return
		}
		in.CgroupID = CgroupID(id)
	}
	in.Namespaces, in.seen = ns, true
}

// Told adds what a StateWatch told to the table. Containers that have ended by now
// are among them. It returns those whose cgroup the table does not know yet: to
// be told again when it does, or for the last time.
func (r *Resolver) Told(list []Info, last bool) (again []Info) {
	for _, in := range list {
		in.clip()
		switch {
		case in.ID == "" || !r.table.hasCapacity():
		case in.seen:
			r.table.AddCgroup(in.CgroupID, in.CgroupPath)
			r.table.Add(in.Container)
		case r.complete(&in) || r.remember(&in):
			r.table.Add(in.Container)
		case !last:
			again = append(again, in)
		}
	}
	return again
}
