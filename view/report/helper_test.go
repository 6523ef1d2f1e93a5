// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// parseProfile makes a profile from text: one sample per line,
//
//	event | label=value ... | outermost@object ... leaf@object | count value
//
// A frame that begins with ^ is in the kernel; ?NUMBER is an address without
// a name.
func parseProfile(t testing.TB, text string) *profile.Profile {
	t.Helper()
	b := profile.NewBuilder()
	events := map[string]int{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		part := strings.Split(line, "|")
		if len(part) != 4 {
			t.Fatalf("%q: want four parts", line)
		}
		name := strings.TrimSpace(part[0])
		event, ok := events[name]
		if !ok {
			info := profile.EventInfo{Name: name}
			if strings.HasSuffix(name, "clock") {
				info.Unit, info.Freq = "nanoseconds", 1000
			}
			event = b.Event(info)
			events[name] = event
		}
		var stack []profile.FrameID
		for _, f := range strings.Fields(part[2]) {
			stack = append(stack, b.Frame(parseFrame(t, f)))
		}
		slices.Reverse(stack)
		weight := strings.Fields(part[3])
		b.Add(b.Labels(parseLabels(t, part[1])), b.Stack(stack), event, number(t, weight[0]), number(t, weight[1]))
	}
	m := b.Meta()
	m.Hostname, m.Duration, m.CmdLine = "node1", 2*time.Second, []string{"gantry", "record", "-a"}
	m.Start = time.Unix(1_700_000_000, 0)
	return b.Profile()
}

func number(t testing.TB, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func parseFrame(t testing.TB, s string) profile.Frame {
	t.Helper()
	s, kernel := strings.CutPrefix(s, "^")
	name, dso, _ := strings.Cut(s, "@")
	f := profile.Frame{Name: name, DSO: dso, Path: dso, Kernel: kernel}
	if addr, ok := strings.CutPrefix(name, "?"); ok {
		f.Name, f.Addr = "", number(t, addr)
	}
	return f
}

func parseLabels(t testing.TB, s string) profile.Labels {
	t.Helper()
	var l profile.Labels
	for _, pair := range strings.Fields(s) {
		key, value, _ := strings.Cut(pair, "=")
		switch key {
		case "container":
			l.Container = value
		case "id":
			l.ContainerID = value
		case "pod":
			l.Pod = value
		case "namespace":
			l.Namespace = value
		case "image":
			l.Image = value
		case "cgroup":
			l.Cgroup = value
		case "comm":
			l.Comm = value
		case "pid":
			l.PID = int32(number(t, value))
		case "tid":
			l.TID = int32(number(t, value))
		case "cpu":
			l.CPU = int32(number(t, value))
		default:
			t.Fatalf("unknown label %q", pair)
		}
	}
	return l
}

// shop is two containers and the host, with recursion (walk), kernel frames, a
// frame without a name, an empty stack, and two processes of one name.
const shop = `
cpu-clock | container=web id=aaaaaabbbbbb comm=nginx pid=10 tid=10 cpu=0 image=docker.io/library/nginx:1.27 | main@nginx serve@nginx ^vfs_read@[kernel.kallsyms] ^copy_to_user@[kernel.kallsyms] | 30 30000
cpu-clock | container=web id=aaaaaabbbbbb comm=nginx pid=11 tid=11 cpu=1 image=docker.io/library/nginx:1.27 | main@nginx serve@nginx parse@nginx | 20 20000
cpu-clock | container=web id=aaaaaabbbbbb comm=nginx pid=11 tid=12 cpu=1 image=docker.io/library/nginx:1.27 | main@nginx serve@nginx | 5 5000
cpu-clock | container=db id=ccccccdddddd comm=sqld pid=20 tid=20 cpu=0 pod=db-0 namespace=shop | main@sqld walk@sqld walk@sqld walk@sqld compare@sqld | 12 12000
cpu-clock | container=db id=ccccccdddddd comm=sqld pid=20 tid=20 cpu=0 pod=db-0 namespace=shop | main@sqld walk@sqld walk@sqld compare@sqld | 8 8000
cpu-clock | container=db id=ccccccdddddd comm=sqld pid=20 tid=21 cpu=1 pod=db-0 namespace=shop | main@sqld walk@sqld | 10 10000
cpu-clock | comm=swapper | ^idle@[kernel.kallsyms] | 10 10000
cpu-clock | comm=cron pid=3 tid=3 cgroup=/system.slice/cron.service | ?0x7f0012345678@libc.so.6 | 4 4000
cpu-clock | comm=cron pid=3 tid=3 cgroup=/system.slice/cron.service | | 1 1000
`

func write(t testing.TB, f Format, p *profile.Profile, o *Options) string {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, f, p, o); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func keys(t testing.TB, list string) []Key {
	t.Helper()
	k, err := ParseKeys(list, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
