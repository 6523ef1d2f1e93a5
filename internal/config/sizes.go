// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// sizeUnit is what a suffix multiplies a size with: a bare letter is that of
// perf and of kubectl's Gi, 1024; GB is 1000.
func sizeUnit(suffix string) (int64, bool) {
	suffix = strings.ToLower(suffix)
	if suffix == "" || suffix == "b" {
		return 1, true
	}
	exp := strings.IndexByte("kmgt", suffix[0]) + 1
	base := int64(1024)
	switch suffix[1:] {
	case "", "i", "ib":
	case "b":
		base = 1000
	default:
		return 0, false
	}
	unit := int64(1)
	for range exp {
		unit *= base
	}
	return unit, exp > 0
}

// ParseSize reads a size: 512M, 1.5G, 10GB, 4GiB, or bytes.
func ParseSize(what, s string) (int64, error) {
	end := strings.LastIndexAny(s, "0123456789.") + 1
	n, err := strconv.ParseFloat(s[:end], 64)
	unit, ok := sizeUnit(strings.TrimSpace(s[end:]))
	size := n * float64(unit)
	if err != nil || !ok || !(size >= 0 && size < math.MaxInt64) {
		return 0, fmt.Errorf("%s %q is not a size: write bytes, 512M or 10G", what, s)
	}
	return int64(size), nil
}

// ParseAge reads a span of time: 30d, 2w, or what Go reads (12h30m).
func ParseAge(what, s string) (time.Duration, error) {
	day := map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour}
	for suffix, unit := range day {
		text, ok := strings.CutSuffix(s, suffix)
		if n, err := strconv.ParseFloat(text, 64); ok && err == nil && n >= 0 && n*float64(unit) < math.MaxInt64 {
			return time.Duration(n * float64(unit)), nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%s %q is not an age: write 12h, 30d or 8w", what, s)
	}
	return d, nil
}
