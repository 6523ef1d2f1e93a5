// SPDX-License-Identifier: Apache-2.0

package events

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestPace: calls wait for their turn, after a burst; what was not used is not kept for ever.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSet(Limits{Writes: 100}, nil)
		var waited []time.Duration
		for range 12 {
			waited = append(waited, s.Pace())
		}
		if waited[9] != 0 || waited[10] != 10*time.Millisecond || waited[11] != 20*time.Millisecond {
			t.Errorf("12 calls at once wait %v", waited)
		}
		<-time.After(time.Hour)
		for i := range 11 {
			if wait := s.Pace(); (wait > 0) != (i == 10) {
				t.Errorf("call %d after an hour waits %v", i, wait)
			}
		}
		s.SetLimits(Limits{})
		if wait := s.Pace(); wait != 0 {
			t.Errorf("without a limit a call waits %v", wait)
		}
	})
}
