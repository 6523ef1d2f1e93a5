// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gantry-tools/gantry/internal/linux/probe"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// doctorWidth is what the text keeps to.
const doctorWidth = 80

// doctorIndent is where the column FOUND starts.
const doctorIndent = 15 + 9 + 11

func (d *diagnosis) writeText(w io.Writer, color bool) error {
	var b strings.Builder
	d.writeHead(&b)
	fmt.Fprintf(&b, "\n%-15s%-9s%-11s%s\n", "CHECK", "STATE", "SAYS NO", "FOUND")
	for _, f := range d.Checks {
		state := fmt.Sprintf("%-9s", f.State)
		if color {
			state = f.State.color() + state + "\x1b[0m"
		}
		fmt.Fprintf(&b, "%-15s%s%-11s%s\n", f.Check, state, f.Layer, wrap(f.Observed, doctorIndent, doctorWidth))
	}
	d.writeInside(&b)
	d.writeCures(&b)
	b.WriteString("\n" + d.verdict() + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// writeHead says which machine this is and who asks.
func (d *diagnosis) writeHead(b *strings.Builder) {
	p := &d.Privilege
	fmt.Fprintf(b, "Linux %s %s, %s online\n", d.Kernel, d.Arch, plural(d.CPUs, "CPU", "CPUs"))
	b.WriteString(wrap(p.String(), 2, doctorWidth) + "\n")
	facts := []string{"perf_event_paranoid unknown", "seccomp " + p.Seccomp}
	if p.Paranoid != probe.NoParanoid {
		facts[0] = fmt.Sprintf("perf_event_paranoid %d", p.Paranoid)
	}
	if p.Lockdown != "" {
		facts = append(facts, "lockdown "+p.Lockdown)
	}
	if len(p.LSMs) > 0 {
		facts = append(facts, "LSM "+strings.Join(p.LSMs, " "))
	}
	if p.InUserNS {
		facts = append(facts, "in a user namespace")
	}
	if p.InPIDNS {
		facts = append(facts, "in a pid namespace")
	}
	if p.InContainer {
		facts = append(facts, "in a container")
	}
	b.WriteString(wrap(strings.Join(facts, ", "), 2, doctorWidth) + "\n")
}

// hintGroup is one change and the checks that it is for.
type hintGroup struct {
	checks []string
	text   string
	effort probe.Effort
	spare  bool // for what recording works without
}

// order sorts hints: the smallest change first, of those what recording needs.
func (c hintGroup) order() int {
	n := 2 * int(c.effort)
	if c.effort == probe.EffortNone {
		n = 2 * int(probe.EffortKernel+1) // nothing to do comes last
	}
	if c.spare {
		n++
	}
	return n
}

// dockerRun is all that gantry record -a takes in a container. What is shut off
// hides what else would be, so it is told at once.
const dockerRun = "run gantry on the host, or in a container of: docker run --pid=host " +
	"--cap-add PERFMON --cap-add SYS_PTRACE --cap-add SYSLOG --cap-add DAC_READ_SEARCH --cap-add BPF " +
	"--security-opt seccomp=unconfined " +
	"-v /sys/kernel/tracing:/sys/kernel/tracing:ro -v /sys/fs/cgroup:/sys/fs/cgroup:ro -v /run:/run:ro " +
	"-v /var/log/containers:/var/log/containers:ro ... " +
	"(Docker 20.10 knows no PERFMON and BPF: --cap-add SYS_ADMIN in place of both)"

// hints are the changes that would help, the smallest first. Capabilities that
// several checks lack are one change: those that recording needs, and with them
// those for detail, because a setcap takes back what the last one gave.
func (d *diagnosis) hints() []hintGroup {
	var list []hintGroup
	add := func(f observation, text string, effort probe.Effort) {
		spare := !f.bad()
		i := slices.IndexFunc(list, func(c hintGroup) bool { return c.text == text })
		if i < 0 {
			i = len(list)
			list = append(list, hintGroup{text: text, effort: effort, spare: spare})
		}
		list[i].spare = list[i].spare && spare
		list[i].checks = append(list[i].checks, string(f.Check))
	}
	needed, all := d.Privilege.Grant(d.needs(observation.bad)),
		d.Privilege.Grant(d.needs(func(observation) bool { return true }))
	for _, f := range d.Checks {
		switch {
		case f.Hint == "":
		case d.Privilege.InContainer && !d.Privilege.InUserNS && f.Effort == probe.EffortProcess:
			add(f, dockerRun, f.Effort)
		case len(f.Needs) == 0:
			add(f, f.Hint, f.Effort)
		default:
			if f.bad() {
				add(f, needed, f.Effort)
			} else {
				add(f, all, f.Effort)
			}
			if f.Instead != "" {
				add(f, "or "+f.Instead, probe.EffortMachine)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b hintGroup) int { return a.order() - b.order() })
	return list
}

// needs are the capabilities that some check lacks, of those that count.
func (d *diagnosis) needs(counts func(observation) bool) []sys.Capability {
	var all []sys.Capability
	for _, f := range d.Checks {
		for _, c := range f.Needs {
			if counts(f) && !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	return all
}

func (d *diagnosis) writeCures(b *strings.Builder) {
	list := d.hints()
	if len(list) == 0 {
		return
	}
	b.WriteString("\nCures, the smallest change first:\n")
	for _, c := range list {
		b.WriteString(wrap("  "+strings.Join(c.checks, ", ")+": "+c.text, 4, doctorWidth) + "\n")
	}
}

// verdict is the last line.
func (d *diagnosis) verdict() string {
	var failed, warned int
	for _, f := range d.Checks {
		switch {
		case f.bad():
			failed++
		case f.State != stateOK:
			warned++
		}
	}
	switch {
	case failed > 0:
		return fmt.Sprintf("%d of %d checks fail.", failed, len(d.Checks))
	case warned > 0:
		return fmt.Sprintf("Recording works; %d of %d checks cost detail.", warned, len(d.Checks))
	}
	return "Everything works."
}

func (s state) color() string {
	switch s {
	case stateOK:
		return "\x1b[32m"
	case stateFail:
		return "\x1b[31m"
	}
	return "\x1b[33m"
}
