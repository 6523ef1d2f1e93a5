// SPDX-License-Identifier: Apache-2.0

//go:build linux

package agent

import (
	"context"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// pause is how long a process that ended waits for being started again: longer each time
// that it did not live for long.
type pause struct{ last, most time.Duration }

func (p *pause) next(lived time.Duration) time.Duration {
	const first, long = 10 * time.Millisecond, 10 * time.Second
	if lived > long {
		p.last = 0
	}
	p.last = max(first, min(2*p.last, p.most))
	return p.last
}

// endProcess ends a process of the agent's: it has a time to end by itself, and is killed
// then. A thread of it may wait in the kernel for a container's memory: the next process
// begins beside it. ended is what it returns.
func endProcess(cmd *exec.Cmd, ended <-chan error, name string, log func(string)) error {
	const politely, killed = 5 * time.Second, time.Second
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case err := <-ended:
		return err
	case <-time.After(politely):
	}
	_ = cmd.Process.Kill()
	select {
	case <-ended:
		log(name + " did not end and was killed")
	case <-time.After(killed):
		log(name + " does not end: a container keeps it waiting")
	}
	return nil
}

// serveNamespaces keeps the process running that serves tracing namespaces, until ctx ends.
func (s *supervisor) serveNamespaces(ctx context.Context) {
	p := pause{most: time.Minute}
	for {
		began := time.Now()
		cmd := s.o.Namespaces()
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
		err := cmd.Start()
		if err == nil {
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case err = <-ended:
			case <-ctx.Done():
				_ = endProcess(cmd, ended, "the server of tracing namespaces", s.o.Log) // it was asked to
				return
			}
		}
		wait := p.next(time.Since(began))
		s.o.Log(fmt.Sprintf("tracing namespaces ended: %v; they are served again in %v", err, wait))
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}
