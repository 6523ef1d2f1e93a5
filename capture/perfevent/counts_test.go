// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"errors"
	"io"
	"reflect"
	"testing"

	"github.com/gantry-tools/gantry/perf"
)

func words(v ...uint64) []byte {
	var b []byte
	for _, w := range v {
		b = nativeOrder.AppendUint64(b, w)
	}
	return b
}

func TestDecodeCounts(t *testing.T) {
	const times = perf.FormatTotalTimeEnabled | perf.FormatTotalTimeRunning
	for name, c := range map[string]struct {
		format perf.ReadFormat
		words  []uint64
		want   Counts
	}{
		"bare": {0, []uint64{7}, Counts{Counts: []Count{{Value: 7}}}},
		"all of one": {times | perf.FormatID | perf.FormatLost, []uint64{7, 100, 50, 3, 1},
			Counts{Enabled: 100, Running: 50, Counts: []Count{{Value: 7, ID: 3, Lost: 1}}}},
		"group": {times | perf.FormatGroup | perf.FormatID, []uint64{2, 100, 50, 7, 3, 8, 4},
			Counts{Enabled: 100, Running: 50, Counts: []Count{{Value: 7, ID: 3}, {Value: 8, ID: 4}}}},
		"empty group": {perf.FormatGroup, []uint64{0}, Counts{}},
	} {
		got, err := decodeCounts(words(c.words...), c.format)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, c.want)
		}
		if _, err := decodeCounts(words(c.words[:len(c.words)-1]...), c.format); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s, one word short: %v", name, err)
		}
	}
	if _, err := decodeCounts(words(1<<60, 1), perf.FormatGroup); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("huge group: %v", err)
	}
}

func TestScaled(t *testing.T) {
	for _, c := range []struct {
		enabled, running, value, want uint64
		ok                            bool
	}{
		{0, 0, 5, 5, true}, // no times were asked for
		{100, 100, 5, 5, true},
		{100, 50, 5, 10, true},
		{100, 0, 0, 0, false},
		{1 << 62, 1 << 61, 1 << 62, 1 << 63, true},
		{1 << 62, 1, 1 << 62, ^uint64(0), true},
	} {
		counts := Counts{Enabled: c.enabled, Running: c.running}
		if got, ok := counts.Scaled(c.value); got != c.want || ok != c.ok {
			t.Errorf("%d enabled, %d running: %d becomes %d, %v, want %d, %v", c.enabled, c.running, c.value, got, ok, c.want, c.ok)
		}
	}
}
