// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"context"
	"slices"
	"testing"

	"github.com/gantry-tools/gantry/container"
)

func TestStrangers(t *testing.T) {
	var host container.Namespaces
	host[container.PIDNS], host[container.MntNS] = 1, 2
	s := newNamespacedProcesses(host)
	s.setNamespaces(10, 1, 2)
	s.setNamespaces(11, 5, 2) // a pid namespace alone is no container
	s.setNamespaces(12, 1, 6)
	s.setNamespaces(13, 5, 6)
	s.setNamespaces(14, 5, 6)
	s.setNamespaces(15, 5, 6)
	s.setNamespaces(15, 1, 2) // it went back
	s.ended(14)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := s.list(ended); ok {
		t.Error("a list before the snapshot was taken")
	}
	s.finish(true)
	if pids, ok := s.list(t.Context()); !ok || !slices.Equal(pids, []int{13}) {
		t.Errorf("%v, %v, want 13", pids, ok)
	}
	var none *namespacedProcesses
	none.setNamespaces(1, 5, 6)
	none.ended(1)
}

// What a snapshot did not tell of, or there was no room for, is not complete.
func TestStrangersNotComplete(t *testing.T) {
	s := newNamespacedProcesses(container.Namespaces{})
	s.finish(false)
	if _, ok := s.list(t.Context()); ok {
		t.Error("complete without a complete snapshot")
	}
	s = newNamespacedProcesses(container.Namespaces{})
	s.setIncomplete()
	s.finish(true)
	if _, ok := s.list(t.Context()); ok {
		t.Error("complete though sideband was lost")
	}
	s = newNamespacedProcesses(container.Namespaces{})
	s.finish(true)
	for pid := range int32(maxNamespaced + 1) {
		s.setNamespaces(pid, 5, 6)
	}
	if _, ok := s.list(t.Context()); ok || len(s.pids) != maxNamespaced {
		t.Errorf("complete with %d processes", len(s.pids))
	}
}
