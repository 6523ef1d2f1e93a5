// SPDX-License-Identifier: Apache-2.0

//go:build linux

package probe

import (
	"fmt"

	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Answer is what a check found.
type Answer int

// Answers. The zero value is Unknown.
const (
	Unknown Answer = iota // could not tell
	Yes
	No
)

func (a Answer) String() string {
	switch a {
	case Yes:
		return "yes"
	case No:
		return "no"
	}
	return "unknown"
}

// MarshalText is the answer's name, for JSON.
func (a Answer) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// Layer is who says no.
type Layer string

// Layers, the outermost first.
const (
	Seccomp    Layer = "seccomp"    // a filter on system calls
	LSM        Layer = "LSM"        // SELinux, AppArmor, ...
	Lockdown   Layer = "lockdown"   // kernel lockdown
	Paranoid   Layer = "paranoid"   // kernel.perf_event_paranoid
	Capability Layer = "capability" // a capability is missing
	Namespace  Layer = "namespace"  // a user or pid namespace is in between
	Sysctl     Layer = "sysctl"     // another setting below /proc/sys
	Limit      Layer = "limit"      // a resource limit
	Cgroup     Layer = "cgroup"     // no hierarchy with perf_event
	FileSystem Layer = "filesystem" // something is not mounted
	Kernel     Layer = "kernel"     // too old, or built without
	Hardware   Layer = "hardware"   // the CPU, or the host of this virtual machine
)

// Effort is how much a change is, the least first.
type Effort int

// Efforts.
const (
	EffortNone    Effort = iota // there is nothing to change
	EffortProcess               // of how gantry is started
	EffortMachine               // a setting of the running machine
	EffortKernel                // another kernel, or other hardware
)

// Result is what a check found.
type Result struct {
	Check  Check  `json:"check"`
	Answer Answer `json:"answer"`
	// Observed is what there is, in some words.
	Observed string `json:"found"`
	// Layer says no; empty unless Answer is No.
	Layer Layer `json:"layer,omitempty"`
	// Hint is what to do about a No, in one line: the smallest change
	// first.
	Hint   string `json:"cure,omitempty"`
	Effort Effort `json:"-"`
	// Needs are the capabilities that would do; Privilege.Grant says how
	// to get them. Instead is the part of Cure that does without.
	Needs   []sys.Capability `json:"needs,omitempty"`
	Instead string           `json:"-"`
	// Err is why an Unknown is one.
	Err error `json:"-"`
}

func yes(format string, args ...any) Result {
	return Result{Answer: Yes, Observed: fmt.Sprintf(format, args...)}
}

func no(l Layer, e Effort, hint, format string, args ...any) Result {
	return Result{Answer: No, Layer: l, Effort: e, Hint: hint, Observed: fmt.Sprintf(format, args...)}
}

// lacks is a No for want of capabilities; instead may be empty.
func (p *Prober) lacks(l Layer, instead string, needs []sys.Capability, format string, args ...any) Result {
	r := p.privilege()
	hint := r.Grant(needs)
	if instead != "" {
		hint += ", or " + instead
	}
	n := no(l, EffortProcess, hint, format, args...)
	n.Needs, n.Instead = needs, instead
	return n
}

func unknown(err error) Result {
	return Result{Answer: Unknown, Observed: err.Error(), Err: err}
}
