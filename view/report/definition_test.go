// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/container"
)

func definitions(t *testing.T, texts ...string) container.Definitions {
	t.Helper()
	defs := container.BuiltIn()
	for _, text := range texts {
		d, err := container.ParseDefinition(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := defs.Add(d); err != nil {
			t.Fatal(err)
		}
	}
	return defs
}

// inVM is a profile of a task in a vm, one of the host, and one of which
// nothing is known.
func inVM() *profile.Profile {
	b := profile.NewBuilder()
	ev := b.Event(profile.EventInfo{Name: "cpu-clock"})
	for i, id := range []profile.Identity{{ID: "uts:1,pid:2", Name: "db\x1b"}, {}, {Name: "-"}} {
		id.Definition = "vm"
		l := profile.Labels{Identities: profile.MakeIdentities(profile.Identity{Definition: "pod", ID: "net:1,ipc:2"}, id), Comm: "c"}
		b.Add(b.Labels(l), 0, ev, uint64(i)+1, 1)
	}
	return b.Profile()
}

func TestDefinitionKeys(t *testing.T) {
	defs := definitions(t, "vm=uts,pid")
	sort, err := ParseKeys("vm,pod,kernel-default", defs, false)
	if err != nil || !slices.Equal(sort, []Key{"vm", KeyPod, "kernel-default"}) {
		t.Fatalf("%v, %v", sort, err)
	}
	if _, err := ParseKeys("vm", container.BuiltIn(), false); err == nil || !strings.HasSuffix(err.Error(), "event, kernel-default") {
		t.Error(err)
	}
	if got, err := ParseKeys("vm", nil, true); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := ParseKeys("v m", nil, true); err == nil {
		t.Error("a name that no definition can have is taken")
	}
	o := &Options{Sort: sort, Roots: []Key{"job", KeyPod}, Filter: Filter{Identities: []container.Selector{{Definition: "net"}, {Definition: "vm"}}}}
	for f, want := range map[Format][]string{
		FormatText: {"kernel-default", "net", "vm"}, FormatFolded: {"job", "net", "vm"}, FormatPprof: {"job", "kernel-default", "net", "vm"},
	} {
		if got := o.Definitions(f); !slices.Equal(got, want) {
			t.Errorf("%v: %v", f, got)
		}
	}
	if got := o.Fields(FormatText); got != profile.FieldPod {
		t.Errorf("fields %b", got)
	}
}

func TestDefinitionRows(t *testing.T) {
	o := &Options{Sort: []Key{"vm"}}
	text := write(t, FormatText, inVM(), o)
	for _, want := range []string{"  vm\n", "  db\\x1b\n", "  [host]\n", "  -\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing:\n%s", want, text)
		}
	}
	var doc struct {
		Events []struct {
			Rows []struct {
				Keys    map[string]string
				Samples int
			}
		}
	}
	if err := json.Unmarshal([]byte(write(t, FormatJSON, inVM(), &Options{Sort: []Key{"vm", KeyComm}})), &doc); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, r := range doc.Events[0].Rows {
		got[r.Keys["vm"]+r.Keys["comm"]] = r.Samples
	}
	if got["db\x1bc"] != 1 || got["[host]c"] != 2 || got["-c"] != 3 || len(got) != 3 {
		t.Errorf("%v", got)
	}
	if got := write(t, FormatFolded, inVM(), &Options{Roots: []Key{"vm"}}); got != "- 3\n[host] 2\ndb\\x1b 1\n" {
		t.Errorf("%q", got)
	}
}

func TestFilterIdentities(t *testing.T) {
	defs := definitions(t, "vm=uts,pid")
	for text, want := range map[string]uint64{"vm:any": 1, "vm:pid:2,uts:1": 1, "vm:pid:3": 0, "pod:any": 6, "pod:ipc:2": 6, "pod:uts:1": 0, "container:any": 0} {
		sel, ok := defs.ParseSelector(text)
		if !ok {
			t.Fatal(text)
		}
		f := Filter{Identities: []container.Selector{sel}}
		got := Select(inVM(), FormatText, &Options{Filter: f})
		if got.Samples != want || f.String() != "container "+text {
			t.Errorf("%s: %d samples, %q", text, got.Samples, f.String())
		}
	}
	f := Filter{Match: container.Matcher{Names: []string{"nope"}}, Identities: []container.Selector{{Definition: "vm"}}}
	if got := Select(inVM(), FormatText, &Options{Filter: f}); got.Samples != 1 {
		t.Errorf("%+v", got)
	}
}
