// SPDX-License-Identifier: Apache-2.0

//go:build linux

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gantry-tools/gantry/agent/broker"
	"github.com/gantry-tools/gantry/agent/tracing"
	"github.com/gantry-tools/gantry/internal/config"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// WorkerOptions of Work.
type WorkerOptions struct {
	Config *config.Config
	// Version is what containers are told.
	Version string
	// Audit gets the decisions, lines of JSON; nil does without.
	Audit io.Writer
	// Metrics is the address of a page for Prometheus, "" for none.
	Metrics string
	// Tracing is a directory that is made anew with the tracepoints that some rule
	// allows, for containers to have mounted; "" is none.
	Tracing string
	// Log is told what happens, a line each.
	Log func(string)
}

// worker serves containers.
type worker struct {
	o      *WorkerOptions
	rules  *rules
	finder *finder
	scopes scopes
	slots  *slots

	control *sys.FD
	tell    sync.Mutex // for sending

	mu        sync.Mutex
	listeners map[*broker.Listener]bool
	conns     map[net.Conn]bool
	stopping  bool
	running   sync.WaitGroup
	stats     stats
	refusals  chan struct{}
}

// maxRefusals bounds the connections that wait for a word against them.
const maxRefusals = 32

// Work is a worker: it serves what its supervisor hands it, until ctx ends or the
// supervisor does.
func Work(ctx context.Context, o *WorkerOptions) (err error) {
	w := &worker{o: o, listeners: make(map[*broker.Listener]bool), conns: make(map[net.Conn]bool),
		refusals: make(chan struct{}, maxRefusals)}
	w.scopes.byID = make(map[uint64]*scope)
	if w.rules, err = newRules(o.Config, o.Audit); err != nil {
		return err
	}
	if w.finder, err = newFinder(o.Config.Sockets); err != nil {
		return err
	}
	if o.Tracing != "" {
		if err := writeTracing(o.Tracing, o.Config.Policy); err != nil {
			return err
		}
	}
	if w.control, err = sys.NewFD(controlFD); err != nil {
		return err
	}
	defer w.control.Close()
	if err := w.mapSlots(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := w.resume(ctx); err != nil {
		return err
	}
	return w.serve(ctx, cancel)
}

func (w *worker) mapSlots() (err error) {
	fd, err := sys.NewFD(slotsFD)
	if err != nil {
		return err
	}
	defer fd.Close()
	w.slots, err = mapSlots(fd)
	return err
}

// resume takes over the listeners of the worker before.
func (w *worker) resume(ctx context.Context) error {
	for {
		m, fd, err := receiveMessage(w.control)
		if err != nil {
			return fmt.Errorf("supervisor: %w", err)
		}
		switch {
		case m.Kind == kindBegin:
			fd.Close()
			return nil
		case m.Kind == kindKeep && fd != nil:
			w.slots.keep(m.Slot)
			w.listen(ctx, fd, m.Slot, m.State)
		default:
			fd.Close()
		}
	}
}

// serve runs everything until ctx ends.
func (w *worker) serve(ctx context.Context, cancel func()) error {
	var ends []func() error
	failed := make(chan error, 4)
	start := func(f func() error) {
		w.running.Go(func() { failed <- f() })
	}
	for _, l := range []struct {
		fd    int
		serve func(context.Context, *net.UnixConn)
		max   int
	}{{seccompFD, w.runtime, maxListeners}, {clientFD, w.client, maxConns}} {
		sock, err := listener(l.fd)
		if err != nil {
			return err
		}
		ends = append(ends, sock.Close)
		start(func() error { return w.accept(ctx, sock, l.serve, l.max) })
	}
	if w.o.Metrics != "" {
		end, run, err := w.servePage(w.o.Metrics)
		if err != nil {
			return err
		}
		ends = append(ends, end)
		start(run)
	}
	// The supervisor says no more: what can be read is its end.
	told := make(chan struct{})
	go func() {
		_, fd, _ := receiveMessage(w.control)
		fd.Close()
		cancel()
		close(told)
	}()
	defer func() { <-told }()
	defer func() { _ = sys.StopReceive(w.control) }() // it ended if that is not possible
	if err := w.send(message{Kind: kindReady}, nil); err != nil {
		return err
	}
	err := w.tick(ctx, failed)
	for _, end := range ends {
		_ = end() // that it is closed is all
	}
	w.stop()
	w.await()
	return errors.Join(err, w.rules.flush())
}

// lastWord is how long a worker waits for what it serves. A container may have the
// memory that its calls point to on a file system of its own, which never answers.
const lastWord = 2 * time.Second

// await waits until all that was served has returned, or gives that up.
func (w *worker) await() {
	done := make(chan struct{})
	go func() { w.running.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(lastWord):
		w.o.Log("a container keeps a call waiting; it is left to the next worker")
	}
}

// tick does what is to be done now and then, until ctx ends or something failed.
func (w *worker) tick(ctx context.Context, failed <-chan error) error {
	const every = 5 * time.Second
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-t.C:
			w.scopes.trim(every)
			if err := w.rules.flush(); err != nil {
				return err
			}
		}
	}
}

// stop makes all that is served return.
func (w *worker) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopping = true
	for l := range w.listeners {
		l.Stop()
	}
	for c := range w.conns {
		c.Close()
	}
}

func (w *worker) send(m message, fd *sys.FD) error {
	w.tell.Lock()
	defer w.tell.Unlock()
	return sendMessage(w.control, m, fd)
}

// listener is the socket that an inherited descriptor is.
func listener(number int) (*net.UnixListener, error) {
	f := os.NewFile(uintptr(number), "socket")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("inherited socket: %w", err)
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		l.Close()
		return nil, fmt.Errorf("inherited socket: %v is no Unix socket", l.Addr())
	}
	u.SetUnlinkOnClose(false)
	return u, nil
}

// accept serves the connections of a socket, so many at a time, each in a goroutine
// that ends with it. More wait a moment: those of a container that has too many end soon.
func (w *worker) accept(ctx context.Context, l *net.UnixListener, serve func(context.Context, *net.UnixConn),
	most int) error {
	open := make(chan struct{}, most)
	for {
		conn, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			w.o.Log(fmt.Sprintf("accept: %v", err))
			// No descriptor may be left: others will be closed.
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		if !enter(ctx, open) || !w.add(conn) {
			conn.Close()
			continue
		}
		w.running.Go(func() {
			serve(ctx, conn)
			conn.Close()
			<-open
			w.mu.Lock()
			delete(w.conns, conn)
			w.mu.Unlock()
		})
	}
}

// enter takes a place, or reports that there is none for too long.
func enter(ctx context.Context, places chan<- struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
	case <-time.After(patience):
	}
	return false
}

// add takes a connection for one that is served, unless the worker ends.
func (w *worker) add(conn net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopping {
		w.conns[conn] = true
	}
	return !w.stopping
}

// maxConns bounds the connections of all containers.
const maxConns = 512

// writeTracing makes the directory of all tracepoints that a rule allows. Which
// container may open which is the rules' to say.
func writeTracing(dir string, policy []config.Rule) error {
	var patterns []string
	for i := range policy {
		patterns = append(patterns, policy[i].Tracepoints...)
	}
	points, err := tracing.Find(patterns)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(dir, "events")); err != nil {
		return err
	}
	if points == nil {
		return nil
	}
	return points.Write(dir)
}
