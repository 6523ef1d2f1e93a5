// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1": 1, "7B": 7, "2k": 2048, "2K": 2048, "1.5M": 3 << 19, "10G": 10 << 30, "10GB": 10_000_000_000,
		"4GiB": 4 << 30, "4Gi": 4 << 30, "1 TB": 1e12,
	} {
		if got, err := ParseSize("--x", text); err != nil || got != want {
			t.Errorf("%q is %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "G", "-1", "1X", "1GG", "1e400", "NaN", "Inf", "9999999999T", "1G2", "0x10"} {
		if got, err := ParseSize("--x", text); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}

func TestParseAge(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"12h": 12 * time.Hour, "30d": 720 * time.Hour, "1.5d": 36 * time.Hour, "2w": 336 * time.Hour, "0": 0, "1h30m": 90 * time.Minute,
	} {
		if got, err := ParseAge("--x", text); err != nil || got != want {
			t.Errorf("%q is %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "3", "-1d", "-1h", "NaNd", "1e300d", "5 days"} {
		if got, err := ParseAge("--x", text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
