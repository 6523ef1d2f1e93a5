// SPDX-License-Identifier: Apache-2.0

//go:build linux

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/gantry-tools/gantry/agent/broker"
	"github.com/gantry-tools/gantry/agent/client"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// client serves a container's process that asks by itself, through the socket.
func (w *worker) client(ctx context.Context, conn *net.UnixConn) {
	peer, err := sys.PeerOf(conn)
	if err != nil {
		return // it is gone
	}
	defer peer.Pidfd.Close()
	sc, err := w.scopeOfPeer(ctx, peer)
	if err != nil {
		w.stats.unknown.Add(1)
		w.refuse(conn, syscall.EACCES, err.Error())
		return
	}
	select {
	case sc.clients <- struct{}{}:
		w.converse(conn, peer, sc)
		<-sc.clients
	default: // it has enough, and is not waited for
	}
	if err := w.scopes.give(sc); err != nil {
		w.o.Log(err.Error())
	}
}

// briefly is how long who is refused may take to ask.
const briefly = time.Second

// refuse answers the first request, whatever it is, and no other. Where many wait for
// that it hangs up.
func (w *worker) refuse(conn *net.UnixConn, errno syscall.Errno, why string) {
	select {
	case w.refusals <- struct{}{}:
		defer func() { <-w.refusals }()
	default:
		return
	}
	if err := conn.SetDeadline(time.Now().Add(briefly)); err != nil {
		return
	}
	_, group, err := sys.ReceiveConn(conn, make([]byte, client.MaxRequest))
	broker.Discard(group)
	if err == nil {
		w.reply(conn, &client.Answer{Errno: errno, Text: []byte(why)}, nil)
	}
}

// scopeOfPeer is the container of a process that connected.
func (w *worker) scopeOfPeer(ctx context.Context, peer *sys.Peer) (*scope, error) {
	p, err := w.finder.find(ctx, peer.PID)
	if err != nil {
		return nil, err
	}
	sc, err := w.scopes.take(p, p.container.PID, peer.PID, w.rules.of(p))
	if err != nil {
		return nil, err
	}
	// Its number was its own while we looked.
	if err := alive(peer.Pidfd); err != nil || !sc.Contains(peer.PID) {
		return nil, errors.Join(broker.ErrNoContainer, err, w.scopes.give(sc))
	}
	return sc, nil
}

// idleClient is after how long a connection ends on which nothing is asked.
const idleClient = time.Minute

// converse answers requests until the process hangs up.
func (w *worker) converse(conn *net.UnixConn, peer *sys.Peer, sc *scope) {
	buf := make([]byte, client.MaxRequest)
	for {
		if err := conn.SetDeadline(time.Now().Add(idleClient)); err != nil {
			return
		}
		n, group, err := sys.ReceiveConn(conn, buf)
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		var q client.Request
		if err == nil {
			q, err = client.DecodeRequest(buf[:n])
		}
		if err != nil {
			broker.Discard(group)
			return
		}
		fd, text, err := w.request(peer, sc, &q, group)
		a := &client.Answer{Text: text}
		if err != nil {
			a.Errno, a.Text = broker.Errno(err), []byte(err.Error())
		}
		ok := w.reply(conn, a, fd)
		fd.Close()
		if !ok {
			return
		}
	}
}

// request answers one request. group is closed.
func (w *worker) request(peer *sys.Peer, sc *scope, q *client.Request, group *sys.FD) (*sys.FD, []byte, error) {
	switch q.Kind {
	case client.KindOpen:
		fd, err := sc.broker.Open(sc.Scope, peer, &broker.Call{
			Attr: q.Attr, PID: int(q.PID), CPU: int(q.CPU), Group: group, Flags: sys.PerfFlags(q.Flags),
		})
		return fd, nil, err
	case client.KindAbout:
		broker.Discard(group)
		text, err := json.Marshal(w.about(sc))
		return nil, text, err
	}
	broker.Discard(group)
	return nil, nil, fmt.Errorf("request %d: %w", q.Kind, syscall.ENOSYS)
}

// maxLabels bounds the labels that a container is told.
const maxLabels = 64

func (w *worker) about(sc *scope) *client.About {
	p := sc.broker.Policy()
	a := &client.About{
		Version: w.o.Version, Container: *sc.place.container, Host: sc.place.table.Host,
		Tasks: p.Tasks.String(), AllTasks: p.AllTasks.String(), Kernel: p.Kernel, Tracepoints: p.Tracepoints,
	}
	c := &a.Container
	c.PID, c.CgroupID, c.CgroupPath, c.StartTime, c.Namespaces = 0, 0, "", 0, sc.place.task.Namespaces
	if len(c.Labels) > maxLabels {
		c.Labels = nil
	}
	return a
}

// reply sends an answer, and reports whether that went well: a process that does not
// read has nothing to wait for.
func (w *worker) reply(conn *net.UnixConn, a *client.Answer, fd *sys.FD) bool {
	var rights []byte
	if fd != nil {
		rights = syscall.UnixRights(fd.Int())
	}
	b := a.Append(nil)
	if len(b) > client.MaxMessage {
		b = (&client.Answer{Errno: syscall.EMSGSIZE, Text: []byte("the answer is too long")}).Append(nil)
	}
	if err := conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return false
	}
	_, _, err := conn.WriteMsgUnix(b, rights, nil)
	return err == nil
}
