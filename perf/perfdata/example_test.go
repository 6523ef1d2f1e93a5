// SPDX-License-Identifier: Apache-2.0

package perfdata_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// A stream is written, as "perf record -o -" does, and read again.
func Example() {
	ev := perf.NewEvent(perf.Attr{
		Type: perf.TypeSoftware, Config: perf.SWCPUClock,
		SampleType: perf.SampleIP | perf.SampleTID | perf.SampleTime, Flags: perf.AttrSampleIDAll,
	}, "cpu-clock", 7)
	var stream bytes.Buffer
	w, err := perfdata.NewPipeWriter(&stream, []*perf.Event{ev}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = errors.Join(w.WriteRecord(&perf.Comm{PID: 12, TID: 12, Comm: "nginx"}, ev), w.Close(&perfdata.Features{Hostname: "web1"}))
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := perfdata.NewPipeReader(&stream, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		if rec.Type == perf.RecordComm {
			fmt.Println(rec.Type, "of", rec.Event.Name)
		}
	}
	fmt.Println("on", r.Features().Hostname)
	// Output:
	// COMM of cpu-clock
	// on web1
}
