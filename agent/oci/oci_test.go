// SPDX-License-Identifier: Apache-2.0

//go:build linux

package oci

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestBundle(t *testing.T) {
	for _, tt := range []struct {
		args string
		dir  string
		ok   bool
	}{
		{"create --bundle /b c", "/b", true},
		{"--root /r --log-format json create -b /b --pid-file /p c", "/b", true},
		{"--systemd-cgroup --debug run --bundle=/b c", "/b", true},
		{"--root create exec c sh", "", false},
		{"--root=/r run c", ".", true},
		{"exec --process p create", "", false},
		{"state c", "", false},
		{"", "", false},
	} {
		dir, ok := bundle(strings.Fields(tt.args))
		if dir != tt.dir || ok != tt.ok {
			t.Errorf("%q: %q, %v, want %q, %v", tt.args, dir, ok, tt.dir, tt.ok)
		}
	}
}

// notifies reports what a profile does with perf_event_open.
func notifies(t *testing.T, p *specs.LinuxSeccomp) {
	t.Helper()
	if p.ListenerPath != "/s" {
		t.Errorf("listenerPath is %q", p.ListenerPath)
	}
	for _, c := range p.Syscalls {
		if slices.Contains(c.Names, notified) && c.Action != specs.ActNotify {
			t.Errorf("perf_event_open: %s as well", c.Action)
		}
	}
	last := p.Syscalls[len(p.Syscalls)-1]
	if !slices.Equal(last.Names, []string{notified}) || last.Action != specs.ActNotify {
		t.Errorf("the last rule is %+v", last)
	}
}

func TestProfile(t *testing.T) {
	for name, base := range map[string]string{
		"default": "",
		"docker form": `{"defaultAction":"SCMP_ACT_ERRNO",
			"syscalls":[{"names":["read","perf_event_open"],"action":"SCMP_ACT_ALLOW"}]}`,
		"none": `{}`,
	} {
		var text []byte
		if base != "" {
			text = []byte(base)
		}
		out, err := Profile(text, "/s")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var p specs.LinuxSeccomp
		if err := json.Unmarshal(out, &p); err != nil {
			t.Fatal(err)
		}
		notifies(t, &p)
	}
	if _, err := Profile([]byte("not JSON"), "/s"); err == nil {
		t.Error("what is no profile is taken")
	}
}

func TestWrap(t *testing.T) {
	tracing := t.TempDir()
	if err := os.Mkdir(filepath.Join(tracing, "events"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, text string
		changed    bool
	}{
		{"no filter", `{"process":{"capabilities":{"bounding":["CAP_CHOWN"]},"env":["A=1"]},"linux":{}}`, true},
		{"a filter", `{"process":{},"linux":{"seccomp":{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[
			{"names":["perf_event_open"],"action":"SCMP_ACT_ERRNO"}]}}}`, true},
		{"privileged", `{"process":{"capabilities":{"bounding":["CAP_SYS_ADMIN"]}},"linux":{}}`, false},
		{"an agent of its own", `{"process":{},"linux":{"seccomp":{"listenerPath":"/other"}}}`, false},
		{"no Linux", `{"process":{}}`, false},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "config.json")
		unknown := strings.Replace(tt.text, "{", `{"later": {"field": 12345678901234567890},`, 1)
		if err := os.WriteFile(file, []byte(unknown), 0o640); err != nil {
			t.Fatal(err)
		}
		if err := Wrap([]string{"create", "--bundle", dir, "c"}, &Options{Socket: "/s", Tracing: tracing}); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if changed := string(got) != unknown; changed != tt.changed {
			t.Errorf("%s: changed: %v\n%s", tt.name, changed, got)
		}
		if !tt.changed {
			continue
		}
		if !strings.Contains(string(got), "12345678901234567890") {
			t.Errorf("%s: a field that is not known is lost: %s", tt.name, got)
		}
		var spec specs.Spec
		if err := json.Unmarshal(got, &spec); err != nil {
			t.Fatal(err)
		}
		notifies(t, spec.Linux.Seccomp)
		if len(spec.Mounts) != 1 || spec.Mounts[0].Source != tracing ||
			!slices.Contains(spec.Process.Env, "TRACEFS_PATH=/sys/kernel/tracing") {
			t.Errorf("%s: tracepoints: %+v, %q", tt.name, spec.Mounts, spec.Process.Env)
		}
		if fi, err := os.Stat(file); err != nil || fi.Mode().Perm() != 0o640 {
			t.Errorf("%s: %v, %v", tt.name, fi.Mode(), err)
		}
	}
	if err := Wrap([]string{"create", "--bundle", "/no/such", "c"}, &Options{}); err == nil {
		t.Error("a bundle that is not there is no error")
	}
}
