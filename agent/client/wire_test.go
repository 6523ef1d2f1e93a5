// SPDX-License-Identifier: Apache-2.0

//go:build linux

package client

import (
	"bytes"
	"errors"
	"path/filepath"
	"syscall"
	"testing"
)

func FuzzMessages(f *testing.F) {
	f.Add((&Request{KindOpen, -1, 3, 8, []byte("attr")}).Append(nil))
	f.Add((&Answer{syscall.EACCES, []byte("because")}).Append(nil))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		if q, err := DecodeRequest(b); err == nil {
			if got := q.Append(nil); !bytes.Equal(got, b) {
				t.Errorf("%+v is %x, was %x", q, got, b)
			}
		} else if len(b) >= requestHeader {
			t.Error(err)
		}
		if a, err := DecodeAnswer(b); err == nil {
			if got := a.Append(nil); !bytes.Equal(got, b) {
				t.Errorf("%+v is %x, was %x", a, got, b)
			}
		} else if len(b) >= answerHeader {
			t.Error(err)
		}
	})
}

// TestNoAgent: that there is no agent has no errno, which would be taken for a decision.
func TestNoAgent(t *testing.T) {
	t.Setenv(SocketEnv, filepath.Join(t.TempDir(), "none"))
	if _, err := Dial(); !errors.Is(err, ErrNoAgent) {
		t.Errorf("%v, want %v", err, ErrNoAgent)
	}
	c := New()
	defer c.Close()
	_, err := c.Open(nil, 1, -1, nil, 0)
	var errno syscall.Errno
	if !errors.Is(err, ErrNoAgent) || errors.As(err, &errno) {
		t.Errorf("%v, errno %v", err, errno)
	}
}
