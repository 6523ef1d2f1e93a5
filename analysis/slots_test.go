// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"fmt"
	"testing"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/analysis/timeline"
	"github.com/gantry-tools/gantry/perf"
)

// Threads share the slots of labels, and forgetting them costs nothing.
func TestLabelSlots(t *testing.T) {
	c := &collector{b: profile.NewBuilder(), epoch: 1, o: CollectOptions{Fields: profile.FieldComm}}
	thread := func(serial uint32) *timeline.Thread {
		return &timeline.Thread{Comm: fmt.Sprint(serial), Serial: serial, Process: &timeline.Process{PID: 1}}
	}
	a, b := thread(7), thread(7+maxSlots)
	sm := &perf.Sample{Cgroup: 42}
	want := c.labels(a, sm)
	if other := c.labels(b, sm); other == want {
		t.Fatal("two threads have the same labels")
	}
	if got := c.labels(a, sm); got != want {
		t.Errorf("labels %d after another thread used the slot, want %d", got, want)
	}
	if c.lastCgroup(a.Serial) != 42 || c.lastCgroup(b.Serial) != 0 || c.lastCgroup(8) != 0 {
		t.Error("a cgroup is another thread's")
	}
	for serial := range uint32(3 * maxSlots) {
		c.slot(serial)
	}
	if len(c.slots) != maxSlots {
		t.Errorf("%d slots, want %d", len(c.slots), maxSlots)
	}
	for _, epoch := range []uint32{1, 1<<32 - 1} {
		c.epoch = epoch
		c.labels(a, sm)
		c.forgetLabels()
		if slot := c.slot(a.Serial); slot.epoch == c.epoch {
			t.Errorf("epoch %d: labels are still valid in %d", epoch, c.epoch)
		}
	}
}
