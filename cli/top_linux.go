// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/capture"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf/perfdata"
	"github.com/gantry-tools/gantry/view/terminal"
)

// topFlags are the flags of gantry top.
type topFlags struct {
	record  recordFlags
	symbols symbolFlags
	by      string
	window  timeValue
	delay   timeValue
	tables  int
	rows    int
	batch   bool
}

// topLevels are the values of --by.
var topLevels = map[string]terminal.Level{
	"container": terminal.Containers, "process": terminal.Processes, "function": terminal.Functions,
}

func newTopCmd(e *env) *cobra.Command {
	f := &topFlags{window: timeValue(10 * time.Second), delay: timeValue(2 * time.Second)}
	cmd := &cobra.Command{
		Use:   "top [flags]",
		Short: "show who uses the CPU now, by container, process and function",
		Long: `Show who uses the CPU now: containers first, their processes and functions
behind Enter. It is the same data as gantry record and report have, of the last
seconds. ? shows the keys. Without a terminal, or with --batch, tables are
written as text.`,
		Example: `  gantry top                               the machine, by container
  gantry top --container web -F 999        one container, ten times as fine
  gantry top --batch -n 1 --by function    one table of functions, as text`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(e, cmd) },
	}
	f.register(cmd)
	plainFlagErrors(cmd)
	complete(cmd, "by", false, []string{"container", "process", "function"})
	return cmd
}

func (f *topFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.SortFlags = false
	r := &f.record
	fl.StringArrayVarP(&r.events, "event", "e", nil, "sample this `EVENT` (default cycles, or cpu-clock)")
	fl.StringVarP(&r.freq, "freq", "F", "99", "`HZ` samples a second and CPU, or max")
	fl.BoolVarP(&r.all, "all-cpus", "a", false, "the whole machine (the default)")
	fl.StringVarP(&r.pids, "pid", "p", "", "these processes and the children they will have: `PIDS` by comma")
	fl.StringVarP(&r.tids, "tid", "t", "", "these threads: `TIDS` by comma")
	fl.StringVarP(&r.cpus, "cpu", "C", "", "only these `CPUS`: 0-3,8")
	r.selectors.register(fl)
	fl.BoolVar(&r.wait, "wait", false, "accept a --container that does not run yet")
	fl.StringArrayVar(&r.cgroups, "cgroup", nil, "only the cgroup with this `PATH` and those below it")
	r.definitions.register(fl)
	fl.Var(&f.window, "window", "add up the last `TIME`")
	fl.VarP(&f.delay, "delay", "d", "with --batch: `TIME` between two tables")
	fl.StringVar(&f.by, "by", "container", "begin with `LEVEL`: container, process or function")
	fl.BoolVarP(&f.batch, "batch", "b", false, "write tables as text")
	fl.IntVar(&f.tables, "iterations", 0, "with --batch: end after `N` tables")
	fl.IntVar(&f.rows, "rows", 20, "with --batch: at most `N` rows a table, 0 is all")
	f.symbols.register(fl)
}

func (f *topFlags) run(e *env, cmd *cobra.Command) error {
	level, ok := topLevels[f.by]
	if !ok {
		return usageError(cmd, fmt.Errorf("--by %q: write container, process or function", f.by))
	}
	if f.tables < 0 || f.rows < 0 {
		return usageError(cmd, errors.New("--iterations and --rows are numbers from 0 on"))
	}
	live, err := f.open(e, cmd)
	if err != nil {
		return err
	}
	own := newOwnTime()
	o := &terminal.Options{Slices: live.slices, Err: live.wait, Window: time.Duration(f.window),
		Status: func() terminal.Status {
			return terminal.Status{Event: live.event, CPUs: live.cpus, Own: own.share(), Note: "waiting for samples"}
		}}
	width := terminalWidth(e.stdout)
	if f.batch || width == 0 || !isTerminal(e.stdin) {
		t := &terminal.TextOptions{Level: level, Every: time.Duration(f.delay), Tables: f.tables, Rows: f.rows,
			Width: width}
		err = terminal.WriteText(cmd.Context(), e.stdout, o, t)
	} else {
		err = terminal.Run(cmd.Context(), e.stdin, e.stdout, o, level)
	}
	return cmp.Or(err, live.end())
}

// liveRecording is a recording that is read while it is made.
type liveRecording struct {
	event  string
	cpus   int
	slices chan analysis.Slice
	cancel context.CancelFunc
	stream *capture.Stream
	done   chan struct{} // the recorder has ended

	mu     sync.Mutex
	failed error
}

// maxWaiting is how much of a recording waits to be read, in bytes.
const maxWaiting = 64 << 20

// open begins to record.
func (f *topFlags) open(e *env, cmd *cobra.Command) (*liveRecording, error) {
	r := &f.record
	r.graph, r.noBuildID = true, true
	opts, err := r.options(e, cmd, nil)
	if err != nil {
		return nil, err
	}
	opts.Live = true
	sources, err := f.symbols.sources(e)
	if err != nil {
		return nil, err
	}
	cpus, err := sys.OnlineCPUs()
	if err != nil {
		sources.Close()
		return nil, err
	}
	l := &liveRecording{cpus: len(cpus), slices: make(chan analysis.Slice), done: make(chan struct{}),
		stream: capture.NewStream(maxWaiting)}
	var ctx context.Context
	ctx, l.cancel = context.WithCancel(cmd.Context())
	opened := make(chan error, 1)
	go l.record(ctx, r, opts, opened)
	if err := <-opened; err != nil {
		l.cancel()
		<-l.done
		sources.Close()
		return nil, err
	}
	go l.read(ctx, sources)
	return l, nil
}

// record runs the recorder, which belongs to one goroutine.
func (l *liveRecording) record(ctx context.Context, f *recordFlags, opts *capture.Options, opened chan<- error) {
	defer close(l.done)
	defer l.stream.CloseWrite()
	defer opts.PMUs.Close()
	defer closeSources(f.sources)
	release, _ := useAgent(opts)
	defer release()
	r, err := capture.Open(*opts)
	if err != nil {
		opened <- err
		return
	}
	defer r.Close()
	l.event = f.eventName(r)
	opened <- nil
	_, err = r.Run(ctx, l.stream.Output())
	l.fail(err)
}

// eventName is what is sampled, and how often.
func (f *recordFlags) eventName(r *capture.Recorder) string {
	return fmt.Sprintf("%s at %s Hz", strings.Join(r.EventNames(), ","), f.freq)
}

// read adds up what is recorded.
func (l *liveRecording) read(ctx context.Context, sources *symbolSources) {
	defer close(l.slices)
	defer sources.Close()
	defer l.stream.CloseRead()
	r, err := perfdata.NewPipeReader(l.stream, nil)
	if err != nil {
		l.fail(err)
		return
	}
	defer r.Close()
	o := sources.options()
	o.Live = true
	collect := analysis.CollectOptions{Symbols: true, Stacks: true,
		Fields: profile.FieldContainer | profile.FieldComm | profile.FieldPID}
	err = analysis.NewSession(r, o).Slices(collect, time.Second, func(s analysis.Slice) error {
		select {
		case l.slices <- s:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if ctx.Err() == nil {
		l.fail(err)
	}
}

// fail keeps the first error.
func (l *liveRecording) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = cmp.Or(l.failed, err)
}

// wait waits for the end, which has begun.
func (l *liveRecording) wait() error {
	<-l.done
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// end ends the recording.
func (l *liveRecording) end() error {
	l.cancel()
	for range l.slices { // until the reader has ended
	}
	err := l.wait()
	if errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return hint.Wrap(err, "")
}

// ownTime is how much of a CPU this process takes.
type ownTime struct {
	mu   sync.Mutex
	at   time.Time
	used time.Duration
	last float64
}

func newOwnTime() *ownTime {
	o := new(ownTime)
	o.at, o.used = time.Now(), used()
	return o
}

// used is the CPU time of this process.
func used() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// share is the percentage of a CPU, over a second at least.
func (o *ownTime) share() float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if d := time.Since(o.at); d >= time.Second {
		now := used()
		o.last = 100 * float64(now-o.used) / float64(d)
		o.at, o.used = time.Now(), now
	}
	return o.last
}
