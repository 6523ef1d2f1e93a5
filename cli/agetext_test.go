// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"
	"time"
)

func TestAgeText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 0: "0s", 119 * time.Second: "119s", 3 * time.Minute: "3m", 47 * time.Hour: "47h",
		400 * time.Hour: "16d",
	} {
		if got := ageText(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
