// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gantry-tools/gantry/capture/bpfprog"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

func newBPFCmd(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bpf",
		Short: "list BPF programs, follow loads and unloads, show code",
		Long: `List the BPF programs of the running system, follow which are loaded and
unloaded, and show their code and source lines: of the running system, or of a
recording, which has those that are gone as well.`,
		Example: `  gantry bpf list                  what is loaded, by whom, where it is attached
  gantry bpf list --stats 5s       and how much CPU each uses
  gantry bpf log --follow          loads and unloads as they happen
  gantry bpf log -i perf.data      those of a recording
  gantry bpf dump 42               instructions, machine code and source lines`,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, sub := range []*cobra.Command{newBPFListCmd(e), newBPFLogCmd(e), newBPFDumpCmd(e)} {
		cmd.AddCommand(withSignals(sub))
	}
	return cmd
}

// bpfLoader is a loader or holder as it is listed.
type bpfLoader struct {
	PID       int32  `json:"pid"`
	Comm      string `json:"comm,omitempty"`
	Container string `json:"container,omitempty"` // "[host]" for none, "" if it is not known
}

func (l *bpfLoader) String() string {
	if l == nil {
		return ""
	}
	return fmt.Sprintf("%s(%d)", cmp.Or(container.Printable(l.Comm), "?"), l.PID)
}

// bpfProgram is a program as it is listed.
type bpfProgram struct {
	ID       uint32     `json:"id"`
	Type     string     `json:"type,omitempty"`
	Name     string     `json:"name,omitempty"`
	Tag      string     `json:"tag,omitempty"`
	UID      uint32     `json:"uid"`
	Loaded   time.Time  `json:"loaded,omitzero"`
	Unloaded time.Time  `json:"unloaded,omitzero"`
	Before   bool       `json:"before,omitempty"` // loaded before the recording
	Loader   *bpfLoader `json:"loader,omitempty"`
	// Holders have it open: who loaded it is one of them, as a rule.
	Holders     []bpfLoader              `json:"holders,omitempty"`
	Attached    []perfdata.BPFAttachment `json:"attached,omitempty"`
	Maps        []uint32                 `json:"maps,omitempty"`
	BTF         uint32                   `json:"btf,omitempty"`
	Subprograms []bpfSubprogram          `json:"subprograms,omitempty"`
	Xlated      int                      `json:"xlated_bytes,omitempty"`
	JITed       int                      `json:"jited_bytes,omitempty"`
	RunTime     time.Duration            `json:"run_time_ns,omitempty"`
	Runs        uint64                   `json:"runs,omitempty"`
	CPU         *float64                 `json:"cpu_percent,omitempty"` // of one CPU, with --stats
	Route       perfdata.BPFRoute        `json:"route,omitempty"`
	Missed      string                   `json:"missed,omitempty"`
}

// bpfSubprogram is one of a program's functions.
type bpfSubprogram struct {
	Symbol  string `json:"symbol"`
	Address string `json:"address,omitempty"`
	Size    uint32 `json:"bytes,omitempty"`
}

// fill takes what the details tell.
func (p *bpfProgram) fill(d *bpfprog.Details) {
	p.ID, p.Type, p.Name, p.Tag, p.UID = d.ID, perfdata.BPFTypeName(d.Type), d.Name, fmt.Sprintf("%x", d.Tag), d.UID
	p.Maps, p.BTF, p.Xlated, p.JITed = d.MapIDs, d.BTFID, len(d.Xlated), len(d.JITed)
	p.RunTime, p.Runs = time.Duration(d.RunTimeNS), d.RunCount
	p.Subprograms = nil
	for _, rec := range d.Symbols() {
		if k, ok := rec.(*perf.Ksymbol); ok {
			p.Subprograms = append(p.Subprograms, bpfSubprogram{k.Name, fmt.Sprintf("%#x", k.Addr), k.Len})
		}
	}
}

// bpfNames tells which containers loaders are in.
type bpfNames struct {
	table *container.Table
	names *container.Names
	def   container.Definition
}

func newBPFNames(t *container.Table) *bpfNames {
	d := container.Default()
	return &bpfNames{t, t.Names(&d), d}
}

// of describes a loader; nil if nobody is known.
func (n *bpfNames) of(l *perfdata.BPFLoader) *bpfLoader {
	if l == nil {
		return nil
	}
	task := container.Task{Cgroup: container.CgroupID(l.Cgroup), CgroupPath: n.table.Path(container.CgroupID(l.Cgroup))}
	for name, ino := range l.Namespaces {
		if ns, ok := container.ParseNamespace(name); ok {
			task.Namespaces[ns] = ino
		}
	}
	out := &bpfLoader{PID: l.PID, Comm: l.Comm}
	id, m := n.table.Judge(&n.def, &task)
	switch m {
	case container.Inside:
		out.Container = cmp.Or(n.names.Name(id, &task), n.def.Text(id))
	case container.Outside:
		out.Container = hostLabel
	}
	return out
}

// hostLabel is what reports call tasks outside of containers.
const hostLabel = "[host]"

// attachText is where a program is attached, in one cell.
func attachText(list []perfdata.BPFAttachment) string {
	var texts []string
	for _, a := range list {
		texts = append(texts, strings.TrimSuffix(a.Kind+":"+a.Target, ":"))
	}
	slices.Sort(texts)
	return container.Printable(strings.Join(slices.Compact(texts), ","))
}

// bootTime is when CLOCK_BOOTTIME was 0.
func bootTime() (time.Time, error) {
	boot, err := sys.ClockBoottime.Now()
	if err != nil {
		return time.Time{}, err
	}
	return time.Now().Add(-boot), nil
}

// bpfHint says what to do about programs that may not be read.
func bpfHint(err error) error {
	return hint.Wrap(err, "BPF programs are shown to root (CAP_SYS_ADMIN)")
}
