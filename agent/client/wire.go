// SPDX-License-Identifier: Apache-2.0

//go:build linux

package client

import (
	"encoding/binary"
	"errors"
	"syscall"

	"github.com/gantry-tools/gantry/container"
)

// DefaultSocket is where the agent's socket is, on the host and, in a container, if its
// directory is mounted there.
const DefaultSocket = "/run/gantry/client/agent.sock"

// SocketEnv is the variable that names another place.
const SocketEnv = "GANTRY_AGENT"

// Kinds of requests.
const (
	KindOpen  = 1 // open an event
	KindAbout = 2 // who am I, and what may I do: an About in JSON
)

// Bounds of messages, in bytes: MaxMessage of the agent's, MaxRequest of a process's.
const (
	MaxMessage = 64 << 10
	MaxRequest = requestHeader + 4096
)

// Request is what a process asks the agent for: a message of the socket, with the
// descriptor of the group's leader as its right, if there is one. The attr follows
// the header.
type Request struct {
	Kind     uint32
	PID, CPU int32
	Flags    uint32
	Attr     []byte
}

// Answer is the agent's: with Errno 0 the event is the message's right, or Text is
// what was asked for; else Text is why not.
type Answer struct {
	Errno syscall.Errno
	Text  []byte
}

const (
	requestHeader = 16
	answerHeader  = 4
)

// ErrMessage says that a message is none of this protocol.
var ErrMessage = errors.New("not a message of gantry's agent")

var order = binary.LittleEndian

// Append adds the message to b.
func (r *Request) Append(b []byte) []byte {
	b = order.AppendUint32(b, r.Kind)
	b = order.AppendUint32(b, uint32(r.PID))
	b = order.AppendUint32(b, uint32(r.CPU))
	b = order.AppendUint32(b, r.Flags)
	return append(b, r.Attr...)
}

// DecodeRequest reads a message; its Attr is part of b.
func DecodeRequest(b []byte) (Request, error) {
	if len(b) < requestHeader {
		return Request{}, ErrMessage
	}
	return Request{
		order.Uint32(b), int32(order.Uint32(b[4:])), int32(order.Uint32(b[8:])), order.Uint32(b[12:]),
		b[requestHeader:],
	}, nil
}

// Append adds the message to b.
func (a *Answer) Append(b []byte) []byte {
	return append(order.AppendUint32(b, uint32(a.Errno)), a.Text...)
}

// DecodeAnswer reads a message; its Text is part of b.
func DecodeAnswer(b []byte) (Answer, error) {
	if len(b) < answerHeader {
		return Answer{}, ErrMessage
	}
	return Answer{syscall.Errno(order.Uint32(b)), b[answerHeader:]}, nil
}

// About is what the agent tells a process of its container.
type About struct {
	// Version is the agent's.
	Version string `json:"version"`
	// Container is what the host knows of it; what is the host's own, such as the
	// numbers of processes and the paths of cgroups, is left out.
	Container container.Container `json:"container"`
	// Host is the host's namespaces.
	Host container.Namespaces `json:"host"`
	// Tasks and AllTasks are who may open events of tasks, and of all tasks: nobody,
	// root or anyone.
	Tasks    string `json:"tasks"`
	AllTasks string `json:"all_tasks"`
	// Kernel says that samples in the kernel are allowed.
	Kernel bool `json:"kernel"`
	// Tracepoints are patterns of those that are allowed.
	Tracepoints []string `json:"tracepoints,omitempty"`
}
