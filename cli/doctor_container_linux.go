// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gantry-tools/gantry/agent/client"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/linux/probe"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// fromInside is what doctor found of the ways in which the host lets a container
// without privileges have events of its own.
type fromInside struct {
	// Answered: perf_event_open is answered for this container, by gantry exec or by
	// the agent behind a seccomp profile. Every program works.
	Answered bool `json:"answered"`
	// Socket: the agent's socket is mounted and answers. gantry works.
	Socket bool `json:"socket"`
	// Why is what is wrong with a socket that is there.
	Why string `json:"why,omitempty"`
	// About is what the agent says.
	About *client.About `json:"about,omitempty"`
}

// lookInside looks for the ways; nil is on a host, or with rights of one's own.
func lookInside(p *probe.Privilege) *fromInside {
	if !p.InPIDNS || p.Perfmon() {
		return nil
	}
	in := &fromInside{Answered: p.Paranoid > 0 && answered()}
	c, err := client.Dial()
	if err == nil {
		defer c.Close()
		in.About, err = c.About()
	}
	var refused *client.Refusal
	switch {
	case err == nil:
		in.Socket = true
	case errors.As(err, &refused):
		in.Why = refused.Reason
	}
	return in
}

// answered reports whether events of a whole CPU can be had, which the kernel itself
// does not permit.
func answered() bool {
	a := perf.Attr{Type: perf.TypeSoftware, Config: perf.SWCPUClock,
		Flags: perf.AttrDisabled | perf.AttrExcludeKernel | perf.AttrExcludeHV}
	cpus, err := sys.OnlineCPUs()
	if err != nil || len(cpus) == 0 {
		return false
	}
	fd, err := sys.PerfEventOpen(a.Append(nil, perf.LittleEndian), -1, cpus[0], nil, sys.PerfCloexec)
	fd.Close()
	return err == nil
}

// open reports whether some way is open.
func (in *fromInside) open() bool { return in != nil && (in.Answered || in.Socket) }

// replaces reports whether a check asks for the machine's where the container's own
// is what can be had.
func (in *fromInside) replaces(c probe.Check) bool {
	switch c {
	case probe.OwnKernel, probe.CPUWide, probe.CgroupEvents, probe.OtherTasks:
		return in.open()
	}
	return false
}

// writeInside tells which ways are open, or what to ask for.
func (d *diagnosis) writeInside(b *strings.Builder) {
	in := d.Inside
	if in == nil {
		return
	}
	line := func(text string) { b.WriteString(wrap("  "+text, 4, doctorWidth) + "\n") }
	if !in.open() {
		b.WriteString("\nTo have events of this container, ask who runs the host for one of:\n")
		line("gantry exec CONTAINER -- perf record -a: nothing about the container changes")
		line("gantry agent there, and the container with its seccomp profile: perf and all others work")
		line("gantry agent there, and the container with -v /run/gantry/client:/run/gantry/client:ro: gantry works")
		if in.Why != "" {
			line("the agent's socket is here, but: " + container.Printable(in.Why))
		}
		return
	}
	b.WriteString("\nEvents of this container can be had:\n")
	if in.Answered {
		line("perf_event_open is answered for it (gantry exec, or gantry agent): perf, gantry and all others work")
	}
	if a := in.About; a != nil {
		line(fmt.Sprintf("gantry agent answers at %s: gantry works; the container is %s", client.Socket(),
			container.Printable(a.Container.Label())))
		kernel := "no kernel samples"
		if a.Kernel {
			kernel = "kernel samples"
		}
		line(fmt.Sprintf("its policy: events of tasks for %s, of the whole container (-a) for %s, %s", a.Tasks,
			a.AllTasks, kernel))
		if len(a.Tracepoints) > 0 {
			line("tracepoints: " + container.Printable(strings.Join(a.Tracepoints, ", ")))
		}
	}
}
