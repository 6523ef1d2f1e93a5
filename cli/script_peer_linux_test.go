// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// peerCase is a recording of the real perf, printed by both.
type peerCase struct {
	name   string
	record []string // arguments of perf record
	script []string // arguments of script, for both
	perf   []string // and for perf only,
	gantry []string // or gantry only
	// sameAs is the case whose recording is used again.
	sameAs string
	pipe   bool
	class  difference
}

// difference is a class of differences that docs/script.md explains.
type difference uint8

const (
	// unwound: dumped stacks, which TestUnwindPeer compares by their frames.
	unwound difference = 1 << iota
	// pipeSymbols: in a pipe, perf prints symbols that were not asked for.
	pipeSymbols
)

const (
	peerFields     = "comm,pid,tid,cpu,time,event,ip,dso"
	peerTaskFields = "comm,pid,tid,time,event,ip,dso" // perf refuses cpu
)

func peerCases() []peerCase {
	clock := []string{"-e", "cpu-clock", "-F", "1999"}
	with := func(more ...string) []string { return append(append([]string{}, clock...), more...) }
	return []peerCase{
		{name: "task", record: with("-g"), script: []string{"-F", peerTaskFields}},
		{name: "period", sameAs: "task", script: []string{"-F", "+misc,+pid,-sym,-symoff", "--ns"}},
		{name: "hidden", sameAs: "task", script: []string{"-F", "+pid,-sym,-symoff", "-G"}},
		{name: "all", record: with("-g", "-a"), script: []string{"-F", peerFields}},
		{name: "cpu 0", sameAs: "all", script: []string{"-F", peerFields, "-C", "0"}},
		{name: "comm", sameAs: "all", script: []string{"-F", peerFields}, perf: []string{"--comms", "sh"},
			gantry: []string{"--comm", "sh"}},
		{name: "dwarf", record: with("--call-graph", "dwarf,4096"), script: []string{"-F", peerTaskFields},
			class: unwound},
		{name: "dwarf leaves", sameAs: "dwarf", script: []string{"-F", peerTaskFields, "-G"}},
		{name: "group", record: []string{"-a", "-g", "-e", "{cpu-clock,page-faults,context-switches}"},
			script: []string{"-F", peerFields}},
		{name: "group read", record: []string{"-a", "-e", "{cpu-clock,page-faults,context-switches}:S"},
			script: []string{"-F", peerFields + ",period"}},
		{name: "tracepoints", record: []string{"-a", "-e",
			"sched:sched_switch,sched:sched_process_exec,sched:sched_process_fork,raw_syscalls:*,signal:*,task:*,irq:*"}},
		{name: "tracepoint stacks", record: []string{"-a", "-g", "-e", "sched:sched_process_exec,task:task_newtask"},
			script: []string{"-F", peerFields + ",trace"}},
		{name: "namespaces", record: with("-a", "-g", "--namespaces", "--all-cgroups"),
			script: []string{"-F", peerFields}},
		{name: "sideband", sameAs: "namespaces",
			script: append([]string{"-G", "-F", "comm,tid,cpu,time,ip"}, peerShow()...)},
		{name: "switches", record: []string{"-a", "-e", "dummy", "--switch-events"},
			script: append([]string{"-F", "comm,tid,cpu,time,misc"}, peerShow()...)},
		{name: "buildid-mmap", record: with("-a", "-g", "--buildid-mmap"),
			script: append([]string{"-F", peerFields}, peerShow()...)},
		{name: "zstd", record: with("-a", "-g", "-z"), script: []string{"-F", peerFields}},
		{name: "pipe", record: with("-a", "-g"), pipe: true, script: []string{"-F", peerFields}, class: pipeSymbols},
		{name: "pipe tracepoints", record: []string{"-a", "-e", "cpu-clock,sched:sched_switch"}, pipe: true,
			script: []string{"-F", peerFields + ",trace"}},
		// The shell itself, which is all that is recorded, has only some milliseconds.
		{name: "per-thread", record: []string{"-e", "cpu-clock", "-F", "19999", "--per-thread"},
			script: []string{"-F", "comm,pid,tid,event,ip,dso"}},
		{name: "events", record: []string{"-a", "-d", "-e",
			"cpu-clock,task-clock,page-faults,context-switches,cpu-migrations,sched:sched_process_exec"},
			script: []string{"-F", peerFields}},
		{name: "addresses", sameAs: "events", script: []string{"-F", "comm,pid,tid,time,event,addr,ip"}},
		{name: "fixed period", record: []string{"-a", "-e", "cpu-clock:u", "-c", "500000"},
			script: []string{"-F", peerFields + ",period"}},
		{name: "kernel symbols", record: with("-a", "-g", "--kernel-callchains", "-e", "cpu-clock:k"),
			script: []string{"-F", "comm,pid,tid,time,ip,sym,symoff,dso"}},
	}
}

func peerShow() []string {
	return []string{"--show-mmap-events", "--show-task-events", "--show-namespace-events", "--show-switch-events",
		"--show-bpf-events", "--show-cgroup-events"}
}

// peerWork runs for a moment, in many programs and both modes.
const peerWork = `for i in 1 2 3; do ls -R /usr/include/linux >/dev/null; /bin/true; (exec sh -c 'i=0; while [ $i -lt 9999 ]; do i=$((i+1)); done'); done`

// TestScriptPeer compares the text with perf script's, line by line.
func TestScriptPeer(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tracefs, testutil.Tool("perf", "sh"))
	dir := t.TempDir()
	t.Setenv("HOME", dir) // for gantry's store
	for _, c := range peerCases() {
		t.Run(c.name, func(t *testing.T) {
			p := peer{t: t, dir: dir}
			file := p.recording(&c)
			want := p.perf(append(append([]string{"script", "-i", file}, c.script...), c.perf...)...)
			var got, stderr bytes.Buffer
			args := append(append([]string{"script", "-i", file}, c.script...), c.gantry...)
			if code := Main(nil, &got, &stderr, args); code != 0 {
				t.Fatalf("gantry %q: exit status %d\n%s", args, code, &stderr)
			}
			p.compare(&c, file, want, got.String())
		})
	}
}

type peer struct {
	t   *testing.T
	dir string
}

func (p *peer) perf(args ...string) string {
	p.t.Helper()
	stdout, stderr, err := testutil.RunPerf(p.t, p.command(args))
	if err != nil {
		p.t.Fatalf("perf %q: %v\n%s", args, err, stderr)
	}
	return string(stdout)
}

// record is perf for a recording into a file.
func (p *peer) record(file string, args ...string) {
	p.t.Helper()
	if _, stderr, err := testutil.RecordPerf(p.t, file, p.command(args)); err != nil {
		p.t.Fatalf("perf %q: %v\n%s", args, err, stderr)
	}
}

func (p *peer) command(args []string) func() *exec.Cmd {
	return func() *exec.Cmd {
		cmd := exec.Command("perf", args...)
		cmd.Env = append(os.Environ(), "HOME="+p.dir) // for its build-id cache
		return cmd
	}
}

func (p *peer) recording(c *peerCase) string {
	name := c.name
	if c.sameAs != "" {
		name = c.sameAs
	}
	file := filepath.Join(p.dir, strings.ReplaceAll(name, " ", "-")+".data")
	if _, err := os.Stat(file); err == nil {
		return file
	}
	out := file
	if c.pipe {
		out = "-"
	}
	args := append(append([]string{"record", "-q", "-N", "-o", out}, c.record...), "--", "sh", "-c", peerWork)
	if !c.pipe {
		p.record(file, args...)
	} else if err := os.WriteFile(file, []byte(p.perf(args...)), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return file
}

// frameLine is an address, perhaps a symbol, and an object.
var frameLine = regexp.MustCompile(`^(.*?[\t ])([0-9a-f]+) (?:.*? )?\(([/\[].*)\)$`)

// maxPeerDiffs bounds what is shown of a difference.
const maxPeerDiffs = 20

func (p *peer) compare(c *peerCase, file, wantText, gotText string) {
	t := p.t
	t.Helper()
	want, got := strings.Split(wantText, "\n"), strings.Split(gotText, "\n")
	if c.class&unwound != 0 {
		want, got = withoutUserFrames(want), withoutUserFrames(got)
	}
	rec := readPeerRecording(t, file)
	want, got = rec.withoutBadChains(want), rec.withoutBadChains(got)
	if len(want) < 3 {
		t.Fatalf("perf printed only %d lines:\n%s", len(want), wantText)
	}
	if len(want) != len(got) {
		t.Errorf("perf prints %d lines, gantry %d", len(want), len(got))
	}
	pid, at, shown, stale, nameless := 0, "", 0, 0, 0
	for i := range min(len(want), len(got)) {
		if m := headPID.FindStringSubmatch(got[i]); m != nil {
			pid, _ = strconv.Atoi(m[1])
			if m := headTime.FindStringSubmatch(got[i]); m != nil {
				at = m[2]
			}
		}
		w, g := want[i], got[i]
		if c.class&pipeSymbols != 0 {
			w = frameLine.ReplaceAllString(w, "$1$2 ($3)")
		}
		if w == g {
			continue
		}
		if rec.beforeExec(pid, at, w, g) {
			stale++
			continue
		}
		if unnamed(w, g) {
			nameless++
			continue
		}
		if shown++; shown <= maxPeerDiffs {
			t.Errorf("line %d\nperf   %q\ngantry %q", i+1, want[i], got[i])
		}
	}
	t.Logf("%d lines; %d differ by mappings from before an exec, %d by names, %d otherwise", len(got), stale, nameless,
		shown)
}

// noName is what perf calls a task that nothing named.
var noName = regexp.MustCompile(`^ *:\d+ +(\d.*)$`)

// unnamed reports whether two lines differ because perf has no name for a task
// that gantry named: a thread forked by a thread that nothing announced, which
// gantry takes to be called like its process.
func unnamed(want, got string) bool {
	w := noName.FindStringSubmatch(want)
	return w != nil && strings.HasSuffix(got, " "+w[1]) && !noName.MatchString(got)
}

// kernelFrame reports whether a line is a frame of the kernel or a module.
func kernelFrame(line string) bool {
	return strings.HasPrefix(line, "\tffff") && !strings.HasSuffix(line, "([unknown])")
}

// withoutUserFrames drops the frames that perf found by unwinding.
func withoutUserFrames(lines []string) []string {
	var out []string
	for _, l := range lines {
		if !strings.HasPrefix(l, "\t") || kernelFrame(l) {
			out = append(out, l)
		}
	}
	return out
}

// headPID finds the process in the first line of a sample.
var headPID = regexp.MustCompile(`^ *\S.* (\d+)/\d+ `)

// peerRecording is what explains differences: all user mappings, who called
// exec, and the samples with broken call chains.
type peerRecording struct {
	list  []timedMmap
	execs map[int][]string // by process: when it called exec, as in script's lines
	bad   map[string]bool  // by chainKey
}

// timedMmap is a mapping and when it was made, as in script's lines.
type timedMmap struct {
	perf.Mmap2
	at string
}

func micros(ns uint64) string { return fmt.Sprintf("%d.%06d", ns/1e9, ns%1e9/1e3) }

func readPeerRecording(t *testing.T, file string) *peerRecording {
	t.Helper()
	r, err := perfdata.Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := &peerRecording{execs: make(map[int][]string), bad: make(map[string]bool)}
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return p
		}
		if err != nil {
			t.Fatal(err)
		}
		if !rec.Type.Kernel() {
			continue
		}
		v, err := perf.Decode(rec.Raw, r.Order(), rec.Event)
		if err != nil {
			t.Fatal(err)
		}
		switch v := v.(type) {
		case *perf.Mmap2:
			p.list = append(p.list, timedMmap{*v, micros(rec.Time)})
		case *perf.Comm:
			if v.Misc&perf.MiscCommExec != 0 {
				p.execs[int(v.PID)] = append(p.execs[int(v.PID)], micros(rec.Time))
			}
		case *perf.Sample:
			if slices.ContainsFunc(v.Callchain, noMark) {
				p.bad[chainKey(strconv.Itoa(int(v.PID)), v.Time)] = true
			}
		}
	}
}

// noMark reports whether an entry of a call chain lies where the marks do and is
// none: the end of a walk without frame pointers.
func noMark(ip uint64) bool {
	switch ip {
	case perf.ContextHV, perf.ContextKernel, perf.ContextUser, perf.ContextUserDeferred, perf.ContextGuest,
		perf.ContextGuestKernel, perf.ContextGuestUser:
		return false
	}
	return ip >= perf.ContextMax
}

func chainKey(pid string, ns uint64) string {
	return pid + " " + micros(ns)
}

// headTime finds process and time in the first line of a sample.
var headTime = regexp.MustCompile(`^ *\S.* (\d+)/\d+ (?:.* )?(\d+\.\d{6})\d*: `)

// withoutBadChains drops the frames of call chains that hold what is no mark:
// perf prints nothing of them, gantry what precedes.
func (p *peerRecording) withoutBadChains(lines []string) []string {
	var out []string
	drop := false
	for _, l := range lines {
		if m := headTime.FindStringSubmatch(l); m != nil {
			drop = p.bad[m[1]+" "+m[2]]
		}
		if !drop || !strings.HasPrefix(l, "\t") {
			out = append(out, l)
		}
	}
	return out
}

// beforeExec reports whether two lines of a sample of that time differ because perf
// keeps the mappings that a process had before exec: gantry says the address is
// unknown, and so it is by what was mapped since, and perf gives a place in a file
// that was once mapped there.
func (p *peerRecording) beforeExec(pid int, at, want, got string) bool {
	w, g := frameLine.FindStringSubmatch(want), frameLine.FindStringSubmatch(got)
	if w == nil || g == nil || g[3] != "[unknown]" {
		return false
	}
	shown, err1 := strconv.ParseUint(w[2], 16, 64)
	ip, err2 := strconv.ParseUint(g[2], 16, 64)
	exec := p.lastExec(pid, at)
	if err1 != nil || err2 != nil || exec == "" {
		return false
	}
	once := false
	for i := range p.list {
		e := &p.list[i]
		if ip < e.Addr || ip >= e.Addr+e.Len {
			continue
		}
		if int(e.PID) == pid && !earlier(e.at, exec) && earlier(e.at, at) {
			return false // gantry has lost it
		}
		once = once || e.Filename == w[3] && (shown == ip || shown == ip-e.Addr+e.PgOff)
	}
	return once
}

// lastExec is when a process called exec last, up to a time; "" if it did not.
func (p *peerRecording) lastExec(pid int, at string) (last string) {
	for _, e := range p.execs[pid] {
		if !earlier(at, e) && (last == "" || earlier(last, e)) {
			last = e
		}
	}
	return last
}

// earlier compares times as script prints them.
func earlier(a, b string) bool { return len(a) < len(b) || len(a) == len(b) && a < b }
