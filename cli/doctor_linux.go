// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/probe"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// doctorFlags are the flags of gantry doctor as they were typed.
type doctorFlags struct {
	formatFlags
	noColor bool
}

func newDoctorCmd(e *env) *cobra.Command {
	f := new(doctorFlags)
	cmd := &cobra.Command{
		Use:   "doctor [flags] [CHECK...]",
		Short: "say what works here, which layer says no, and the smallest change",
		Long: `Try what recording needs, on this machine and with the rights of this user: open
the events, map the rings, read the files. For what does not work, say which
layer refuses (seccomp, perf_event_paranoid, a capability, a security module,
lockdown, the kernel, the hardware) and what would help, the smallest change
first. Nothing on the machine is changed.

Exit status 0: recording the whole machine by container works; what is marked
warn costs detail only. 1: something that it needs does not work, or one of the
checks named on the command line does not. 2: wrong usage.

Checks: ` + wrap(strings.Join(checkNames(), " "), 8, 80),
		Example: `  gantry doctor                       everything, as this user
  sudo gantry doctor                  what root could do
  gantry doctor tracepoints           only this, for the exit status
  gantry doctor --format json | jq .okfor scripts`,
		ValidArgs: checkNames(),
		Args:      cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.formatFlags.run(e, cmd, func(e *env) error { return f.examine(e, cmd, args) })
		},
	}
	f.formatFlags.register(cmd, "text", "json")
	cmd.Flags().BoolVar(&f.noColor, "no-color", false, "no colours, also on a terminal (or set NO_COLOR)")
	return cmd
}

func checkNames() []string {
	var names []string
	for _, c := range probe.Checks() {
		names = append(names, string(c))
	}
	return names
}

func (f *doctorFlags) examine(e *env, cmd *cobra.Command, args []string) error {
	for _, a := range args {
		if !slices.Contains(checkNames(), a) {
			return usageError(cmd, fmt.Errorf("no check is called %q", a))
		}
	}
	d, err := examine(probe.New(), args)
	if err != nil {
		return err
	}
	if f.format == "json" {
		err = d.writeJSON(e.stdout)
	} else {
		err = d.writeText(e.stdout, !f.noColor && wantsColor(e.stdout))
	}
	if err != nil {
		return err
	}
	if !d.OK {
		return &exitError{code: 1}
	}
	return nil
}

// wantsColor: w is a terminal and the user has not said no (no-color.org).
func wantsColor(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// diagnosis is what doctor found; its JSON is what --format json prints.
type diagnosis struct {
	Version   int             `json:"version"`
	OK        bool            `json:"ok"`
	Kernel    string          `json:"kernel"`
	Arch      string          `json:"arch"`
	CPUs      int             `json:"cpus"`
	Privilege probe.Privilege `json:"privilege"`
	Checks    []observation   `json:"checks"`
	// Inside is about events of this container, nil outside of one.
	Inside *fromInside `json:"inside,omitempty"`
}

// observation is a check with the verdict on it.
type observation struct {
	probe.Result
	State state `json:"state"`
	must  bool  // recording needs it, or the user asked for it
}

// state is the verdict on a check.
type state string

const (
	stateOK      state = "ok"
	stateWarn    state = "warn"    // no, but recording works without
	stateFail    state = "fail"    // no, and recording needs it
	stateUnknown state = "unknown" // could not tell
)

// needed are the checks without which a recording of the machine by container
// does not work, or not fully.
func needed(c probe.Check) bool {
	switch c {
	case probe.Syscall, probe.OwnUser, probe.OwnKernel, probe.CPUWide, probe.CgroupEvents,
		probe.Rings, probe.OtherTasks, probe.CgroupIDs:
		return true
	}
	return false
}

// examine runs the checks, or only those in names, of which then each must
// pass.
func examine(p *probe.Prober, names []string) (*diagnosis, error) {
	u, err := sys.GetUname()
	if err != nil {
		return nil, err
	}
	cpus, err := sys.OnlineCPUs()
	if err != nil {
		return nil, hint.Wrap(err, "mount sysfs: gantry needs /sys")
	}
	d := &diagnosis{Version: 1, Kernel: u.Release, Arch: runtime.GOARCH, CPUs: len(cpus), Privilege: p.Privilege()}
	d.Inside = lookInside(&d.Privilege)
	for _, c := range probe.Checks() {
		asked := slices.Contains(names, string(c))
		if len(names) > 0 && !asked {
			continue
		}
		r := p.Check(c)
		d.Checks = append(d.Checks, judge(r, needed(c) && !d.Inside.replaces(c) || asked && !spare(r)))
	}
	d.OK = !slices.ContainsFunc(d.Checks, observation.bad)
	return d, nil
}

// spare: a no that needs no hint.
func spare(r probe.Result) bool { return r.Answer == probe.No && r.Effort == probe.EffortNone }

func judge(r probe.Result, must bool) observation {
	f := observation{Result: r, must: must}
	switch {
	case r.Answer == probe.Yes:
		f.State = stateOK
	case r.Answer == probe.Unknown:
		f.State = stateUnknown
	case must:
		f.State = stateFail
	default:
		f.State = stateWarn
	}
	return f
}

// bad findings make the exit status 1. What could not be told is bad where a
// no would be.
func (f observation) bad() bool {
	return f.State == stateFail || f.State == stateUnknown && f.must
}

func (d *diagnosis) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(d)
}
