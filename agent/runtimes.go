// SPDX-License-Identifier: Apache-2.0

//go:build linux

package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/gantry-tools/gantry/agent/broker"
	"github.com/gantry-tools/gantry/agent/client"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// patience is how long a runtime, or a container's process, may take for a message.
const patience = 10 * time.Second

// runtime takes a listener from a container runtime: a message with the state of the
// container's process (the OCI runtime specification, "Seccomp", listenerPath).
func (w *worker) runtime(ctx context.Context, conn *net.UnixConn) {
	st, fd, err := receiveState(conn)
	if err == nil {
		var slot int
		if slot, err = w.slots.take(); err == nil {
			// From here on it outlives this worker.
			if err = w.send(message{Kind: kindKeep, Slot: slot, State: st}, fd); err == nil {
				w.listen(ctx, fd, slot, st)
				return
			}
			w.slots.free(slot)
		}
	}
	fd.Close()
	if errors.Is(err, io.EOF) {
		return // somebody asked whether we are there
	}
	w.stats.rejected.Add(1)
	w.o.Log(fmt.Sprintf("a runtime's message: %v", err))
}

func receiveState(conn *net.UnixConn) (state, *sys.FD, error) {
	peer, err := sys.PeerOf(conn)
	if err != nil {
		return state{}, nil, err
	}
	peer.Pidfd.Close()
	if peer.UID != uint32(os.Getuid()) {
		return state{}, nil, fmt.Errorf("it is user %d's: %w", peer.UID, syscall.EPERM)
	}
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return state{}, nil, err
	}
	buf := make([]byte, client.MaxMessage)
	n, fd, err := sys.ReceiveConn(conn, buf)
	if err != nil {
		return state{}, nil, err
	}
	// A stream: the descriptor comes with its first part.
	var m specs.ContainerProcessState
	for {
		if err = json.Unmarshal(buf[:n], &m); err == nil || n == len(buf) {
			break
		}
		more, e := conn.Read(buf[n:])
		if e != nil || more == 0 {
			break
		}
		n += more
	}
	switch {
	case err != nil:
	case fd == nil || !slices.Contains(m.Fds, specs.SeccompFdName):
		err = errors.New("no seccomp listener in it")
	default:
		return state{ID: m.State.ID, PID: m.State.Pid}, fd, nil
	}
	return state{}, nil, errors.Join(err, fd.Close())
}

// listen serves a listener in a goroutine, until its processes ended.
func (w *worker) listen(ctx context.Context, fd *sys.FD, slot int, st state) {
	l, err := broker.NewListener(fd, &w.slots.calls[slot])
	if err != nil {
		w.o.Log(fmt.Sprintf("listener of container %q: %v", st.ID, err))
		w.drop(slot)
		return
	}
	w.mu.Lock()
	w.listeners[l] = true
	if w.stopping {
		l.Stop()
	}
	w.mu.Unlock()
	w.running.Go(func() {
		err := w.answer(ctx, l, st)
		w.mu.Lock()
		delete(w.listeners, l)
		stopping := w.stopping
		w.mu.Unlock()
		err = errors.Join(err, l.Close())
		if err != nil {
			w.o.Log(fmt.Sprintf("container %q: %v", st.ID, err))
		}
		if !stopping {
			w.drop(slot)
		}
	})
}

// drop gives a listener's slot back.
func (w *worker) drop(slot int) {
	w.slots.free(slot)
	if err := w.send(message{Kind: kindDrop, Slot: slot}, nil); err != nil {
		w.o.Log(fmt.Sprintf("supervisor: %v", err))
	}
}

// answer answers the calls of a listener. Who its processes are is asked with the first
// one: a runtime hands it over before it is done with the container.
func (w *worker) answer(ctx context.Context, l *broker.Listener, st state) error {
	for {
		tid, err := l.First()
		if err != nil || tid == 0 {
			return err
		}
		sc, err := w.scopeOf(ctx, l, tid, st)
		if err != nil {
			w.stats.unknown.Add(1)
			w.o.Log(fmt.Sprintf("container %q, process %d: %v", st.ID, tid, err))
			if err := l.Refuse(syscall.EACCES); err != nil {
				return err
			}
			continue
		}
		return errors.Join(sc.broker.Serve(l, sc.Scope), w.scopes.give(sc))
	}
}

// scopeOf is the container of the thread whose call a listener has received.
func (w *worker) scopeOf(ctx context.Context, l *broker.Listener, tid int, st state) (*scope, error) {
	p, err := w.finder.find(ctx, tid)
	if errors.Is(err, broker.ErrNoContainer) && st.PID > 0 {
		p, err = w.finder.unknown(st.ID, st.PID)
	}
	if err != nil {
		return nil, err
	}
	sc, err := w.scopes.take(p, cmp.Or(p.container.PID, st.PID), tid, w.rules.of(p))
	if err != nil {
		return nil, err
	}
	if !l.Valid() || !sc.Contains(tid) {
		return nil, errors.Join(broker.ErrNoContainer, w.scopes.give(sc))
	}
	return sc, nil
}
