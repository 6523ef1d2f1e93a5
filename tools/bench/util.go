// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"runtime"
	"slices"
)

func trimLine(b []byte) string { return string(bytes.TrimSpace(b)) }

// utsString is a NUL-terminated field of struct utsname, whose chars are
// signed on one architecture and unsigned on another.
func utsString[T int8 | uint8](chars []T) string {
	var b []byte
	for _, c := range chars {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return string(b)
}

func onlineCPUs() int { return runtime.NumCPU() }

// median of a copy of v; 0 if it is empty.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}
