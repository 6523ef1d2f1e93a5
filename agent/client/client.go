// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package client asks gantry's agent on the host for perf events, from inside a
// container that may not open them.
//
// Start with New, or with Dial, which connects at once: the agent's socket is where the
// container has it mounted. Close it in the end. The agent decides by who connected: a Client is of use to
// the process that dialled only.
package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Client is a connection to the agent. It is safe for concurrent use.
type Client struct {
	mu     sync.Mutex
	conn   *net.UnixConn
	failed error
	buf    []byte
}

// ErrNoAgent says that there is no agent, or none that answers.
var ErrNoAgent = errors.New("no gantry agent")

// Socket is the path of the agent's socket: what the environment says, or the usual.
func Socket() string {
	if path := os.Getenv(SocketEnv); path != "" {
		return path
	}
	return DefaultSocket
}

// New is a client that connects when it is asked first.
func New() *Client { return new(Client) }

// Dial connects to the agent.
func Dial() (*Client, error) {
	c := New()
	return c, c.dial()
}

func (c *Client) dial() (err error) {
	if c.conn == nil && c.failed == nil {
		c.conn, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: Socket(), Net: "unixpacket"})
		if err != nil {
			// Its errno is not that of an event.
			c.failed = fmt.Errorf("%w: %v", ErrNoAgent, err)
		}
	}
	return c.failed
}

// Close ends the connection; events that were opened stay.
func (c *Client) Close() error {
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}

// patience is how long an answer may take: the agent may just be restarted.
const patience = 10 * time.Second

// Refusal is the agent's word against an event.
type Refusal struct {
	Errno  syscall.Errno
	Reason string
}

func (r *Refusal) Error() string { return "gantry's agent: " + r.Reason }
func (r *Refusal) Unwrap() error { return r.Errno }

// Open opens an event as perf_event_open(2) does: pid -1 is all tasks of the
// container on one CPU, in place of the machine's. The error is a *Refusal, which
// unwraps to an errno, or ErrNoAgent.
func (c *Client) Open(attr []byte, pid, cpu int, group *sys.FD, flags sys.PerfFlags) (*sys.FD, error) {
	if pid == 0 {
		pid = syscall.Gettid()
	}
	q := Request{KindOpen, int32(pid), int32(cpu), uint32(flags), attr}
	_, fd, err := c.ask(&q, group)
	if err == nil && fd == nil {
		err = fmt.Errorf("%w: an answer without a descriptor", ErrMessage)
	}
	return fd, err
}

// About asks what the agent tells this process of its container.
func (c *Client) About() (*About, error) {
	text, fd, err := c.ask(&Request{Kind: KindAbout}, nil)
	fd.Close()
	if err != nil {
		return nil, err
	}
	about := new(About)
	if err := json.Unmarshal(text, about); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return about, nil
}

func (c *Client) ask(q *Request, group *sys.FD) ([]byte, *sys.FD, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.dial(); err != nil {
		return nil, nil, err
	}
	var rights []byte
	if group != nil {
		rights = syscall.UnixRights(group.Int())
	}
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, nil, fmt.Errorf("%w: %v", ErrNoAgent, err)
	}
	if c.buf == nil {
		c.buf = make([]byte, MaxMessage)
	}
	if _, _, err := c.conn.WriteMsgUnix(q.Append(c.buf[:0]), rights, nil); err != nil {
		return nil, nil, fmt.Errorf("%w: %v", ErrNoAgent, err)
	}
	n, fd, err := sys.ReceiveConn(c.conn, c.buf)
	if err == nil && n == 0 {
		err = net.ErrClosed
	}
	if err != nil {
		fd.Close()
		return nil, nil, fmt.Errorf("%w: %v", ErrNoAgent, err)
	}
	a, err := DecodeAnswer(c.buf[:n])
	if err == nil && a.Errno != 0 {
		err = &Refusal{a.Errno, string(a.Text)}
	}
	if err != nil {
		fd.Close()
		return nil, nil, err
	}
	return a.Text, fd, nil
}
