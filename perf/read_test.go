// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"errors"
	"reflect"
	"testing"
)

func TestDecodeRead(t *testing.T) {
	const times = FormatTotalTimeEnabled | FormatTotalTimeRunning
	words := func(v ...uint64) (b []byte) {
		for _, w := range v {
			b = LittleEndian.AppendUint64(b, w)
		}
		return b
	}
	for name, c := range map[string]struct {
		format ReadFormat
		words  []uint64
		want   ReadValues
	}{
		"bare": {0, []uint64{7}, ReadValues{Counts: []Count{{Value: 7}}}},
		"all of one": {times | FormatID | FormatLost, []uint64{7, 100, 50, 3, 1},
			ReadValues{TimeEnabled: 100, TimeRunning: 50, Counts: []Count{{Value: 7, ID: 3, Lost: 1}}}},
		"group": {times | FormatGroup | FormatID, []uint64{2, 100, 50, 7, 3, 8, 4},
			ReadValues{TimeEnabled: 100, TimeRunning: 50, Counts: []Count{{Value: 7, ID: 3}, {Value: 8, ID: 4}}}},
		"empty group": {FormatGroup, []uint64{0}, ReadValues{}},
	} {
		got, err := DecodeRead(words(c.words...), c.format, LittleEndian)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, c.want)
		}
		if _, err := DecodeRead(words(c.words[:len(c.words)-1]...), c.format, LittleEndian); !errors.Is(err, ErrShort) && !errors.Is(err, ErrLength) {
			t.Errorf("%s, one word short: %v", name, err)
		}
	}
	if _, err := DecodeRead(words(1<<60, 1), FormatGroup, LittleEndian); !errors.Is(err, ErrLength) {
		t.Errorf("huge group: %v", err)
	}
}
