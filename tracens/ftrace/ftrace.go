// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package ftrace is a trace system of tracing namespaces: tracepoints of the kernel, for
// the tasks of a container only. A namespace that uses it has an instance of tracefs of
// its own, limited to the threads of a cgroup and those that they fork.
//
// Commands of the options file: "ftrace CGROUP SYSTEM:EVENT[,SYSTEM:EVENT]...", where
// CGROUP is the path of a cgroup of v2; "ftrace off". Only the events that are named are
// there. They are ftrace.NAMESPACE:EVENT, with what the kernel prints of them as text.
package ftrace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/tracens"
	"github.com/gantry-tools/gantry/tracens/cgroup"
	"github.com/gantry-tools/gantry/tracens/events"
)

// SystemName is the first part of the events' names.
const SystemName = "ftrace"

// System is the trace system.
type System struct {
	events    func(*tracens.Namespace) *events.Set
	instances string
	absent    error // why the kernel has no instances
}

var _ tracens.System = (*System)(nil)

// Tracefs is where tracefs is mounted, as a rule.
const Tracefs = "/sys/kernel/tracing"

// New uses the tracefs that is mounted at a directory. set is the events of a namespace.
func New(tracefs string, set func(*tracens.Namespace) *events.Set) *System {
	s := &System{events: set, instances: filepath.Join(tracefs, "instances")}
	if _, err := os.Stat(s.instances); err != nil {
		s.absent = fmt.Errorf("no tracefs with instances at %s: %w", tracefs, syscall.ENODEV)
	}
	return s
}

// space is what a namespace has.
type space struct {
	set *events.Set
	dir string // of its instance

	mu  sync.Mutex
	now *instance // nil: none
}

// Name implements tracens.System.
func (*System) Name() string { return SystemName }

func (s *System) of(ns *tracens.Namespace) *space {
	sp, _ := ns.Value(s).(*space)
	return sp
}

// Create implements tracens.System.
func (s *System) Create(ns *tracens.Namespace) error {
	sp := &space{set: s.events(ns), dir: filepath.Join(s.instances, "gantry."+ns.Name)}
	ns.SetValue(s, sp)
	// One that a killed server has left.
	if err := os.Remove(sp.dir); err != nil && !errors.Is(err, os.ErrNotExist) && s.absent == nil {
		return fmt.Errorf("remove an old instance: %w", err)
	}
	return nil
}

// Remove implements tracens.System.
func (s *System) Remove(ns *tracens.Namespace) error {
	sp := s.of(ns)
	if sp == nil {
		return syscall.ENOENT
	}
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.off()
}

// IsBusy implements tracens.System.
func (*System) IsBusy(*tracens.Namespace) bool { return false }

// Parse implements tracens.System.
func (s *System) Parse(ns *tracens.Namespace, command string) error {
	words := strings.Fields(command)
	if words[0] != SystemName {
		return tracens.ErrNotMine
	}
	if s.absent != nil {
		return s.absent
	}
	sp := s.of(ns)
	sp.mu.Lock()
	defer sp.mu.Unlock()
	switch {
	case len(words) == 2 && words[1] == "off":
		return sp.off()
	case len(words) != 3:
		return fmt.Errorf("%q: ftrace CGROUP SYSTEM:EVENT,..., or ftrace off: %w", command, syscall.EINVAL)
	case sp.now != nil:
		return fmt.Errorf("%q: the namespace traces %s: %w", command, sp.now.command, syscall.EEXIST)
	}
	return sp.on(words[1], strings.Split(words[2], ","))
}

// Show implements tracens.System.
func (s *System) Show(ns *tracens.Namespace) (string, error) {
	if s.absent != nil {
		return fmt.Sprintf("# ftrace: %v\n", s.absent), nil
	}
	sp := s.of(ns)
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.now == nil {
		return "# ftrace: ftrace CGROUP SYSTEM:EVENT,...\n", nil
	}
	return "ftrace " + sp.now.command + "\n", nil
}

// instance is a tracefs instance that is read.
type instance struct {
	command string
	set     *events.Set
	dir     string
	cgroup  *sys.FD
	pipe    *sys.FD
	events  []*point
	traced  map[int]bool // threads that were added
	stop    chan struct{}
	stopped chan struct{}
	on      chan struct{} // has room for one word: an event was enabled
}

// point is one tracepoint: an events.Switch.
type point struct {
	of     *instance
	enable string // its file
	event  *events.Event
}

// Set implements events.Switch.
func (p *point) Set(on bool) error {
	text := "0"
	if on {
		text = "1"
	}
	err := os.WriteFile(p.enable, []byte(text), 0)
	select {
	case p.of.on <- struct{}{}:
	default:
	}
	return err
}

// Alive implements events.Switch.
func (*point) Alive() bool { return true }

// Close implements events.Switch.
func (*point) Close() error { return nil }

// on begins to trace; the caller holds mu.
func (sp *space) on(path string, names []string) (err error) {
	fd, err := cgroup.Open(path)
	if err != nil {
		return err
	}
	in := &instance{command: path + " " + strings.Join(names, ","), set: sp.set, dir: sp.dir, cgroup: fd,
		traced: make(map[int]bool), stop: make(chan struct{}), stopped: make(chan struct{}), on: make(chan struct{}, 1)}
	if err := os.Mkdir(sp.dir, 0o750); err != nil {
		return errors.Join(err, fd.Close())
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, in.close())
		}
	}()
	for _, set := range []struct{ file, text string }{{"trace_clock", "mono"}, {"options/event-fork", "1"}} {
		if err := os.WriteFile(filepath.Join(sp.dir, set.file), []byte(set.text), 0); err != nil {
			return err
		}
	}
	// Without threads it would be all of the machine.
	if err := in.addThreads(); err != nil {
		return err
	}
	if len(in.traced) == 0 {
		return fmt.Errorf("cgroup %s: no task is in it: %w", path, syscall.ESRCH)
	}
	if in.pipe, err = sys.Open(filepath.Join(sp.dir, "trace_pipe"), syscall.O_RDONLY|syscall.O_NONBLOCK); err != nil {
		return err
	}
	if err := in.addEvents(names); err != nil {
		return err
	}
	sp.now = in
	go in.readAll()
	return nil
}

// addEvents makes the events, each a text.
func (in *instance) addEvents(names []string) error {
	for _, name := range names {
		system, event, ok := strings.Cut(name, ":")
		p := &point{of: in, enable: filepath.Join(in.dir, "events", system, event, "enable")}
		if !ok || strings.ContainsAny(name, "/*?[") || strings.HasPrefix(system, ".") || strings.HasPrefix(event, ".") {
			return fmt.Errorf("%q is not SYSTEM:EVENT: %w", name, syscall.EINVAL)
		}
		if _, err := os.Stat(p.enable); err != nil {
			return fmt.Errorf("event %s: %w", name, syscall.ENOENT)
		}
		d, err := events.Parse(event + " __rel_loc char[] text")
		if err != nil {
			return err
		}
		if in.find(event) != nil {
			return fmt.Errorf("two events %s: %w", event, syscall.EEXIST)
		}
		p.event = in.set.Add(SystemName, d, p)
		in.events = append(in.events, p)
	}
	return nil
}

// off ends tracing; the caller holds mu.
func (sp *space) off() error {
	in := sp.now
	if in == nil {
		return nil
	}
	sp.now = nil
	close(in.stop)
	<-in.stopped
	return in.close()
}

// close gives all back that the instance has.
func (in *instance) close() error {
	for _, p := range in.events {
		in.set.Drop(p.event)
	}
	err := errors.Join(in.pipe.Close(), in.cgroup.Close())
	if e := os.Remove(in.dir); e != nil && !errors.Is(e, os.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return err
}

// addThreads adds the threads of the cgroup that are not traced: at first all, later those
// that have entered it. What they fork is traced by the kernel.
func (in *instance) addThreads() error {
	for again := true; again; { // what was forked meanwhile may not be traced
		again = false
		list, err := cgroup.Threads(in.cgroup)
		if err != nil {
			return err
		}
		there := make(map[int]bool, len(list))
		for _, tid := range list {
			there[tid] = true
			if in.traced[tid] {
				continue
			}
			err := appendTo(filepath.Join(in.dir, "set_event_pid"), strconv.Itoa(tid))
			if err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
			again = true
		}
		in.traced = there
	}
	return nil
}

func appendTo(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

const (
	// readPeriod is how often the pipe is read while somebody listens.
	readPeriod = 20 * time.Millisecond
	// lookPeriod is how often tasks are looked for that have entered the cgroup.
	lookPeriod = time.Second
)

// readAll publishes what is traced, until it is to stop.
func (in *instance) readAll() {
	defer close(in.stopped)
	timer, looked := time.NewTicker(readPeriod), time.Now()
	defer timer.Stop()
	r := bufio.NewReaderSize(pipe{in.pipe}, 64<<10)
	for {
		var tick <-chan time.Time
		if slices.ContainsFunc(in.events, func(p *point) bool { return p.event.Enabled() }) {
			tick = timer.C
		}
		select {
		case <-tick:
		case <-in.on:
			looked = time.Time{}
		case <-in.stop:
			return
		}
		if time.Since(looked) >= lookPeriod {
			_ = in.addThreads() // the next look may do
			looked = time.Now()
		}
		in.read(r)
	}
}

// pipe reads trace_pipe, which has no end.
type pipe struct{ fd *sys.FD }

func (p pipe) Read(b []byte) (int, error) { return p.fd.Read(b) }

// read publishes the lines that there are.
func (in *instance) read(r *bufio.Reader) {
	var list []events.Record
	for {
		line, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			in.set.Lose(1)
			continue
		case err != nil:
			in.set.PublishAll(list)
			return // there is no more now
		}
		rec, lost := in.parse(bytes.TrimSuffix(line, []byte("\n")))
		if lost > 0 {
			in.set.Lose(lost)
		} else if rec.Event.Enabled() {
			list = append(list, rec)
		}
	}
}

// commWidth is how wide the kernel prints the name of a task.
const commWidth = 16

// maxText bounds the text of an event, in bytes.
const maxText = 4000

// parse reads a line: COMM-TID [CPU] FLAGS SECONDS.MICROSECONDS: EVENT: TEXT, or how many
// events were lost.
func (in *instance) parse(line []byte) (rec events.Record, lost uint64) {
	if text, ok := bytes.CutPrefix(line, []byte("CPU:")); ok {
		var cpu int
		if n, _ := fmt.Sscanf(string(text), "%d [LOST %d EVENTS]", &cpu, &lost); n == 2 && lost > 0 {
			return rec, lost
		}
		return rec, 1
	}
	// The name may be anything of that width.
	if len(line) < commWidth+1 || line[commWidth] != '-' {
		return rec, 1
	}
	words := bytes.Fields(line[commWidth+1:])
	if len(words) < 5 {
		return rec, 1
	}
	tid, err := strconv.Atoi(string(words[0]))
	at, ok := parseTime(string(bytes.TrimSuffix(words[3], []byte(":"))))
	p := in.find(string(bytes.TrimSuffix(words[4], []byte(":"))))
	if err != nil || !ok || p == nil {
		return rec, 1
	}
	_, text, _ := bytes.Cut(line[commWidth+1:], append(append([]byte(": "), words[4]...), ' '))
	text = text[:min(len(text), maxText)]
	data := perf.NativeOrder.AppendUint32(nil, uint32(len(text)+1)<<16)
	data = append(append(data, text...), 0)
	return events.Record{Writer: events.Writer{TID: tid, Time: at}, Event: p.event, Data: data}, 0
}

func (in *instance) find(name string) *point {
	for _, p := range in.events {
		if p.event.Name == name {
			return p
		}
	}
	return nil
}

// parseTime reads seconds with six places as nanoseconds.
func parseTime(text string) (uint64, bool) {
	seconds, micros, ok := strings.Cut(text, ".")
	s, err := strconv.ParseUint(seconds, 10, 32)
	us, errMicros := strconv.ParseUint(micros, 10, 32)
	return s*1e9 + us*1e3, ok && err == nil && errMicros == nil && len(micros) == 6
}
