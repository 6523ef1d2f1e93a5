// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/linux/probe"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// sick is a machine on which one check of each kind goes wrong.
func sick() *diagnosis {
	d := &diagnosis{Version: 1, Kernel: "6.1.0", Arch: "amd64", CPUs: 4,
		Privilege: probe.Privilege{UID: 1000, Paranoid: 2, Seccomp: "off", Lockdown: "integrity",
			LSMs: []string{"apparmor"}}}
	for _, r := range []probe.Result{
		{Check: probe.HardwarePMU, Answer: probe.No, Observed: "no cycles", Layer: probe.Hardware, Hint: "none needed",
			Effort: probe.EffortNone},
		{Check: probe.CPUWide, Answer: probe.No, Observed: "paranoid is 2", Layer: probe.Paranoid, Hint: "x",
			Effort: probe.EffortProcess,
			Needs:  []sys.Capability{sys.CapPerfmon}, Instead: "sysctl kernel.perf_event_paranoid=0"},
		{Check: probe.KernelSymbols, Answer: probe.No, Observed: "addresses are hidden", Layer: probe.Capability,
			Hint: "y", Effort: probe.EffortProcess,
			Needs: []sys.Capability{sys.CapSyslog}},
		{Check: probe.Rings, Answer: probe.Unknown, Observed: "mmap: input/output error", Err: errors.New("x")},
		{Check: probe.OwnUser, Answer: probe.Yes,
			Observed: "samples of own programs, and a text that is too long for its column"},
	} {
		d.Checks = append(d.Checks, judge(r, needed(r.Check)))
	}
	return d
}

const sickText = `Linux 6.1.0 amd64, 4 CPUs online
uid 1000, no capability that counts
perf_event_paranoid 2, seccomp off, lockdown integrity, LSM apparmor

CHECK          STATE    SAYS NO    FOUND
hardware-pmu   warn     hardware   no cycles
cpu-wide       fail     paranoid   paranoid is 2
kernel-symbols warn     capability addresses are hidden
rings          unknown             mmap: input/output error
own-user       ok                  samples of own programs, and a text that is
                                   too long for its column

Cures, the smallest change first:
  cpu-wide: sudo, or setcap cap_perfmon+ep on gantry
  kernel-symbols: sudo, or setcap cap_perfmon,cap_syslog+ep on gantry
  cpu-wide: or sysctl kernel.perf_event_paranoid=0
  hardware-pmu: none needed

2 of 5 checks fail.
`

func TestDoctorText(t *testing.T) {
	var b strings.Builder
	if err := sick().writeText(&b, false); err != nil {
		t.Fatal(err)
	}
	if b.String() != sickText {
		t.Errorf("got\n%s\nwant\n%s", b.String(), sickText)
	}
}

// In a container there is one hint, and it is complete.
func TestDoctorContainer(t *testing.T) {
	d := sick()
	d.Privilege.InPIDNS, d.Privilege.InContainer = true, true
	list := d.hints()
	var runs int
	for _, c := range list {
		if c.text == dockerRun {
			runs++
			if strings.Join(c.checks, " ") != "cpu-wide kernel-symbols" {
				t.Errorf("docker run for %v", c.checks)
			}
		} else if strings.Contains(c.text, "--cap-add") || strings.Contains(c.text, "setcap") {
			t.Errorf("another list: %s", c.text)
		}
	}
	if runs != 1 || list[0].text != dockerRun {
		t.Errorf("%d docker run in %+v", runs, list)
	}
}

// What needs no hint fails nobody who asks for it.
func TestDoctorSpare(t *testing.T) {
	for want, r := range map[bool]probe.Result{
		true:  {Answer: probe.No, Effort: probe.EffortNone},
		false: {Answer: probe.No, Effort: probe.EffortKernel},
	} {
		if spare(r) != want {
			t.Errorf("%+v: %v", r, !want)
		}
	}
	if spare(probe.Result{Answer: probe.Unknown}) {
		t.Error("what could not be told is spared")
	}
}

func TestDoctorColor(t *testing.T) {
	var b strings.Builder
	if err := sick().writeText(&b, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\x1b[31mfail     \x1b[0m", "\x1b[32mok       \x1b[0m", "\x1b[33mwarn     \x1b[0m",
		"\x1b[33munknown  \x1b[0m"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q", want)
		}
	}
	plain := strings.NewReplacer("\x1b[31m", "", "\x1b[32m", "", "\x1b[33m", "", "\x1b[0m", "").Replace(b.String())
	if plain != sickText {
		t.Errorf("colours change the text:\n%s", plain)
	}
}

func TestDoctorJSON(t *testing.T) {
	var b strings.Builder
	if err := sick().writeJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		OK     *bool
		Checks []struct{ Check, Answer, Found, Layer, State string }
	}
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got.OK == nil || len(got.Checks) != 5 || got.Checks[1].Layer != "paranoid" ||
		got.Checks[3].Answer != "unknown" || got.Checks[4].State != "ok" {
		t.Errorf("got %+v\nof %s", got, b.String())
	}
}

// Asked by name, an optional check decides too; not asked, it does not.
func TestDoctorJudge(t *testing.T) {
	for name, c := range map[string]struct {
		answer probe.Answer
		must   bool
		want   state
		bad    bool
	}{
		"needed, yes":          {probe.Yes, true, stateOK, false},
		"needed, no":           {probe.No, true, stateFail, true},
		"needed, cannot tell":  {probe.Unknown, true, stateUnknown, true},
		"not needed, no":       {probe.No, false, stateWarn, false},
		"not needed, not told": {probe.Unknown, false, stateUnknown, false},
	} {
		f := judge(probe.Result{Answer: c.answer}, c.must)
		if f.State != c.want || f.bad() != c.bad {
			t.Errorf("%s: %s, bad %v; want %s, %v", name, f.State, f.bad(), c.want, c.bad)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text          string
		indent, width int
		want          string
	}{
		{"", 2, 10, ""},
		{"aaa bbb ccc", 0, 80, "aaa bbb ccc"},
		{"aaa bbb ccc", 3, 10, "aaa bbb\n   ccc"},
		{"  aaa bbb ccc", 4, 10, "  aaa bbb\n    ccc"},
		{"aaaaaaaaaaaaaa b", 2, 8, "aaaaaaaaaaaaaa\n  b"},
	} {
		if got := wrap(c.text, c.indent, c.width); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

// The docs say of every check what it tries.
func TestDoctorDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	needs, rest, ok := strings.Cut(string(text), "Not needed:")
	if !ok {
		t.Fatal("docs/doctor.md does not tell needed checks from others")
	}
	for _, c := range probe.Checks() {
		row := "\n| `" + string(c) + "` |"
		if strings.Contains(needs, row) != needed(c) || strings.Contains(rest, row) == needed(c) {
			t.Errorf("docs/doctor.md has %s in the wrong table, or nowhere; needed: %v", c, needed(c))
		}
	}
}
