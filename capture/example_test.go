// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/gantry-tools/gantry/capture"
	"github.com/gantry-tools/gantry/capture/perfevent"
)

// The whole machine for a second, into a file. It needs CAP_PERFMON, so it is not run here.
func ExampleOpen() {
	pmus := perfevent.NewPMUs(nil)
	defer pmus.Close()
	groups, err := perfevent.Parse("cpu-clock", pmus)
	if err != nil {
		fmt.Println(err)
		return
	}
	f, err := os.Create("perf.data")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	r, err := capture.Open(capture.Options{Groups: groups, PMUs: pmus, Frequency: 99, Target: capture.Target{All: true}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	res, err := r.Run(ctx, capture.Output{File: f})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Samples, "samples")
}
