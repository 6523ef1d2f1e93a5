// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"fmt"

	"github.com/gantry-tools/gantry/capture/binaries"
	"github.com/gantry-tools/gantry/capture/filter"
	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/capture/proctable"
	"github.com/gantry-tools/gantry/perf"
)

// sidebandReader looks at the records of the sideband rings, and completes them
// before they are written. What comes often is read where it lies.
type sidebandReader struct {
	table      *proctable.Table
	mappings   *binaries.Mappings
	namespaced *proctable.Namespaced
	filter     *filter.Filter // nil: samples are not filtered by container
}

// learn learns from the NAMESPACES records in b where processes are. It is called
// for all rings before read is.
func (w *sidebandReader) learn(_ *ring, b []byte) error {
	learner := w.table.Learn()
	for raw, err := range perfevent.Records(b, nil, nil) {
		if err != nil {
			return fmt.Errorf("read ring: %w", err)
		}
		learner.Record(raw)
	}
	return nil
}

// read looks at all records in b.
func (w *sidebandReader) read(ring *ring, b []byte) error {
	for raw, err := range perfevent.Records(b, nil, nil) {
		if err != nil {
			return fmt.Errorf("read ring: %w", err)
		}
		w.record(ring, raw)
	}
	return nil
}

func (w *sidebandReader) record(ring *ring, raw perf.Raw) {
	ring.tally.records++
	w.table.Record(raw)
	switch raw.Type() {
	case perf.RecordMmap2:
		w.mappings.Live(raw)
	case perf.RecordLost:
		n, _ := raw.Lost()
		ring.tally.lost += n
		w.namespaced.SetIncomplete()
		if w.filter != nil {
			w.filter.Blind()
		}
	case perf.RecordKsymbol, perf.RecordBPFEvent:
		raw.RepairTrailer()
	}
}

// round ends a round.
func (w *sidebandReader) round() {
	w.table.Round()
	w.mappings.Round()
}
