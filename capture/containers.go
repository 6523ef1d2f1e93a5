// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/gantry-tools/gantry/capture/filter"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// Filtered is how the samples of the chosen containers were told from others.
type Filtered struct {
	// Selectors are those of the target as they were given.
	Selectors []string `json:"selectors"`
	// Method is "kernel" or "recorder": who decided about the events on which
	// the kernel takes a program. About tracepoints the recorder does.
	Method string `json:"method"`
	// Kernel is how many samples the kernel did not take.
	Kernel uint64 `json:"kernel_dropped"`
	// Stats are about those that it took.
	filter.Stats
}

// newFilter makes the filter of the target's containers. It is loaded into the
// kernel before any event is opened, for that takes long.
func (r *Recorder) newFilter() error {
	o := &r.opts
	if o.Resolver == nil {
		return fmt.Errorf("choose containers: %w: there is no resolver", os.ErrInvalid)
	}
	table := o.Resolver.Table()
	plan, err := filter.NewPlan(o.Target.Containers, table.Host)
	if err != nil {
		return fmt.Errorf("choose containers: %w", err)
	}
	for _, dir := range o.Target.Cgroups {
		path, err := r.cgroupPath(dir)
		if err != nil {
			return err
		}
		plan.AddCgroup(path)
	}
	f, err := filter.New(plan, plan.View(table, time.Now(), false), r.fs)
	if err != nil {
		return fmt.Errorf("choose containers: %w", err)
	}
	r.files = append(r.files, f)
	r.samples.Filter, r.plan = f, plan
	if o.NoBPF {
		return nil
	}
	if err := f.LoadKernel(len(table.Cgroups())); err != nil {
		r.filterErr = err
	}
	return nil
}

// cgroupPath is the path of a cgroup's directory in the hierarchy that samples
// refer to, as the kernel has it.
func (r *Recorder) cgroupPath(dir string) (string, error) {
	trees, err := r.fs.CgroupTrees()
	if err != nil {
		return "", fmt.Errorf("find cgroups: %w", err)
	}
	tree := trees.Perf()
	if tree == nil {
		return "", fmt.Errorf("cgroup %s: %w: no hierarchy that samples refer to is mounted", dir, os.ErrInvalid)
	}
	rest, ok := strings.CutPrefix(dir, strings.TrimSuffix(tree.Point, "/"))
	if !ok || rest != "" && rest[0] != '/' {
		return "", hint.Wrap(fmt.Errorf("cgroup %s: %w: it is not in the hierarchy that samples refer to", dir,
			os.ErrInvalid),
			"name one below "+tree.Point)
	}
	prefix := ""
	if tree.Root != "/" && !strings.HasPrefix(tree.Root, "/..") {
		prefix = tree.Root
	}
	return cmp.Or(strings.TrimSuffix(prefix+rest, "/"), "/"), nil
}

// filterNotes says what the filter cannot do here, once the events are open.
func (r *Recorder) filterNotes() {
	f := r.samples.Filter
	if f == nil {
		return
	}
	switch err := r.filterErr; {
	case errors.Is(err, fs.ErrPermission):
		r.set.note("containers are told apart by the recorder, not in the kernel: BPF is not permitted (%s)",
			hint.Of(err))
	case err != nil:
		r.set.note("containers are told apart by the recorder, not in the kernel: %v", err)
	}
	if !r.set.sideband.Attr.Flags.Has(perf.AttrNamespaces) && r.plan.NeedsNamespaces() {
		f.Blind()
		r.set.note("not permitted to see the namespaces of tasks: containers are told apart by their cgroups only")
	}
}

// view looks the names of the filter up; it is called while the table does not
// change.
func (r *Recorder) view(t *container.Table, asked time.Time, final bool) {
	r.samples.Filter.SetView(r.plan.View(t, asked, final))
}

// endRound is the end of a pass: it forgets what only this round was about, and
// gives the samples that were held and are to be written now.
func (r *Recorder) endRound() ([]byte, error) {
	f := r.samples.Filter
	if f == nil {
		return nil, nil
	}
	now, err := sys.ClockMonotonic.Now()
	if err != nil {
		return nil, err
	}
	f.Round(uint64(now))
	settled := f.Refresh()
	if f.Waiting() {
		r.names.waiting.Store(true)
		r.names.wake()
	}
	if !r.samples.Holding() || !settled && !r.samples.Overdue() {
		return nil, nil
	}
	return r.release(r.samples.Overdue())
}

// release gives the samples that were held and are kept.
func (r *Recorder) release(last bool) ([]byte, error) {
	b := r.samples.Release(last)
	return b, r.scan.scan(b, nil, &r.late)
}

// endFilter decides about what is held at the end, when names has asked for the
// last time, and sums up.
func (r *Recorder) endFilter() error {
	f := r.samples.Filter
	if f == nil {
		return nil
	}
	f.Refresh()
	late, err := r.release(true)
	if err == nil && (len(late) > 0 || r.unfinished) {
		err = writeError(r.out.WriteRound(late))
	}
	sum := &Filtered{Selectors: r.plan.Texts(), Method: "recorder", Stats: f.Stats()}
	r.result.Filtered = sum
	if !f.InKernel() {
		return err
	}
	sum.Method = "kernel"
	if e := f.Err(); e != nil {
		r.result.note("%v; the recorder decided about the rest", e)
	}
	counts, e := f.KernelCounts(r.set.cpus, len(r.set.cpus))
	if e != nil {
		r.result.note("%v", e)
	}
	sum.Kernel = counts.Dropped
	return err
}
