// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/container"
)

func TestParseKeys(t *testing.T) {
	got, err := ParseKeys("container, sym,pid", nil, false)
	if want := []Key{KeyContainer, KeySym, KeyPID}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if got := keys(t, "symbol"); got[0] != KeySym {
		t.Errorf("symbol: got %v", got)
	}
	all, err := ParseKeys(strings.Join(KeyNames(nil), ","), nil, false)
	if err != nil || len(all) != len(allKeys()) {
		t.Errorf("all keys: got %v, %v", all, err)
	}
	for in, want := range map[string]string{
		"":          `unknown sort key ""`,
		"comm,foo":  "use one or more of container, pod, namespace, image, cgroup, comm, pid, tid, cpu, dso, sym, srcline, srcfile, bpf, bpfcontainer, event",
		"comm,comm": "given twice",
	} {
		if _, err := ParseKeys(in, nil, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", in, err, want)
		}
	}
}

func TestParseFormats(t *testing.T) {
	if f, err := ParseFormat("pprof"); err != nil || f != FormatPprof {
		t.Errorf("pprof: got %v, %v", f, err)
	}
	if _, err := ParseFormat("xml"); err == nil || !strings.Contains(err.Error(), "text, json, folded, svg, pprof") {
		t.Errorf("xml: got %v", err)
	}
}

func TestNeeds(t *testing.T) {
	for _, tt := range []struct {
		name            string
		o               *Options
		f               Format
		fields          profile.Fields
		stacks, symbols bool
	}{
		{"default", nil, FormatText, profile.FieldContainer | profile.FieldComm, false, true},
		{"container", &Options{Sort: []Key{KeyContainer}}, FormatText, profile.FieldContainer, false, false},
		{"filter", &Options{Sort: []Key{KeyPID}, Filter: Filter{CPU: []int32{1}, Symbol: []string{"x"}}}, FormatJSON,
			profile.FieldPID | profile.FieldCPU, false, true},
		{"object", &Options{Sort: []Key{KeyContainer, KeyDSO}}, FormatText, profile.FieldContainer, false, true},
		{"filter of objects", &Options{Sort: []Key{KeyComm}, Filter: Filter{DSO: []string{"x"}}}, FormatText,
			profile.FieldComm, false, true},
		{"children", &Options{Sort: []Key{KeyDSO}, Children: true}, FormatText, 0, true, true},
		{"svg", &Options{Sort: []Key{KeyTID}, Roots: []Key{KeyPod}}, FormatSVG, profile.FieldPod, true, true},
	} {
		if got := tt.o.Fields(tt.f); got != tt.fields {
			t.Errorf("%s: fields %b, want %b", tt.name, got, tt.fields)
		}
		if got := tt.o.NeedsStacks(tt.f); got != tt.stacks {
			t.Errorf("%s: stacks %v", tt.name, got)
		}
		if got := tt.o.NeedsSymbols(tt.f); got != tt.symbols {
			t.Errorf("%s: symbols %v", tt.name, got)
		}
	}
}

func TestFilter(t *testing.T) {
	l := profile.Labels{Container: "web", ContainerID: "0123456789ab", Pod: "p", Comm: "nginx", PID: 7, CPU: 0,
		Cgroup: "/pods/p", Image: "docker.io/library/nginx:1.27"}
	for _, tt := range []struct {
		f    Filter
		want bool
	}{
		{Filter{}, true},
		{Filter{Match: container.Matcher{Names: []string{"db", "web"}}}, true},
		{Filter{Match: container.Matcher{Names: []string{"012345"}}}, true},
		{Filter{Match: container.Matcher{Names: []string{"012"}}}, true},
		{Filter{Match: container.Matcher{Names: []string{"01"}}}, false}, // too short for an id
		{Filter{Match: container.Matcher{Names: []string{"01*"}}}, true},
		{Filter{Match: container.Matcher{Names: []string{"p"}}}, true}, // its pod
		{Filter{Match: container.Matcher{Names: []string{"/pods/p"}}}, true},
		{Filter{Match: container.Matcher{Names: []string{"/pods/"}}}, true}, // and what is below
		{Filter{Match: container.Matcher{Names: []string{"/pod"}}}, false},
		{Filter{Match: container.Matcher{Names: []string{"/*/p"}}}, true},
		{Filter{Match: container.Matcher{Names: []string{"nginx"}}}, true}, // its image
		{Filter{Match: container.Matcher{Names: []string{"library/nginx:1.27"}}}, true},
		{Filter{Match: container.Matcher{Names: []string{"ginx"}}}, false},
		{Filter{Match: container.Matcher{Names: []string{"[host]"}}}, false},
		{Filter{PID: []int32{7}, CPU: []int32{0}}, true},
		{Filter{PID: []int32{7}, CPU: []int32{1}}, false},
		{Filter{Match: container.Matcher{Pods: []string{"p"}}, Comm: []string{"ng*"}}, true},
		{Filter{Match: container.Matcher{Namespaces: []string{"x"}}}, false},
		{Filter{TID: []int32{7}}, false},
		{Filter{Match: container.Matcher{Images: []string{"x"}}}, false},
		{Filter{Cgroup: []string{"/x"}}, false},
	} {
		if got := tt.f.labels(&l); got != tt.want {
			t.Errorf("%s: got %v", tt.f.String(), got)
		}
	}
	host := Filter{Match: container.Matcher{Names: []string{noContainer}}}
	if !host.labels(&profile.Labels{Comm: "sh"}) {
		t.Error("the host is not selected by its name")
	}
	for _, pattern := range []string{"*", "*host*"} {
		f := Filter{Match: container.Matcher{Names: []string{pattern}}}
		if f.labels(&profile.Labels{Comm: "sh", Cgroup: "/user"}) || f.labels(&l) != (pattern == "*") {
			t.Errorf("%s selects the host, or not the container", pattern)
		}
	}
}
