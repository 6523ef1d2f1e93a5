// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"errors"
	"io"
	"sync"
)

// Stream is an output that is read in this process while it is written. What waits to be read
// is kept in memory up to a limit; then the recorder waits, and its rings fill: what they
// lose is counted. Read may be called in another goroutine than Write.
type Stream struct {
	mu     sync.Mutex
	moved  sync.Cond
	limit  int
	buf    []byte
	closed bool
	left   bool // nobody reads any more
}

// NewStream keeps at most limit bytes, about.
func NewStream(limit int) *Stream {
	s := &Stream{limit: limit}
	s.moved.L = &s.mu
	return s
}

// Output is the stream as an output.
func (s *Stream) Output() Output { return Output{Pipe: s} }

// errLeft says that nobody reads a stream any more.
var errLeft = errors.New("nobody reads the stream any more")

// Write implements io.Writer.
func (s *Stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.buf) > 0 && len(s.buf)+len(b) > s.limit && !s.left && !s.closed {
		s.moved.Wait()
	}
	switch {
	case s.left:
		return 0, errLeft
	case s.closed:
		return 0, io.ErrClosedPipe
	}
	s.buf = append(s.buf, b...)
	s.moved.Broadcast()
	return len(b), nil
}

// Read implements io.Reader: it waits until there is something, or the recording has ended.
func (s *Stream) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.buf) == 0 && !s.closed && !s.left {
		s.moved.Wait()
	}
	if len(s.buf) == 0 {
		return 0, io.EOF
	}
	n := copy(b, s.buf)
	s.buf = s.buf[:copy(s.buf, s.buf[n:])]
	s.moved.Broadcast()
	return n, nil
}

// CloseWrite ends the stream when what is in it has been read.
func (s *Stream) CloseWrite() { s.end(&s.closed) }

// CloseRead says that nobody reads any more: the recorder's next write fails.
func (s *Stream) CloseRead() { s.end(&s.left) }

func (s *Stream) end(which *bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*which = true
	s.moved.Broadcast()
}
