// SPDX-License-Identifier: Apache-2.0

//go:build linux

package broker

import (
	"fmt"
	"strings"

	"github.com/gantry-tools/gantry/container"
)

// Who says which users of a container may do something.
type Who uint8

// The users. The zero value is the strictest that lets a program look at itself.
const (
	Nobody Who = iota
	OnlyRoot
	Anyone
)

var whoNames = [...]string{"nobody", "root", "anyone"}

func (w Who) String() string { return whoNames[w%Who(len(whoNames))] }

// ParseWho reads a Who: nobody, root or anyone.
func ParseWho(text string) (Who, error) {
	for i, name := range whoNames {
		if name == text {
			return Who(i), nil
		}
	}
	return Nobody, fmt.Errorf("%q is not one of %s", text, strings.Join(whoNames[:], ", "))
}

// Class is a kind of event that a policy allows or not.
type Class uint8

// The classes. Breakpoints, probes and events of what is not a CPU belong to none
// and are never allowed.
const (
	Software Class = 1 << iota
	Hardware       // generic events of the CPU, caches included
	Raw            // the CPU's own events by number, and its PMUs by name

	allClasses = Software | Hardware | Raw
)

var classNames = map[string]Class{"software": Software, "hardware": Hardware, "raw": Raw}

// ParseClass reads a Class: software, hardware or raw.
func ParseClass(text string) (Class, error) {
	class, ok := classNames[text]
	if !ok {
		return 0, fmt.Errorf("%q is not a class of events: software, hardware or raw", text)
	}
	return class, nil
}

// Policy says what the processes of a container may open.
type Policy struct {
	// Tasks says who may open events of tasks, their own included.
	Tasks Who
	// AllTasks says who may open events of all tasks of the container (perf -a).
	AllTasks Who
	// Kernel allows samples in the kernel, which tell its addresses.
	Kernel bool
	// Classes of events that are allowed.
	Classes Class
	// Tracepoints are patterns such as "syscalls:*". Their samples tell the address
	// of one kernel function each, and their data may name tasks of others.
	Tracepoints []string
	// MaxFrequency bounds samples a second and event, 0 is the kernel's own bound
	// (kernel.perf_event_max_sample_rate). More is lowered to it.
	MaxFrequency uint64
	// MaxEvents bounds the events that the container has at a time, 0 does not.
	MaxEvents int
	// MaxRings bounds the memory that the container has for its events' records, in
	// bytes, 0 does not; the kernel bounds it for each user (perf_event_mlock_kb).
	MaxRings uint64
	// MaxOpens bounds the events that it opens a second; more have to wait. 0 does
	// not.
	MaxOpens int
}

// DefaultPolicy is what a container may do that nobody wrote a policy for.
func DefaultPolicy() Policy {
	return Policy{
		Tasks: Anyone, AllTasks: OnlyRoot, Classes: allClasses,
		MaxEvents: 10000, MaxOpens: 1000,
	}
}

// allowsTracepoint reports whether a tracepoint is on the list.
func (p *Policy) allowsTracepoint(name string) bool {
	for _, pattern := range p.Tracepoints {
		if container.MatchStars(pattern, name) {
			return true
		}
	}
	return false
}
