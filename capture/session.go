// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gantry-tools/gantry/capture/binaries"
	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/capture/proctable"
	"github.com/gantry-tools/gantry/capture/snapshot"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// session is what a recording and a file with nothing but a snapshot have in
// common: the file, and what goes into it beside samples and sideband.
type session struct {
	fs procfs.FS

	// What the file says of itself.
	cmdLine   []string
	version   string
	groups    []perfevent.Group // as opened
	pmus      *perfevent.PMUs
	points    []*perfevent.Tracepoint // of sources
	announced []string                // the notes of Open

	events   []*perf.Event // of the file, the sideband among them
	sideband *perf.Event
	compress int // zstd level, 0: none

	output
	status     *proctable.Status // nil: there is one file only
	clock      perfdata.ClockData
	bootOffset uint64 // ns that CLOCK_BOOTTIME is ahead of clock

	table    *proctable.Table
	names    *names
	binaries *binaries.Collector
	mappings *binaries.Mappings
	bpf      *bpfWatch // nil: not watched
	// machineFeatures are what each file says from its beginning, systemIDs what each says of the
	// kernel at its end; nil: not found out yet.
	machineFeatures *perfdata.Features
	systemIDs       []perfdata.BuildIDEntry
	snapshot        snapshot.Result
	result          Result
}

// start begins the file, with the process table, the names of containers and the
// collector of binaries. close releases what it has made, also on errors.
func (s *session) start(out Output, r *container.Resolver, defs container.Definitions, b *binaries.Options) error {
	if err := s.readClocks(); err != nil {
		return err
	}
	hostMnt, _ := s.fs.Self().Namespace("mnt") // 0: not known
	s.table = proctable.New(s.fs, hostMnt)
	s.names = newNames(r, defs, s.bootOffset)
	s.table.Subscribe(s.names)
	if s.names.namespaced != nil {
		s.table.Subscribe(s.names.namespaced)
	}
	s.binaries = binaries.New(b, s.fs)
	s.mappings = binaries.NewMappings(s.fs, s.table, s.binaries)
	if err := s.bpf.begin(s.bootOffset); err != nil {
		return err
	}
	return s.openOutput(out)
}

// close releases what start has made. Closing twice does nothing.
func (s *session) close(r *container.Resolver) {
	s.mappings.Close()
	s.binaries.Close()
	if r != nil {
		r.Among(nil)
	}
}

// writeRecord writes one record with the id of the sideband.
func (s *session) writeRecord(rec perf.Record) error {
	perf.SampleIDOf(rec).ID = s.sideband.IDs[0]
	if s.status != nil {
		raw, err := perf.Append(nil, rec, perf.NativeOrder, s.sideband)
		if err != nil {
			return err
		}
		s.status.Add(raw)
	}
	if err := s.out.WriteRecord(rec, s.sideband); err != nil {
		return writeError(err)
	}
	return nil
}

// synthesizer writes the status records of the session.
func (s *session) synthesizer() *snapshot.Synthesizer {
	return &snapshot.Synthesizer{FS: s.fs, Table: s.table, Write: s.writeRecord, Mapping: s.mappings.Status}
}

// writeContainers writes the containers as they are known now: a stream's reader
// needs them now, and a file whose recorder is killed has no others.
func (s *session) writeContainers() error {
	section, early, err := s.names.section()
	s.namesPending = early
	return s.writeContainerSection(section, err)
}

// writeLateNames is writeContainers for runtimes that had not answered by then.
func (s *session) writeLateNames() error {
	if !s.namesPending {
		return nil
	}
	section, ok, err := s.names.late()
	if !ok {
		return nil
	}
	s.namesPending = false
	return s.writeContainerSection(section, err)
}

// writeContainerSection writes a section of containers with the BPF programs, or
// returns the error.
func (s *session) writeContainerSection(section []byte, err error) error {
	if err == nil {
		section, err = s.bpf.addToSection(section)
	}
	if err != nil {
		return fmt.Errorf("describe containers: %w", err)
	}
	if err := s.out.WriteGantry(section); err != nil {
		return writeError(err)
	}
	return nil
}

// finish writes the features and closes the file. sampleTime is the time of the
// first and of the last sample.
func (s *session) finish(table *container.Table, sampleTime [2]uint64) error {
	s.bpf.sumUp(&s.result)
	s.systemIDs = nil // modules may have been loaded since another file ended
	err := s.endOutput(&s.output, table, sampleTime)
	s.result.Bytes += s.out.Size()
	s.binaries.Close()
	return writeError(err)
}

// endOutput writes what a file says at its end, and closes it.
func (s *session) endOutput(o *output, table *container.Table, sampleTime [2]uint64) error {
	f, err := o.described, error(nil)
	if f == nil {
		f, err = s.features()
	}
	if f == nil {
		f = &perfdata.Features{} // the error is returned; the rest is written
	}
	s.bpf.features(f)
	f.SampleTime = sampleTime
	sum, list := s.binaries.Result()
	sum.SetAtLeast(procroot.ErrTimeout, s.snapshot.TimedOut)
	s.result.Binaries = sum
	if s.systemIDs == nil {
		s.systemIDs = s.systemBuildIDs()
	}
	f.BuildIDs = slices.Concat(s.systemIDs, list)
	gantry, jsonErr := s.gantrySection(table)
	f.Gantry = gantry
	closeErr := cmp.Or(o.out.Close(f), o.preallocation.finish())
	s.noteOmitted(o.out)
	return cmp.Or(closeErr, err, jsonErr)
}
