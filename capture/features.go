// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"fmt"
	"slices"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/capture/snapshot"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// readClocks reads the recording's clock and the wall clock together.
func (s *session) readClocks() error {
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
	s.bootOffset = uint64(max(boot-mono, 0))
	s.clock = perfdata.ClockData{
		ClockID: uint32(sys.ClockMonotonic), WallNS: uint64(wall), ClockNS: uint64(mono),
	}
	return nil
}

// features is what the file says about the machine and the recording, as far
// as it is known by now.
func (s *session) features() (*perfdata.Features, error) {
	f := &perfdata.Features{CmdLine: s.cmdLine, Version: s.version, ClockData: &s.clock}
	if res, err := sys.ClockMonotonic.Resolution(); err == nil {
		f.ClockRes = uint64(res)
	}
	if err := s.machine(f); err != nil {
		return nil, fmt.Errorf("describe machine: %w", err)
	}
	f.GroupDesc = groupDesc(s.groups)
	f.PMUMappings = pmuMappings(s.pmus)
	var err error
	f.TracingData, err = s.pmus.TracingData(s.groups, s.points...)
	return f, err
}

func (s *session) machine(f *perfdata.Features) error {
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
	if f.TotalMem, err = s.fs.MemTotal(); err != nil {
		return err
	}
	if cpu, err := s.fs.CPU(); err == nil { // emulators have none
		f.CPUDesc, f.CPUID = cpu.Model, cpu.ID
	}
	return nil
}

func groupDesc(groups []perfevent.Group) []perfdata.GroupDesc {
	var list []perfdata.GroupDesc
	at := 0
	for _, g := range groups {
		if g.Braces && len(g.Events) > 1 {
			list = append(list, perfdata.GroupDesc{Name: "{anon_group}", Leader: uint32(at),
				Members: uint32(len(g.Events))})
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

// noteOmitted says what a stream has no room for: a feature there is one record.
func (s *session) noteOmitted(out Sink) {
	for _, id := range slices.Compact(slices.Sorted(slices.Values(out.Omitted()))) {
		s.result.note("%v is too large for a stream and was left out; record to a file (-o FILE)", id)
	}
}

// systemBuildIDs are those of the kernel and the vdso, which are kept in the
// store: they have no file.
func (s *session) systemBuildIDs() []perfdata.BuildIDEntry {
	var out []perfdata.BuildIDEntry
	add := func(misc perf.Misc, id buildid.ID, path string, err error) {
		if err != nil {
			s.result.note("%s is not kept: %v", path, err)
		}
		if !id.IsZero() && id.Len() <= 20 {
			out = append(out, perfdata.BuildIDEntry{PID: -1, Misc: misc, ID: id.Bytes(), Path: path})
		}
	}
	id, err := s.binaries.AddKernel()
	add(perf.MiscKernel, id, snapshot.KernelMapping, err)
	id, err = s.binaries.AddVDSO()
	add(perf.MiscUser, id, "[vdso]", err)
	return out
}

// gantrySection is gantry's own section of the file: the table of containers, the losses,
// and notes on how the recording was made. Readers skip unknown fields.
func (s *session) gantrySection(t *container.Table) ([]byte, error) {
	table, err := t.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("describe containers: %w", err)
	}
	parts := map[string]any{
		"binaries": s.result.Binaries,
		"files":    s.binaries.Contents(),
		"snapshot": s.snapshot,
		"notes":    append(slices.Clone(s.announced), s.result.Notes...),
	}
	if s.result.Filtered != nil {
		parts["filter"] = s.result.Filtered
	}
	if lives := s.bpf.programList(); len(lives) > 0 {
		parts["bpf"] = lives
	}
	b, err := addParts(table, parts)
	if err != nil {
		return nil, fmt.Errorf("describe recording: %w", err)
	}
	return b, nil
}
