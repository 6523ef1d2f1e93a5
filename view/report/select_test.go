// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/gantry-tools/gantry/container"
)

func TestSelect(t *testing.T) {
	p := parseProfile(t, shop)
	for _, tt := range []struct {
		name     string
		f        Format
		o        Options
		samples  uint64
		nameless uint64 // of libc.so.6
	}{
		{"all", FormatText, Options{}, 100, 4},
		{"container", FormatText, Options{Filter: Filter{Match: container.Matcher{Names: []string{"db"}}}}, 30, 0},
		{"comm", FormatSVG, Options{Filter: Filter{Comm: []string{"cron"}}}, 5, 4},
		{"nobody", FormatFolded, Options{Filter: Filter{Comm: []string{"nobody"}}}, 0, 0},
		{"event", FormatText, Options{Filter: Filter{Event: []string{"nope"}}}, 0, 0},
		{"leaf", FormatText, Options{Filter: Filter{Symbol: []string{"serve"}}}, 5, 0},
		{"children", FormatText, Options{Children: true, Filter: Filter{Symbol: []string{"serve"}}}, 55, 0},
		{"stacks", FormatPprof, Options{Filter: Filter{Symbol: []string{"serve"}}}, 55, 0},
	} {
		got := Select(p, tt.f, &tt.o)
		if got.Samples != tt.samples || got.Nameless["libc.so.6"] != tt.nameless {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}
