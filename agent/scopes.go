// SPDX-License-Identifier: Apache-2.0

//go:build linux

package agent

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gantry-tools/gantry/agent/broker"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// scopes are the containers that are served, by the ids of their cgroups: a program
// that is run in a container is under a filter of its own.
type scopes struct {
	mu   sync.Mutex
	byID map[uint64]*scope
}

// scope is a container that is served.
type scope struct {
	*broker.Scope
	place  *place
	broker *broker.Broker

	users   int // listeners and connections
	clients chan struct{}
}

// maxClients bounds the connections of a container to the agent's socket.
const maxClients = 16

// take is the scope of a place, which the caller gives back. first is its first process,
// as far as is known; asker one that asks.
func (s *scopes) take(p *place, first, asker int, b *broker.Broker) (*scope, error) {
	made, err := makeScope(p, first, asker)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := made.CgroupID()
	if old := s.byID[id]; old != nil && id != 0 {
		old.users++
		return old, made.Close()
	}
	sc := &scope{Scope: made, place: p, broker: b, users: 1, clients: make(chan struct{}, maxClients)}
	if id != 0 {
		s.byID[id] = sc
	}
	return sc, nil
}

// makeScope makes the scope of a place.
func makeScope(p *place, first, asker int) (*broker.Scope, error) {
	if first != 0 {
		made, err := broker.NewScope(p.container.Label(), first, p.container.CgroupPath)
		if err == nil && made.Contains(first) {
			return made, nil
		}
		if err == nil {
			_ = made.Close() // the number is another's by now
		}
	}
	return broker.NewScope(p.container.Label(), asker, p.container.CgroupPath)
}

// give gives a scope back; the last one ends it.
func (s *scopes) give(sc *scope) error {
	s.mu.Lock()
	sc.users--
	last := sc.users == 0
	if last && s.byID[sc.CgroupID()] == sc {
		delete(s.byID, sc.CgroupID())
	}
	s.mu.Unlock()
	// A container may keep its own opener waiting, and nobody else.
	if last {
		return sc.Close()
	}
	return nil
}

// trim ends openers that were not used for some time.
func (s *scopes) trim(unused time.Duration) {
	s.mu.Lock()
	list := slices.Collect(maps.Values(s.byID))
	s.mu.Unlock()
	for _, sc := range list {
		sc.Trim(unused)
	}
}

// count is how many containers are served.
func (s *scopes) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byID)
}

// alive reports whether the process of a pidfd still runs.
func alive(pidfd *sys.FD) error {
	ok, err := sys.PidfdAlive(pidfd)
	if err == nil && !ok {
		err = errors.New("the process ended")
	}
	return err
}
