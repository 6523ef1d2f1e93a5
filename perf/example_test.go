// SPDX-License-Identifier: Apache-2.0

package perf_test

import (
	"fmt"

	"github.com/gantry-tools/gantry/perf"
)

// A record as bytes, and read again. What an event asks for decides what is in it.
func Example() {
	ev := perf.NewEvent(perf.Attr{
		Type: perf.TypeSoftware, Config: perf.SWCPUClock,
		SampleType: perf.SampleIP | perf.SampleTID | perf.SampleTime, Flags: perf.AttrSampleIDAll,
	}, "cpu-clock")
	b, err := perf.Append(nil, &perf.Comm{PID: 12, TID: 13, Comm: "nginx"}, perf.LittleEndian, ev)
	if err != nil {
		fmt.Println(err)
		return
	}
	h := perf.ParseHeader(b, perf.LittleEndian)
	rec, err := perf.Decode(b, perf.LittleEndian, ev)
	if err != nil {
		fmt.Println(err)
		return
	}
	comm := rec.(*perf.Comm)
	fmt.Println(h.Type, h.Size, comm.PID, comm.TID, comm.Comm)
	// Output: COMM 40 12 13 nginx
}
