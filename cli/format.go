// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strconv"
)

// thousands is n with a comma before every three digits.
func thousands(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// byteSize is a size for people: 3.2 MB.
func byteSize(n int64) string {
	const unit = 1000
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, prefixes := float64(n)/unit, "kMGT"
	for f >= unit && len(prefixes) > 1 {
		f, prefixes = f/unit, prefixes[1:]
	}
	return fmt.Sprintf("%.1f %cB", f, prefixes[0])
}

// plural is "1 container" or "4 containers".
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
