// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"bytes"
	"io"
	"testing"
	"testing/synctest"
)

// TestStream: what is written is read in order; the writer waits for a reader that is slow,
// and for none that has left.
func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStream(10)
		written := 0
		go func() {
			defer s.CloseWrite()
			for i := range byte(5) {
				if n, err := s.Write(bytes.Repeat([]byte{i}, 4)); n != 4 || err != nil {
					t.Errorf("%d, %v", n, err)
				}
				written++
			}
		}()
		synctest.Wait()
		if written != 2 {
			t.Errorf("%d writes of 4 bytes into 10", written)
		}
		all, err := io.ReadAll(s)
		if err != nil || len(all) != 20 || all[19] != 4 || written != 5 {
			t.Errorf("%v, %v", all, err)
		}
		if _, err := s.Write([]byte("late")); err == nil {
			t.Error("written behind the end")
		}
		s = NewStream(4)
		if n, err := s.Write(make([]byte, 100)); n != 100 || err != nil {
			t.Errorf("one write that is larger than the limit: %d, %v", n, err)
		}
		failed := make(chan error)
		go func() { _, err := s.Write([]byte("x")); failed <- err }()
		synctest.Wait()
		s.CloseRead()
		if err := <-failed; err == nil {
			t.Error("written for nobody")
		}
	})
}
