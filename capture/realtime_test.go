// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/internal/testutil"
)

// heldUp is a file that once does not take what is written to it, from when hold
// says so until ready does.
type heldUp struct {
	*os.File
	hold, ready func() bool
	held, late  bool
}

func (f *heldUp) Write(b []byte) (int, error) {
	if !f.held && f.hold() {
		f.held = true
		// Waiting takes a CPU, of which there are samples.
		for begun := time.Now(); !f.ready() && !f.late; {
			f.late = time.Since(begun) > 20*time.Second
		}
	}
	return f.File.Write(b)
}

// While the output does not take anything, more samples than a ring holds are
// taken out of it, and none of them is lost or out of order in the file.
func TestDrainWhileHeldUp(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents)
	const size = 128 << 10
	r, err := Open(Options{CallGraph: DWARF, Frequency: 999, RingSize: size, Duration: time.Second,
		PMUs: perfevent.NewPMUs(nil), Groups: groups(t, "cpu-clock")})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f := newOutput(t)
	out := &heldUp{File: f, hold: func() bool { return r.sampleCount() > 0 }, ready: func() bool {
		return slices.ContainsFunc(r.rings, func(ring *ring) bool {
			return !ring.sideband && r.drainer.waiting(ring) > 2*size
		})
	}}
	res, err := r.Run(context.Background(), Output{Pipe: out})
	if err != nil {
		t.Fatal(err)
	}
	if !out.held || out.late {
		t.Error("nothing was taken out of the rings meanwhile")
	}
	if c := read(t, f.Name()); uint64(len(c.samples)) != res.Samples || res.Samples == 0 {
		t.Errorf("%d samples in the file, %d written", len(c.samples), res.Samples)
	}
}
