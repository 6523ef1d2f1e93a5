// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/perf"
)

// compareSamples checks that perf script prints the very samples that gantry's
// reader finds, field by field, and as many frames for each. Calls that were
// inlined have none: of programs with DWARF, whoever runs them, perf adds those.
func compareSamples(t *testing.T, path string, c *contents) {
	t.Helper()
	const fields = "pid,tid,cpu,time,period,event,ip"
	made := madeByPerf(c)
	var want, got []string
	for line := range strings.Lines(perfRun(t, "script", "-i", path, "--ns", "-F", fields, "-G")) {
		if head, name := scriptHead(c, line); head != "" && !made[name] {
			want = append(want, head)
		}
	}
	for i := range c.samples {
		got = append(got, scriptLine(c, i)+fmt.Sprintf(" %x", c.samples[i].IP))
	}
	diffSamples(t, "perf script -G", want, got)
	if slices.ContainsFunc(c.events, func(ev *perf.Event) bool { return ev.Attr.SampleType&perf.SampleStackUser != 0 }) {
		return // perf unwinds
	}
	want, got = nil, nil
	for head, frames := range scriptStacks(perfRun(t, "script", "-i", path, "--no-inline", "--ns", "-F", fields)) {
		if head, name := scriptHead(c, head); !made[name] {
			want = append(want, head+" "+frames)
		}
	}
	for i := range c.samples {
		if c.eventOf[i].Attr.SampleType&perf.SampleCallchain != 0 {
			got = append(got, scriptLine(c, i)+" "+stackText(c.samples[i].Callchain))
		} else {
			got = append(got, scriptLine(c, i)+fmt.Sprintf(" %x ", c.samples[i].IP))
		}
	}
	diffSamples(t, "perf script", want, got)
}

// madeByPerf are the events of which perf makes samples of its own: the members
// of a group whose leader reads them.
func madeByPerf(c *contents) map[string]bool {
	made := make(map[string]bool)
	for _, ev := range c.events {
		if readsGroup(ev) && ev.Attr.SampleCount == 0 {
			made[ev.Name] = true
		}
	}
	return made
}

// readsGroup: the event's samples have the counts of its group. perf prints how
// much a count rose for the period.
func readsGroup(ev *perf.Event) bool { return ev.Attr.SampleType&perf.SampleRead != 0 }

// scriptHead is the first line of a sample as scriptLine has it, and the name of
// its event.
func scriptHead(c *contents, line string) (head, event string) {
	f := strings.Fields(line)
	if len(f) < 5 {
		return "", ""
	}
	event = strings.TrimSuffix(f[4], ":")
	if slices.ContainsFunc(c.events, func(ev *perf.Event) bool { return ev.Name == event && readsGroup(ev) }) {
		f[3] = "-"
	}
	return strings.Join(f, " "), event
}

// scriptLine is a sample as perf script prints it, up to the event's name.
func scriptLine(c *contents, i int) string {
	s, ev := &c.samples[i], c.eventOf[i]
	period := fmt.Sprint(s.Period)
	if readsGroup(ev) {
		period = "-"
	}
	return fmt.Sprintf("%d/%d [%03d] %d.%09d: %s %s:", s.PID, s.TID, s.CPU, s.Time/1e9, s.Time%1e9, period, ev.Name)
}

// stackText is how many frames a chain has: perf prints offsets for most of their
// addresses. It leaves a chain out that has a mark it does not know, as a chain
// of garbage may.
func stackText(chain []uint64) string {
	frames := 0
	for _, ip := range chain {
		switch {
		case ip == perf.ContextHV, ip == perf.ContextKernel, ip == perf.ContextUser:
		case ip >= perf.ContextMax:
			return "0 frames"
		default:
			frames++
		}
	}
	return fmt.Sprintf("%d frames", frames)
}

// scriptStacks gives the head of each sample that perf script printed, and its
// stack as stackText has it; "" if it has none.
func scriptStacks(out string) func(yield func(string, string) bool) {
	return func(yield func(string, string) bool) {
		for block := range strings.SplitSeq(out, "\n\n") {
			var heads []string
			var chain []uint64
			for line := range strings.Lines(block) {
				var ip uint64
				if n, _ := fmt.Sscanf(line, "\t%x", &ip); n == 1 && strings.HasPrefix(line, "\t") {
					chain = append(chain, ip)
				} else if strings.TrimSpace(line) != "" {
					heads = append(heads, line)
				}
			}
			for i, head := range heads {
				stack := ""
				if i == len(heads)-1 && len(strings.Fields(head)) == 5 {
					stack = stackText(chain)
				}
				if !yield(head, stack) {
					return
				}
			}
		}
	}
}

// diffSamples compares regardless of the order of samples of one time.
func diffSamples(t *testing.T, what string, want, got []string) {
	t.Helper()
	slices.Sort(want)
	slices.Sort(got)
	if slices.Equal(want, got) {
		return
	}
	diff := cmp.Diff(want, got)
	t.Errorf("%s: %d samples, gantry has %d (-perf +gantry):\n%.4000s", what, len(want), len(got), diff)
}
