// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nsfs

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/tracens"
)

// Where the kernel cannot pass memory through, programs get it from a socket in root/:
// who connects to root/ring.socket receives the number of a ring, 8 bytes, with its file,
// and has said whose it is (ring.Command) before it hangs up.

// socketNode is the socket's file.
type socketNode struct{ files }

var _ fs.NodeMknoder = (*rootDir)(nil)

// Mknod makes the socket, for nobody but us.
func (d *rootDir) Mknod(ctx context.Context, name string, mode, _ uint32, out *fuse.EntryOut) (*fs.Inode,
	syscall.Errno) {
	tid, err := caller(ctx)
	if err != nil {
		return nil, errno(err)
	}
	st, err := procfs.New("").Proc(tid).Status()
	if err != nil || st.TGID != os.Getpid() || name != ringSocket || mode&syscall.S_IFMT != syscall.S_IFSOCK {
		return nil, syscall.EPERM
	}
	n := &socketNode{files{of: d.of, kind: syscall.S_IFSOCK, mask: 0o666}}
	n.attr(&out.Attr)
	return d.NewPersistentInode(ctx, n, fs.StableAttr{Mode: syscall.S_IFSOCK}), 0
}

// serveRings gives rings to who connects, while the namespace is there.
func (f *FS) serveRings(ns *tracens.Namespace) {
	l, err := f.listen(ns)
	if err != nil {
		f.log.Printf("rings of %s: %v", ns.Name, err)
		return
	}
	r := f.rings.of(ns)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		_ = l.Close() // a socket of ours
		return
	}
	r.listener = l
	f.readers.Go(func() { r.accept(l) })
}

// listen makes the socket of a namespace.
func (f *FS) listen(ns *tracens.Namespace) (*net.UnixListener, error) {
	fd, err := sys.ListenApart(f.dir+"/"+ns.Name+"/root", ringSocket)
	if err != nil {
		return nil, err
	}
	file := fd.File(ringSocket)
	l, err := net.FileListener(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	unix := l.(*net.UnixListener)
	unix.SetUnlinkOnClose(false) // it goes with the namespace
	return unix, nil
}

// accept gives rings to who connects, until the listener is closed.
func (r *rings) accept(l *net.UnixListener) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return
		}
		if r.hold(conn) {
			r.fs.readers.Go(func() { r.give(conn) })
		}
	}
}

// hold notes a connection, or closes it where there are too many.
func (r *rings) hold(conn *net.UnixConn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.most > 0 && len(r.conns) >= r.most {
		_ = conn.Close() // the program finds the end
		return false
	}
	r.conns[conn] = true
	return true
}

// release closes a connection.
func (r *rings) release(conn *net.UnixConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, conn)
	_ = conn.Close() // nothing is on its way
}

// give gives one ring, and takes it back if its program hangs up before it has said whose
// it is.
func (r *rings) give(conn *net.UnixConn) {
	defer r.release(conn)
	o, err := r.openFor(conn)
	if err != nil {
		return // the program finds the end
	}
	defer r.drop(o)
	rights := syscall.UnixRights(o.fd.Int())
	if _, _, err = conn.WriteMsgUnix(binary.NativeEndian.AppendUint64(nil, o.id), rights, nil); err != nil {
		return
	}
	_, _ = conn.Read(make([]byte, 1)) // until it hangs up
}

// openFor makes a ring for the process at the other end of a connection.
func (r *rings) openFor(conn *net.UnixConn) (*openRing, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var peer *syscall.Ucred
	controlErr := raw.Control(func(fd uintptr) {
		peer, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err = errors.Join(controlErr, err); err != nil {
		return nil, err
	}
	return r.open(newRing(), int(peer.Pid))
}
