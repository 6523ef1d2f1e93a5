// SPDX-License-Identifier: Apache-2.0

//go:build linux

package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Descriptors that a worker has from its supervisor.
const (
	controlFD = 3 + iota // messages, both ways
	seccompFD            // the socket that container runtimes connect
	clientFD             // the socket that containers connect
	slotsFD              // memory with the call that each listener answers
	workerFDs = iota
)

// A message between the supervisor and its worker.
type message struct {
	// Kind is one of the words below.
	Kind string `json:"kind"`
	// Slot is the listener's number, and where its call is.
	Slot int `json:"slot"`
	// State is what the runtime said when it handed the listener over.
	State state `json:"state,omitzero"`
}

// Kinds of messages.
const (
	kindKeep  = "keep"  // a listener, whose descriptor comes with it
	kindDrop  = "drop"  // a listener that nobody needs any more
	kindBegin = "begin" // all that was kept has been told
	kindReady = "ready" // the worker serves
)

// state is what is needed of a runtime's message about a container.
type state struct {
	// ID is the container's, PID its first process, as the host numbers it.
	ID  string `json:"id"`
	PID int    `json:"pid"`
}

// maxControl bounds a message, in bytes.
const maxControl = 4096

func sendMessage(sock *sys.FD, m message, fd *sys.FD) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(b) > maxControl {
		return fmt.Errorf("a message of %d bytes: %w", len(b), syscall.EMSGSIZE)
	}
	return sys.Send(sock, b, fd)
}

// receiveMessage receives a message, and the descriptor that came with it. The end
// is io.EOF.
func receiveMessage(sock *sys.FD) (message, *sys.FD, error) {
	b := make([]byte, maxControl)
	n, fd, err := sys.Receive(sock, b)
	var m message
	switch {
	case err == nil && n == 0, errors.Is(err, syscall.ECONNRESET):
		err = io.EOF
	case err == nil:
		err = json.Unmarshal(b[:n], &m)
	}
	if err == nil && (m.Slot < 0 || m.Slot >= maxListeners) {
		err = fmt.Errorf("slot %d: %w", m.Slot, syscall.ERANGE)
	}
	if err != nil {
		fd.Close()
		return message{}, nil, err
	}
	return m, fd, nil
}
