// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// readClocks reads the recording's clock and the wall clock together.
func (r *Recorder) readClocks() error {
	mono, err := sys.ClockMonotonic.Now()
	if err != nil {
		return err
	}
	boot, err := sys.ClockBoottime.Now()
	if err != nil {
		return err
	}
	wall, err := sys.ClockRealtime.Now()
	if err != nil {
		return err
	}
	r.bootOffset = uint64(max(boot-mono, 0))
	r.clock = perfdata.ClockData{
		ClockID: uint32(sys.ClockMonotonic), WallNS: uint64(wall), ClockNS: uint64(mono),
	}
	return nil
}

// features is what the file says about the machine and the recording, as far
// as it is known by now.
func (r *Recorder) features() (*perfdata.Features, error) {
	f := &perfdata.Features{CmdLine: r.opts.CmdLine, Version: r.opts.Version, ClockData: &r.clock}
	if res, err := sys.ClockMonotonic.Resolution(); err == nil {
		f.ClockRes = uint64(res)
	}
	if err := r.machine(f); err != nil {
		return nil, fmt.Errorf("describe machine: %w", err)
	}
	f.GroupDesc = groupDesc(r.set.groups)
	f.PMUMappings = pmuMappings(r.opts.PMUs)
	var err error
	f.TracingData, err = r.opts.PMUs.TracingData(r.set.groups)
	return f, err
}

func (r *Recorder) machine(f *perfdata.Features) error {
	u, err := sys.GetUname()
	if err != nil {
		return err
	}
	f.Hostname, f.OSRelease, f.Arch = u.Nodename, u.Release, u.Machine
	online, err := sys.OnlineCPUs()
	if err != nil {
		return err
	}
	possible, err := sys.PossibleCPUs()
	if err != nil {
		return err
	}
	f.NrCPUsOnline, f.NrCPUsAvail = uint32(len(online)), uint32(len(possible))
	if f.TotalMem, err = r.fs.MemTotal(); err != nil {
		return err
	}
	if cpu, err := r.fs.CPU(); err == nil { // emulators have none
		f.CPUDesc, f.CPUID = cpu.Model, cpu.ID
	}
	return nil
}

func groupDesc(groups []perfevent.Group) []perfdata.GroupDesc {
	var list []perfdata.GroupDesc
	at := 0
	for _, g := range groups {
		if g.Braces && len(g.Events) > 1 {
			list = append(list, perfdata.GroupDesc{Name: "{anon_group}", Leader: uint32(at), Members: uint32(len(g.Events))})
		}
		at += len(g.Events)
	}
	return list
}

func pmuMappings(pmus *perfevent.PMUs) []perfdata.PMU {
	types, err := pmus.Types()
	if err != nil {
		return nil // a container without sysfs
	}
	var list []perfdata.PMU
	for typ, name := range types {
		list = append(list, perfdata.PMU{Type: uint32(typ), Name: name})
	}
	sortPMUs(list)
	return list
}

// finish writes the features and closes the file.
func (r *Recorder) finish(table *container.Table) error {
	f, err := r.described, error(nil)
	if f == nil {
		f, err = r.features()
	}
	if f == nil {
		f = &perfdata.Features{} // the error is returned; the rest is written
	}
	r.sumUp(table)
	r.bpf.features(f)
	r.bpf.sumUp(&r.result)
	f.SampleTime = r.sampleTime()
	binaries, list := r.binaries.result()
	if n := r.snapshot.TimedOut; n > binaries.Missing[procroot.ErrTimeout.Error()] {
		binaries.missed(procroot.ErrTimeout.Error(), n)
	}
	r.result.Binaries = binaries
	f.BuildIDs = append(append(r.systemBuildIDs(), buildIDs(list)...), r.binaries.jit.buildIDs()...)
	gantry, jsonErr := r.gantrySection(table)
	f.Gantry = gantry
	closeErr := cmp.Or(r.out.Close(f), r.preallocation.finish())
	r.result.Bytes = r.out.Size()
	r.noteOmitted()
	r.binaries.close()
	return writeError(cmp.Or(closeErr, err, jsonErr))
}

// noteOmitted says what a stream has no room for: a feature there is one record.
func (r *Recorder) noteOmitted() {
	for _, id := range slices.Compact(slices.Sorted(slices.Values(r.out.Omitted()))) {
		r.result.note("%v is too large for a stream and was left out; record to a file (-o FILE)", id)
	}
}

// sampleTime is the time of the first and of the last sample.
func (r *Recorder) sampleTime() (span [2]uint64) {
	tallies := []*tally{&r.samples.late}
	for _, ring := range r.rings {
		tallies = append(tallies, &ring.tally)
	}
	for _, t := range tallies {
		if t.samples == 0 {
			continue
		}
		if span[0] == 0 || t.first < span[0] {
			span[0] = t.first
		}
		span[1] = max(span[1], t.last)
	}
	return span
}

func buildIDs(list []*binary) []perfdata.BuildIDEntry {
	var out []perfdata.BuildIDEntry
	for _, b := range list {
		path := strings.TrimSuffix(b.key.Path, " (deleted)")
		if b.id.Len() <= 20 {
			out = append(out, perfdata.BuildIDEntry{PID: -1, Misc: perf.MiscUser, ID: b.id.Bytes(), Path: path})
		}
	}
	return out
}

// systemBuildIDs are those of the kernel and the vdso, which are kept in the
// store: they have no file.
func (r *Recorder) systemBuildIDs() []perfdata.BuildIDEntry {
	var out []perfdata.BuildIDEntry
	add := func(misc perf.Misc, id buildid.ID, path string, err error) {
		if err != nil {
			r.result.note("%s is not kept: %v", path, err)
		}
		if !id.IsZero() && id.Len() <= 20 {
			out = append(out, perfdata.BuildIDEntry{PID: -1, Misc: misc, ID: id.Bytes(), Path: path})
		}
	}
	id, err := r.binaries.addKernel()
	add(perf.MiscKernel, id, kernelMapping, err)
	id, err = r.binaries.addVDSO()
	add(perf.MiscUser, id, "[vdso]", err)
	return out
}

// gantrySection is gantry's own part of the file: the table of containers
// with what was lost, and beside it what a reader may want to know about how
// the recording was made. Readers of the table skip what they do not know.
func (r *Recorder) gantrySection(t *container.Table) ([]byte, error) {
	table, err := t.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("describe containers: %w", err)
	}
	parts := map[string]any{
		"binaries": r.result.Binaries,
		"files":    r.binaries.contents(),
		"snapshot": r.snapshot,
		"notes":    append(r.Notes(), r.result.Notes...),
	}
	if r.result.Filtered != nil {
		parts["filter"] = r.result.Filtered
	}
	if lives := r.bpf.programList(); len(lives) > 0 {
		parts["bpf"] = lives
	}
	b, err := addParts(table, parts)
	if err != nil {
		return nil, fmt.Errorf("describe recording: %w", err)
	}
	return b, nil
}
