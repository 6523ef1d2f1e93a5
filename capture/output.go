// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"io"
	"os"

	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// Output is where a recording goes: one of the three.
type Output struct {
	File *os.File  // empty, seekable
	Pipe io.Writer // a stream
	// Open makes a Sink for the given events.
	Open func(events []*perf.Event, o *perfdata.WriterOptions) (Sink, error)
}

// Sink takes a recording in rounds, as [perfdata.Writer] does, which is one. Records are as
// the kernel writes them, and valid during the call. It is called by one goroutine.
type Sink interface {
	// Write takes whole records. A record may go from one slice to the next.
	Write(records ...[]byte) error
	// WriteRecord takes one of an event, which is nil for records of perf's own.
	WriteRecord(rec perf.Record, ev *perf.Event) error
	// WriteRound takes records that end a round: none that comes later is older than those of
	// the round before.
	WriteRound(records ...[]byte) error
	FinishRound() error
	// Commit says that what was taken so far is whole, though its round is not.
	Commit() error
	// WriteGantry takes gantry's own section as it is by now.
	WriteGantry(section []byte) error
	// CheckpointFeatures takes sections that are shown if nobody comes to call Close.
	CheckpointFeatures(sections map[perfdata.FeatureID][]byte)
	// Close takes the rest of what the recording says of itself, and ends it.
	Close(f *perfdata.Features) error
	// Size is how many bytes there are, Omitted what Close could not take.
	Size() int64
	Omitted() []perfdata.FeatureID
}

var _ Sink = (*perfdata.Writer)(nil)

// output is an output that was begun.
type output struct {
	Output
	out           Sink
	preallocation preallocation
	// described is what the file says of the machine; nil: it could not be
	// found out.
	described    *perfdata.Features
	namesPending bool // the file has no names of containers yet
}

// openOutput begins a file.
func (s *session) openOutput(out Output) (err error) {
	s.output = output{Output: out}
	o := &perfdata.WriterOptions{Compress: s.compress}
	if s.machineFeatures == nil {
		s.machineFeatures, err = s.features()
	}
	if s.machineFeatures != nil {
		f := *s.machineFeatures
		s.bpf.features(&f)
		s.described, o.Features = &f, &f
	}
	switch {
	case out.Open != nil:
		s.out, err = out.Open(s.events, o)
	case out.Pipe != nil:
		if err != nil {
			return err
		}
		s.out, err = sinkOf(perfdata.NewPipeWriter(out.Pipe, s.events, o))
	default:
		info, e := out.File.Stat()
		regular := e == nil && info.Mode().IsRegular()
		if regular {
			s.preallocation = newPreallocation(out.File)
		}
		file := vectorFile{sys.VectorFile{File: out.File, NoSched: regular}}
		s.out, err = sinkOf(perfdata.NewWriter(file, s.events, o))
	}
	return writeError(err)
}

// sinkOf is a Sink, and none if there is an error.
func sinkOf(w *perfdata.Writer, err error) (Sink, error) {
	if err != nil {
		return nil, err
	}
	return w, nil
}

// vectorFile is a VectorFile in the form that perfdata looks for.
type vectorFile struct{ sys.VectorFile }

func (f vectorFile) Writev(b [][]byte) (int, error) {
	n, err := f.VectorFile.Writev(b)
	return int(n), err
}
