// SPDX-License-Identifier: Apache-2.0

//go:build linux

package broker

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
)

// census is how many events a container's processes hold, counted in /proc, because
// nothing tells when a descriptor is closed that was given away.
type census struct {
	mu     sync.Mutex
	at     time.Time
	opened int64 // Scope.opened at that time
	took   time.Duration
	events int
	rings  uint64 // bytes of memory mapped of them
}

// A census holds for recent at least, and for so many times what it took: it must not
// cost the host more than a small share of a CPU.
const (
	recent = 100 * time.Millisecond
	share  = 50
)

// limit reports, as an error, that a container has as many events or as much memory
// for them as its policy allows.
func (s *Scope) limit(p *Policy) error {
	if p.MaxEvents == 0 && p.MaxRings == 0 {
		return nil
	}
	c := &s.counted
	c.mu.Lock()
	defer c.mu.Unlock()
	// Each opening adds at most one event. Memory is looked at now and then.
	full := p.MaxEvents > 0 && c.events+int(s.opened.Load()-c.opened) >= p.MaxEvents
	stale := p.MaxRings > 0 && s.opened.Load()-c.opened >= ringsEvery
	if began := time.Now(); (full || stale || c.at.IsZero()) && began.Sub(c.at) > max(recent, share*c.took) {
		c.opened = s.opened.Load()
		c.events, c.rings = s.count()
		c.at = time.Now()
		c.took = c.at.Sub(began)
		full = p.MaxEvents > 0 && c.events >= p.MaxEvents
	}
	switch {
	case full:
		return refuse(syscall.EMFILE, "the container has %d events, which is the policy's limit", p.MaxEvents)
	case p.MaxRings > 0 && c.rings > p.MaxRings:
		return refuse(syscall.ENOMEM, "the container's events have %d bytes of memory, the policy's limit is %d",
			c.rings, p.MaxRings)
	}
	return nil
}

// ringsEvery is after how many events the memory for them is counted again.
const ringsEvery = 16

// count counts the events and their memory in all processes of the container.
func (s *Scope) count() (events int, rings uint64) {
	pids, err := procfs.New("").PIDs()
	if err != nil {
		return 0, 0
	}
	for _, pid := range pids {
		if !s.Contains(pid) {
			continue
		}
		p := procfs.New("").Proc(pid)
		n := countEvents(p.Path("fd"))
		events += n
		mapped, bytes := countRings(p.Path("maps"))
		// A ring whose descriptor was closed holds its event.
		events += max(0, mapped-n)
		rings += bytes
	}
	return events, rings
}

// countEvents counts the descriptors of a process that are events; one that ends
// has none.
func countEvents(dir string) int {
	d, err := os.Open(dir)
	if err != nil {
		return 0
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return 0
	}
	n := 0
	for _, name := range names {
		if link, err := os.Readlink(dir + "/" + name); err == nil && link == eventLink {
			n++
		}
	}
	return n
}

// countRings counts the mappings of events of a process.
func countRings(file string) (n int, size uint64) {
	f, err := os.Open(file)
	if err != nil {
		return 0, 0
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if !bytes.HasSuffix(sc.Bytes(), []byte(eventLink)) {
			continue
		}
		from, to, ok := strings.Cut(strings.Fields(sc.Text())[0], "-")
		first, err1 := strconv.ParseUint(from, 16, 64)
		last, err2 := strconv.ParseUint(to, 16, 64)
		if ok && err1 == nil && err2 == nil {
			n++
			size += last - first
		}
	}
	return n, size
}

// bucket lets through so many calls a second; more wait.
type bucket struct {
	mu   sync.Mutex
	next time.Time
}

// burst is for how much time calls may be saved: a program opens all its events at
// its start.
const burst = 4 * time.Second

// take waits until one more may pass; 0 a second is no limit.
func (b *bucket) take(perSecond int) {
	if perSecond <= 0 {
		return
	}
	b.mu.Lock()
	now := time.Now()
	if b.next.Before(now.Add(-burst)) {
		b.next = now.Add(-burst)
	}
	b.next = b.next.Add(time.Second / time.Duration(perSecond))
	wait := b.next.Sub(now)
	b.mu.Unlock()
	if wait > 0 {
		time.Sleep(wait)
	}
}
