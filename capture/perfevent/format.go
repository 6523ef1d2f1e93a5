// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/perf"
)

// field is where a device wants the value of a term: a file of its format
// directory, such as "config:0-7,32-35".
type field struct {
	config int // 0 to 4: attr.config, config1, ...
	ranges []bitRange
}

type bitRange struct{ lo, hi uint }

// parseField reads a format file.
func parseField(text string) (field, error) {
	var f field
	name, list, ok := strings.Cut(strings.TrimSpace(text), ":")
	if !ok {
		return f, fmt.Errorf("format %q has no bits", text)
	}
	number, ok := strings.CutPrefix(name, "config")
	if !ok {
		return f, fmt.Errorf("format %q is not of config", text)
	}
	if number != "" {
		n, err := strconv.ParseUint(number, 10, 8)
		if err != nil || n < 1 || n > 4 {
			return f, fmt.Errorf("format %q is of an unknown config", text)
		}
		f.config = int(n)
	}
	width := uint(0)
	for part := range strings.SplitSeq(list, ",") {
		r, err := parseBits(part)
		if err != nil {
			return field{}, fmt.Errorf("format %q: %w", text, err)
		}
		f.ranges = append(f.ranges, r)
		width += r.hi - r.lo + 1
	}
	if width > 64 {
		return field{}, fmt.Errorf("format %q has %d bits", text, width)
	}
	return f, nil
}

func parseBits(s string) (bitRange, error) {
	lo, hi, ranged := strings.Cut(s, "-")
	if !ranged {
		hi = lo
	}
	from, err := strconv.ParseUint(lo, 10, 8)
	if err != nil {
		return bitRange{}, fmt.Errorf("bit %q: %w", lo, err)
	}
	to, err := strconv.ParseUint(hi, 10, 8)
	if err != nil {
		return bitRange{}, fmt.Errorf("bit %q: %w", hi, err)
	}
	if from > to || to > 63 {
		return bitRange{}, fmt.Errorf("bits %q are no range in 0-63", s)
	}
	return bitRange{uint(from), uint(to)}, nil
}

// max is the largest value that fits.
func (f field) max() uint64 {
	width := uint(0)
	for _, r := range f.ranges {
		width += r.hi - r.lo + 1
	}
	if width >= 64 {
		return ^uint64(0)
	}
	return 1<<width - 1
}

// set writes v, whose low bits go to the first range, and replaces what was
// there.
func (f field) set(a *perf.Attr, v uint64) {
	word := configWord(a, f.config)
	for _, r := range f.ranges {
		width := r.hi - r.lo + 1
		mask := ^uint64(0) >> (64 - width)
		*word = *word&^(mask<<r.lo) | v&mask<<r.lo
		v = v >> 1 >> (width - 1)
	}
}

func configWord(a *perf.Attr, n int) *uint64 {
	return [...]*uint64{&a.Config, &a.Config1, &a.Config2, &a.Config3, &a.Config4}[n]
}
