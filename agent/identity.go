// SPDX-License-Identifier: Apache-2.0

//go:build linux

package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gantry-tools/gantry/agent/broker"
	"github.com/gantry-tools/gantry/container"
)

// finder tells which container a process is in, and what that is called.
type finder struct {
	mu       sync.Mutex
	resolver *container.Resolver
	asked    time.Time
}

// A place is where a process was found.
type place struct {
	// container is what the runtime says, or what little is known.
	container *container.Container
	task      container.Task
	table     *container.Table
}

func newFinder(sockets []container.Socket) (*finder, error) {
	r, err := container.NewResolver(&container.ResolverOptions{Sockets: sockets})
	if err != nil {
		return nil, fmt.Errorf("find containers: %w", err)
	}
	return &finder{resolver: r}, nil
}

// askAgain is how often runtimes are asked for containers that nobody knows yet.
const askAgain = 500 * time.Millisecond

// find looks for the container of a process. The caller knows that the number is of
// the process it means if that still runs afterwards.
func (f *finder) find(ctx context.Context, pid int) (*place, error) {
	p, wait, err := f.try(ctx, pid)
	if wait == 0 {
		return p, err
	}
	// It may have been made since.
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p, _, err = f.try(ctx, pid)
	return p, err
}

// try is find, unless the runtimes were asked just before: then it says how long to
// wait before they may be asked again.
func (f *finder) try(ctx context.Context, pid int) (p *place, wait time.Duration, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	task, err := f.resolver.Task(pid)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", broker.ErrNoContainer, err)
	}
	c := f.lookup(&task)
	if c == nil {
		if wait := askAgain - time.Since(f.asked); wait > 0 {
			return nil, wait, broker.ErrNoContainer
		}
		f.resolver.Refresh(ctx)
		f.asked = time.Now()
		c = f.lookup(&task)
	}
	if c == nil {
		return nil, 0, broker.ErrNoContainer
	}
	return &place{c, task, f.resolver.Table()}, 0, nil
}

// lookup is the container of a task. Of several, it is the outermost: what is below
// the cgroup of a container was made by its own processes, and its name means nothing.
func (f *finder) lookup(task *container.Task) *container.Container {
	var best *container.Container
	status := f.resolver.Status()
	for _, c := range f.resolver.Table().Containers() {
		if !madeByRuntime(c) || c.CgroupPath == "" || status[c].State == container.StateExited ||
			!container.MatchesCgroup(c.CgroupPath, task.CgroupPath) {
			continue
		}
		if best == nil || len(c.CgroupPath) < len(best.CgroupPath) ||
			c.CgroupPath == best.CgroupPath && c.StartTime >= best.StartTime {
			best = c
		}
	}
	if best != nil {
		return best
	}
	if c := f.resolver.Table().OfTask(task); c != nil && madeByRuntime(c) {
		return c
	}
	return nil
}

// madeByRuntime reports whether a runtime knows a container: namespaces of their own can
// be had by every user of the host, whose cgroup has others' tasks too.
func madeByRuntime(c *container.Container) bool {
	return c.Kind == container.KindContainer && c.ID != ""
}

// unknown is the container of a first process of which only the runtime's own message
// tells.
func (f *finder) unknown(id string, pid int) (*place, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	task, err := f.resolver.Task(pid)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", broker.ErrNoContainer, err)
	}
	if task.CgroupPath == "" || task.CgroupPath == "/" {
		return nil, errors.New("a container without a cgroup of its own")
	}
	c := &container.Container{Kind: container.KindContainer, ID: id, Name: id, CgroupPath: task.CgroupPath,
		CgroupID: task.Cgroup, PID: pid}
	return &place{c, task, f.resolver.Table()}, nil
}
