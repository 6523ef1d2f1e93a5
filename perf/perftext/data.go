// SPDX-License-Identifier: Apache-2.0

package perftext

import (
	"fmt"
	"io"

	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// Append encodes the record, as perf.Append does. AUXTRACE records get the
// size 0: what followed them is not in the text.
func (r *Record) Append(dst []byte, o perf.Order) ([]byte, error) {
	rec := r.Record
	if aux, ok := rec.(*perf.Auxtrace); ok {
		bare := *aux
		bare.Size = 0
		rec = &bare
	}
	return perf.Append(dst, rec, o, r.Event)
}

// WriteData writes the recording as a perf.data file.
func (r *Recording) WriteData(f perfdata.File) error {
	w, err := perfdata.NewWriter(f, r.Events, &perfdata.WriterOptions{Order: r.Order})
	if err != nil {
		return err
	}
	return r.write(w)
}

// WriteStream writes the recording as perf.data in a pipe.
func (r *Recording) WriteStream(w io.Writer) error {
	pw, err := perfdata.NewPipeWriter(w, r.Events, &perfdata.WriterOptions{Order: r.Order, Features: &r.Features})
	if err != nil {
		return err
	}
	return r.write(pw)
}

func (r *Recording) write(w *perfdata.Writer) error {
	var b []byte
	for i := range r.Records {
		var err error
		if b, err = r.Records[i].Append(b[:0], r.Order); err != nil {
			return fmt.Errorf("record %d: %w", i+1, err)
		}
		if err := w.Write(b); err != nil {
			return err
		}
	}
	return w.Close(&r.Features)
}
