// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"testing"
	"time"
)

// Poll waits for what gives no event: it asks every 10 ms until ok, and fails the
// test after a minute. what says what is waited for.
func Poll(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if <-tick.C; time.Now().After(deadline) {
			t.Fatalf("waited a minute for %s", what)
		}
	}
}
