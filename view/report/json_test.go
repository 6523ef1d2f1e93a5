// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/testutil"
)

func TestJSONGolden(t *testing.T) {
	p := parseProfile(t, shopAndFaults)
	p.Lost = []profile.LostCount{{Event: "cpu-clock", CPU: 0, Samples: 3}, {Container: "web", CPU: -1, Samples: 1}}
	for _, tt := range []struct {
		name string
		o    Options
	}{
		{"children-caller", Options{Sort: keys(t, "container,sym,dso"), Children: true, CallGraph: CallGraphCaller, MaxEntries: 3}},
		{"labels", Options{Sort: keys(t, "pid,tid,cpu,pod,namespace,image,cgroup,comm"), Filter: Filter{Match: container.Matcher{Names: []string{"web"}}}}},
		{"event-key", Options{Sort: keys(t, "event")}},
	} {
		got := write(t, FormatJSON, p, &tt.o)
		if !json.Valid([]byte(got)) {
			t.Errorf("%s: not JSON", tt.name)
		}
		testutil.Golden(t, filepath.Join("testdata", tt.name+".json"), []byte(got))
	}
}

// Any name comes out of a JSON parser as it went in, but for bytes that are
// not UTF-8.
func TestJSONHostile(t *testing.T) {
	got := write(t, FormatJSON, hostileProfile(), &Options{Sort: keys(t, "container,sym"), CallGraph: CallGraphCallee})
	var doc struct {
		Events []struct {
			Rows []struct {
				Keys struct{ Container, Sym string }
			}
		}
	}
	if err := json.Unmarshal([]byte(got), &doc); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range doc.Events[0].Rows {
		if r.Keys.Container != r.Keys.Sym {
			t.Errorf("container %q, sym %q", r.Keys.Container, r.Keys.Sym)
		}
		names = append(names, r.Keys.Sym)
	}
	for _, want := range hostileNames() {
		if want == "\xff\xfe\xc0" {
			want = "\ufffd\ufffd\ufffd"
		}
		if !slices.Contains(names, want) {
			t.Errorf("%q is missing in %q", want, names)
		}
	}
}

func TestJSONEmpty(t *testing.T) {
	var doc struct {
		Version int
		Events  []any
		Lost    []any
	}
	if err := json.Unmarshal([]byte(write(t, FormatJSON, parseProfile(t, ""), nil)), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Version != jsonVersion || doc.Events == nil || len(doc.Events) != 0 || doc.Lost == nil {
		t.Errorf("got %+v", doc)
	}
}
