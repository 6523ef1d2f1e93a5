// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"time"
)

// ageText is a span of time for a table, as kubectl has it: 5s, 12m, 3h, 40d.
func ageText(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}
