// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gantry-tools/gantry/capture"
	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// options turns the flags into what the recorder takes.
func (f *recordFlags) options(e *env, cmd *cobra.Command, args []string) (*capture.Options, error) {
	if err := checkGiven(cmd.Flags()); err != nil {
		return nil, usageError(cmd, err)
	}
	o := &capture.Options{
		Period: uint64(f.period), Compress: int(f.compress), Duration: time.Duration(f.duration), Version: version,
		CmdLine: append([]string{"gantry"}, os.Args[1:]...), PMUs: perfevent.NewPMUs(nil),
		NoBPFEvent: f.noBPFEvent,
	}
	if err := f.selectors.parse(); err != nil {
		return nil, usageError(cmd, err)
	}
	if err := cmp.Or(f.checkCommand(args), f.checkSegments()); err != nil {
		return nil, usageError(cmd, err)
	}
	for _, set := range []func(*capture.Options) error{f.setRate, f.setCallGraph, f.setRing, f.setTasks} {
		if err := set(o); err != nil {
			return nil, usageError(cmd, err)
		}
	}
	if len(args) > 0 {
		o.Command = &capture.Command{Args: args, Stdin: e.stdin, Stdout: e.stdout, Stderr: e.stderr}
		if f.output == "-" {
			o.Command.Stdout = e.stderr // the recording itself goes to stdout
		}
		if f.narrow() {
			f.notes = append(f.notes,
				"the command says how long; recorded is what -p, -t, --container or --cgroup name")
		}
	}
	var err error
	if o.Definitions, err = f.definitions.load(cmd); err != nil {
		return nil, err
	}
	kernel, own := splitEvents(f.events)
	if o.Groups, err = perfevent.ParseAll(kernel, o.PMUs); err != nil {
		return nil, eventError(err)
	}
	if f.sources, err = openSources(f.namespaces, own); err != nil {
		return nil, err
	}
	o.Sources = captureSources(f.sources)
	f.setStore(o)
	return o, f.setContainers(e, cmd, o)
}

// checkCommand refuses a command that is what the shell made of "-p $(pidof x)" or
// "--container $(gantry containers -q x)" with several results.
func (f *recordFlags) checkCommand(args []string) error {
	if len(args) == 0 {
		return nil
	}
	_, notNumber := strconv.ParseUint(args[0], 10, 31)
	switch {
	case (f.pids != "" || f.tids != "") && notNumber == nil:
		return hint.Wrap(fmt.Errorf("%q is no command, but looks like one more number", args[0]),
			`write several by comma, or put them in quotes: -p "$(pidof x)"`)
	case len(f.selectors.containers) > 0 && looksLikeID(args[0]):
		return hint.Wrap(fmt.Errorf("%q is no command, but looks like one more container", args[0]),
			`write several by comma, or put them in quotes: --container "$(gantry containers -q x)"`)
	}
	return nil
}

// eventError says where names of events come from, unless the error knows
// better.
func eventError(err error) error {
	if hint.Of(err) != "" {
		return err
	}
	return hint.Wrap(err, "events are named as perf list has them: cpu-clock, page-faults, SYSTEM:TRACEPOINT, ...")
}

// setRate reads -F and -c. The kernel has a limit, which is not an error.
func (f *recordFlags) setRate(o *capture.Options) error {
	limit := uint64(capture.DefaultFrequency)
	if n, err := (procfs.FS{}).SysctlInt("kernel.perf_event_max_sample_rate"); err == nil && n > 0 {
		limit = uint64(n)
	}
	switch {
	case f.freq != "" && f.period != 0:
		return errors.New("-F and -c exclude each other")
	case f.freq == "max":
		o.Frequency = limit
	case f.freq != "":
		n, err := strconv.ParseUint(f.freq, 10, 32)
		if err != nil || n == 0 {
			return fmt.Errorf("-F %q is neither a frequency in Hz nor max", f.freq)
		}
		if n > limit {
			f.notes = append(f.notes,
				fmt.Sprintf("%d Hz is more than kernel.perf_event_max_sample_rate: sampling at %d Hz", n, limit))
			n = limit
		}
		o.Frequency = n
	case f.period == 0 && limit < capture.DefaultFrequency:
		o.MaxFrequency = limit
	}
	return nil
}

func (f *recordFlags) setCallGraph(o *capture.Options) error {
	if f.graph {
		o.CallGraph = capture.FramePointers
	}
	mode, size, sized := strings.Cut(f.callGraph, ",")
	if f.trim && mode != "dwarf" {
		return errors.New("--trim-stacks is for the stacks of --call-graph dwarf")
	}
	o.TrimStacks = f.trim
	switch mode {
	case "":
		return nil
	case "fp":
		o.CallGraph = capture.FramePointers
	case "dwarf":
		o.CallGraph = capture.DWARF
	default:
		err := fmt.Errorf("--call-graph %q is neither fp nor dwarf[,SIZE]", f.callGraph)
		if mode == "lbr" {
			return withHint(err, hintPerf)
		}
		return err
	}
	if !sized {
		return nil
	}
	n, err := strconv.Atoi(size)
	if err != nil || n < 8 || n > 65528 || mode == "fp" {
		return fmt.Errorf("--call-graph %q: only dwarf takes a size, of 8 to 65528 bytes", f.callGraph)
	}
	o.StackSize = n
	return nil
}

// setRing reads -m: a number of pages, or a size with a unit.
func (f *recordFlags) setRing(o *capture.Options) error {
	if f.ring == "" {
		return nil
	}
	text, unit := f.ring, sys.PageSize()
	for suffix, n := range map[string]int{"B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30} {
		if rest, ok := strings.CutSuffix(strings.ToUpper(f.ring), suffix); ok {
			text, unit = rest, n
		}
	}
	const most = 1 << 30
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 0 || n > uint64(most/unit) {
		return fmt.Errorf("-m %q is neither a number of pages nor a size up to 1G", f.ring)
	}
	o.RingSize = max(int(n)*unit, sys.PageSize())
	return nil
}

// narrow: something smaller than the machine is named, other than the command.
func (f *recordFlags) narrow() bool {
	return f.pids != "" || f.tids != "" || len(f.cgroups) > 0 || f.selectors.given()
}

// setTasks reads -a, -C, -p and -t, and checks that targets do not mix.
func (f *recordFlags) setTasks(o *capture.Options) error {
	t := &o.Target
	var err error
	if t.CPUs, err = sys.ParseCPUList(f.cpus); err != nil {
		return fmt.Errorf("-C: %w", err)
	}
	if t.PIDs, err = numberList(f.pids); err != nil {
		return fmt.Errorf("-p: %w", err)
	}
	if t.TIDs, err = numberList(f.tids); err != nil {
		return fmt.Errorf("-t: %w", err)
	}
	t.All = f.all || f.cpus != "" && len(t.PIDs)+len(t.TIDs) == 0
	switch {
	case len(t.PIDs)+len(t.TIDs) > 0 && (len(f.cgroups) > 0 || f.selectors.given()):
		return errors.New("-p and -t cannot be combined with --container and --cgroup")
	case f.all && len(t.PIDs)+len(t.TIDs) > 0:
		return errors.New("-a cannot be combined with -p or -t")
	}
	return nil
}

// numberList reads numbers by comma or, as "$(pidof x)" gives them, by blanks.
func numberList(s string) ([]int, error) {
	var list []int
	if s != "" && strings.TrimSpace(s) == "" {
		return nil, fmt.Errorf("%q is no process or thread number", s)
	}
	for part := range strings.SplitSeq(strings.Join(strings.Fields(s), ","), ",") {
		if part == "" && s == "" {
			continue
		}
		n, err := strconv.ParseUint(part, 10, 31)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%q is no process or thread number", part)
		}
		list = append(list, int(n))
	}
	return list, nil
}

// setStore chooses where binaries are kept: as perf does, in ~/.debug.
func (f *recordFlags) setStore(o *capture.Options) {
	if f.noBuildID {
		return
	}
	o.Store = cmp.Or(f.buildIDDir, defaultStore())
	if o.Store == "" {
		f.notes = append(f.notes, "binaries of containers are not kept: there is no home directory (--buildid-dir)")
	}
}
