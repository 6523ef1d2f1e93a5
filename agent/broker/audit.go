// SPDX-License-Identifier: Apache-2.0

//go:build linux

package broker

import (
	"encoding/json"
	"io"
	"sync"
	"time"
)

// Entry is a line of the audit log: what a process asked for, and what was decided.
// Equal decisions that follow one another are one entry.
type Entry struct {
	Time      time.Time `json:"time"`
	Container string    `json:"container"`
	CgroupID  uint64    `json:"cgroup,omitempty"`
	PID       int       `json:"pid"` // as the host numbers it
	Comm      string    `json:"comm"`
	UID       uint32    `json:"uid"`
	Event     string    `json:"event"`
	// Scope is "container" or "task".
	Scope string `json:"scope"`
	// Target is the task, as the container numbers it.
	Target   int    `json:"target,omitempty"`
	Decision string `json:"decision"` // "granted" or "refused"
	// Reason is why it was refused, Error what the process got.
	Reason string `json:"reason,omitempty"`
	Error  string `json:"error,omitempty"`
	// Count is how often this was decided.
	Count int `json:"count"`
}

// Decisions of an Entry.
const (
	Granted = "granted"
	Refused = "refused"
)

// auditDelay is how long an entry waits for its likes.
const auditDelay = time.Second

// audit writes entries, and joins those that are alike.
type audit struct {
	mu   sync.Mutex
	w    io.Writer
	last Entry
	err  error
}

// same reports whether two entries differ in their time and count only.
func same(a, b *Entry) bool {
	x, y := *a, *b
	x.Time, y.Time, x.Count, y.Count = time.Time{}, time.Time{}, 0, 0
	return x == y
}

// add notes a decision.
func (l *audit) add(e *Entry) {
	if l.w == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last.Count > 0 && same(&l.last, e) {
		l.last.Count++
		return
	}
	l.write()
	l.last = *e
	l.last.Count = 1
}

// flush writes what waits for longer than a time. The error is the first of all
// writes.
func (l *audit) flush(age time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last.Count > 0 && time.Since(l.last.Time) >= age {
		l.write()
	}
	return l.err
}

func (l *audit) write() {
	if l.last.Count == 0 {
		return
	}
	line, err := json.Marshal(&l.last)
	if err == nil {
		_, err = l.w.Write(append(line, '\n'))
	}
	if l.err == nil {
		l.err = err
	}
	l.last = Entry{}
}
