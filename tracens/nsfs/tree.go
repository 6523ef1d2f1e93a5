// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nsfs

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/gantry-tools/gantry/tracens"
	"github.com/gantry-tools/gantry/tracens/events"
)

// top is the directory that is mounted: one directory for each namespace.
type top struct {
	fs.Inode
	fs *FS
}

var (
	_ fs.NodeMkdirer   = (*top)(nil)
	_ fs.NodeRmdirer   = (*top)(nil)
	_ fs.NodeGetattrer = (*top)(nil)
	_ fs.NodeGetattrer = (*files)(nil)
	_ fs.NodeLookuper  = (*eventsDir)(nil)
	_ fs.NodeReaddirer = (*eventsDir)(nil)
	_ fs.NodeOpener    = (*options)(nil)
	_ fs.NodeOpener    = (*textFile)(nil)
	_ fs.NodeSetattrer = (*options)(nil)
	_ fs.NodeSetattrer = (*files)(nil)
	_ fs.FileReader    = (*text)(nil)
	_ fs.FileWriter    = (*text)(nil)
	_ fs.FileReleaser  = (*text)(nil)
	_ fs.InodeEmbedder = (*space)(nil)
	_ fs.NodeGetattrer = (*space)(nil)
	_ fs.NodeUnlinker  = (*space)(nil)
	_ fs.NodeRmdirer   = (*space)(nil)
)

// Modes of what is the administrator's.
const (
	topMode     = syscall.S_IFDIR | 0o755
	spaceMode   = syscall.S_IFDIR | 0o755
	optionsMode = syscall.S_IFREG | 0o640
)

func (t *top) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode = topMode
	return 0
}

// Mkdir makes a namespace.
func (t *top) Mkdir(ctx context.Context, name string, _ uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	ns, err := t.fs.registry.Create(name)
	if err != nil {
		return nil, errno(err)
	}
	out.Mode = spaceMode
	s := &space{of: of{t.fs, ns}}
	node := t.NewInode(ctx, s, fs.StableAttr{Mode: syscall.S_IFDIR})
	s.fill(ctx, node)
	t.serve(ns)
	t.fs.keep(ns)
	return node, 0
}

// serve gives rings to programs, where that takes a socket.
func (t *top) serve(ns *tracens.Namespace) {
	if t.fs.noPassthrough != nil {
		// The directory can be entered once it is made.
		t.fs.readers.Go(func() { t.fs.serveRings(ns) })
	}
}

// Rmdir ends a namespace.
func (t *top) Rmdir(_ context.Context, name string) syscall.Errno {
	if ns, err := t.fs.registry.Find(name); err == nil {
		t.fs.rings.of(ns).discard()
	}
	node := t.GetChild(name)
	err := t.fs.registry.Remove(name)
	if err == nil {
		t.fs.forget(name)
		if node != nil {
			t.fs.readers.Go(func() { forgetRoot(node) }) // the kernel waits for our answer first
		}
	}
	return errno(err)
}

// rootName is the directory of a namespace that containers mount.
const rootName = "root"

// of is the namespace that a file belongs to.
type of struct {
	fs *FS
	ns *tracens.Namespace
}

func (o *of) set() *events.Set { return o.fs.events.Of(o.ns) }

// space is the directory of a namespace.
type space struct {
	fs.Inode
	of
}

func (s *space) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode = spaceMode
	return 0
}

// What is in a namespace comes and goes with it.
func (s *space) Unlink(context.Context, string) syscall.Errno { return syscall.EPERM }
func (s *space) Rmdir(context.Context, string) syscall.Errno  { return syscall.EPERM }

// fill makes what every namespace has.
func (s *space) fill(ctx context.Context, node *fs.Inode) {
	add := func(dir *fs.Inode, name string, child fs.InodeEmbedder, mode uint32) *fs.Inode {
		n := dir.NewPersistentInode(ctx, child, fs.StableAttr{Mode: mode})
		dir.AddChild(name, n, true)
		return n
	}
	add(node, "options", &options{of: s.of}, syscall.S_IFREG)
	add(node, "records", &recordsFile{of: s.of}, syscall.S_IFREG)
	root := add(node, rootName, &rootDir{files{of: s.of, kind: syscall.S_IFDIR, mask: 0o777}}, syscall.S_IFDIR)
	add(root, "user_events_data", &dataFile{files{of: s.of, kind: syscall.S_IFREG, mask: 0o666}}, syscall.S_IFREG)
	add(root, "user_events_status", &textFile{
		files: files{of: s.of, kind: syscall.S_IFREG, mask: 0o444},
		read:  func() (string, error) { return s.set().Status(), nil },
	}, syscall.S_IFREG)
	add(root, "marker", newMarker(s.of), syscall.S_IFREG)
	add(root, "trace_pipe", &pipeFile{files{of: s.of, kind: syscall.S_IFREG, mask: 0o444}}, syscall.S_IFREG)
	add(root, "events", &eventsDir{files{of: s.of, kind: syscall.S_IFDIR, mask: 0o555}}, syscall.S_IFDIR)
}

// files is what lies in root/: whose it is says the options file.
type files struct {
	fs.Inode
	of
	kind, mask uint32
}

func (f *files) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	f.attr(&out.Attr)
	return 0
}

func (f *files) attr(a *fuse.Attr) {
	uid, gid, mode := f.fs.dirs.of(f.ns).get()
	a.Uid, a.Gid, a.Mode = uid, gid, f.kind|mode&f.mask
	// Who may search a directory may as well read what is in it.
	if f.kind == syscall.S_IFDIR {
		a.Mode |= (a.Mode & 0o444) >> 2
	}
}

// Setattr takes an O_TRUNC, and nothing else: owner and mode are options.
func (f *files) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if in.Valid&(fuse.FATTR_MODE|fuse.FATTR_UID|fuse.FATTR_GID) != 0 {
		return syscall.EPERM
	}
	f.attr(&out.Attr)
	return 0
}

// rootDir is root/: what was made with it, and a ring for everybody who opens one.
type rootDir struct{ files }

var (
	_ fs.NodeLookuper  = (*rootDir)(nil)
	_ fs.NodeReaddirer = (*rootDir)(nil)
)

func (d *rootDir) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	var list []fuse.DirEntry
	for name, child := range d.Children() {
		list = append(list, fuse.DirEntry{Name: name, Mode: child.Mode()})
	}
	if d.GetChild(ringFile) == nil {
		list = append(list, fuse.DirEntry{Name: ringFile, Mode: syscall.S_IFREG})
	}
	return fs.NewListDirStream(list), 0
}

func (d *rootDir) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if name == ringFile {
		n := &ringNode{files: files{of: d.of, kind: syscall.S_IFREG, mask: 0o666}}
		n.attr(&out.Attr)
		return d.NewInode(ctx, n, fs.StableAttr{Mode: syscall.S_IFREG, Ino: newRing()}), 0
	}
	child := d.GetChild(name)
	if child == nil {
		return nil, syscall.ENOENT
	}
	if a, ok := child.Operations().(interface{ attr(*fuse.Attr) }); ok {
		a.attr(&out.Attr)
	}
	return child, 0
}

// eventsDir is root/events: a directory for each event.
type eventsDir struct{ files }

func (d *eventsDir) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	var list []fuse.DirEntry
	for _, e := range d.set().List() {
		list = append(list, fuse.DirEntry{Name: e.Name, Mode: syscall.S_IFDIR})
	}
	return fs.NewListDirStream(list), 0
}

func (d *eventsDir) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	e := d.set().Find(name)
	if e == nil {
		return nil, syscall.ENOENT
	}
	dir := &files{of: d.of, kind: syscall.S_IFDIR, mask: 0o555}
	node := d.NewInode(ctx, dir, fs.StableAttr{Mode: syscall.S_IFDIR})
	dir.attr(&out.Attr)
	for _, child := range []struct {
		name  string
		mask  uint32
		read  func() (string, error)
		write func(string) error
	}{
		{"format", 0o444, func() (string, error) { return e.Format(e.ID), nil }, nil},
		{"id", 0o444, func() (string, error) { return itoaLine(e.ID), nil }, nil},
		{"enable", 0o666, func() (string, error) { return boolLine(e.Enabled()), nil }, func(text string) error {
			on, err := parseBool(text)
			if err != nil {
				return err
			}
			return d.set().SetEnabled(name, on)
		}},
	} {
		f := &textFile{
			files: files{of: d.of, kind: syscall.S_IFREG, mask: child.mask}, read: child.read, write: child.write,
		}
		node.AddChild(child.name, node.NewPersistentInode(ctx, f, fs.StableAttr{Mode: syscall.S_IFREG}), true)
	}
	return node, 0
}
