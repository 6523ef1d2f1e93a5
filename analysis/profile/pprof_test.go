// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pprof "github.com/google/pprof/profile"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// detailed has what pprof can express: addresses, inlined calls, lines, frames
// without names, labels.
func detailed() *Profile {
	b := NewBuilder()
	*b.Meta() = Meta{
		Hostname: "node1", CmdLine: []string{"gantry", "record", "-a"}, Main: "/bin/app",
		Start: time.Unix(1000, 5), Duration: 2 * time.Second, Fields: FieldContainer | FieldCPU | FieldPID,
	}
	clock := b.Event(EventInfo{Name: "cpu-clock", Unit: "nanoseconds", Freq: 1000})
	lib := Frame{DSO: "lib.so", Path: "/lib/lib.so", BuildID: "beef", MapStart: 0x7000, MapLimit: 0x8000, MapOffset: 0x100}
	nameless, outside := lib, lib
	nameless.Addr, outside.Addr, outside.Name = 0x7010, 0x9000, "outside"
	app := Frame{DSO: "app", Path: "/bin/app", BuildID: "cafe", File: "/src/app.c"}
	main, inlined, caller := app, app, app
	main.Name, main.Addr, main.Line = "main", 0x1234, 10
	inlined.Name, inlined.Addr, inlined.Line, inlined.Inlined = "small", 0x1300, 21, true
	caller.Name, caller.Addr, caller.Line = "big", 0x1300, 30
	kernel := Frame{Name: "vfs_read", DSO: "[kernel.kallsyms]", Kernel: true, Addr: 0xffffffff81000000}
	stack := func(frames ...Frame) StackID {
		var ids []FrameID
		for _, f := range frames {
			ids = append(ids, b.Frame(f))
		}
		return b.Stack(ids)
	}
	web := b.Labels(Labels{Container: "web", ContainerID: "0123", Pod: "p", Namespace: "ns", PID: 7, Comm: "a\xff"})
	b.Add(web, stack(nameless, inlined, caller, main), clock, 2, 2e6)
	b.Add(web, stack(kernel, outside, caller, main), clock, 1, 1e6)
	b.Add(web, stack(inlined), clock, 1, 1e6) // cut off above the inlined call
	b.Add(web, 0, clock, 1, 1e6)
	b.Lost(LostCount{CPU: 0, Samples: 9})
	return b.Profile()
}

func writePprof(t *testing.T, p *Profile, o *PprofOptions) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := WritePprof(&out, p, o); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestPprof(t *testing.T) {
	raw := writePprof(t, detailed(), nil)
	p, err := pprof.ParseData(raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	text.WriteString(p.String())
	text.WriteString("default " + p.DefaultSampleType + "\n")
	testutil.Golden(t, filepath.Join("testdata", "detailed.pprof.txt"), []byte(text.String()))

	if again := writePprof(t, detailed(), nil); !bytes.Equal(raw, again) {
		t.Error("the same profile gave other bytes")
	}
	if main := p.Mapping[0]; main.File != "/bin/app" || main.BuildID != "cafe" {
		t.Errorf("first mapping: got %+v", main)
	}
	for _, l := range p.Location {
		if m := l.Mapping; m != nil && l.Address != 0 && (l.Address < m.Start || l.Address >= m.Limit) {
			t.Errorf("location %#x is outside of its mapping %+v", l.Address, m)
		}
	}
}

// TestPprofMain: the program, not what was sampled first; and no escape in
// what pprof prints as it is.
func TestPprofMain(t *testing.T) {
	b := NewBuilder()
	b.Meta().CmdLine = []string{"gantry", "record", "a\n\x1b[31m"}
	ev := b.Event(EventInfo{Name: "x"})
	in := func(comm, path string, samples uint64) {
		f := b.Frame(Frame{DSO: path, Path: path, Name: "f", MapStart: 0x1000, MapLimit: 0x2000, Addr: 0x1000})
		b.Add(b.Labels(Labels{Comm: comm}), b.Stack([]FrameID{f}), ev, samples, samples)
	}
	in("sh", "/lib/ld.so", 1)
	in("a-long-program-", "/lib/libc.so", 9)
	in("a-long-program-", "/app/a-long-program-name", 1)
	in("sh", "/bin/sh", 3)
	p, err := pprof.ParseData(writePprof(t, b.Profile(), nil))
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Mapping[0].File; got != "/app/a-long-program-name" {
		t.Errorf("the main program is %s", got)
	}
	if want := `command: gantry record a\x0a\x1b[31m`; p.Comments[0] != want {
		t.Errorf("comment %q, want %q", p.Comments[0], want)
	}
}

// TestPprofIdentities: a label for each definition, none outside of containers.
func TestPprofIdentities(t *testing.T) {
	b := NewBuilder()
	ev := b.Event(EventInfo{Name: "x"})
	b.Add(b.Labels(Labels{Identities: MakeIdentities(Identity{Definition: "vm", ID: "uts:1", Name: "web"}, Identity{Definition: "job", ID: "pid:2"},
		Identity{Definition: "other"})}), 0, ev, 1, 1)
	p, err := pprof.ParseData(writePprof(t, b.Profile(), nil))
	if err != nil {
		t.Fatal(err)
	}
	l := p.Sample[0].Label
	if len(l) != 2 || l["vm"][0] != "web" || l["job"][0] != "pid:2" {
		t.Errorf("%v", l)
	}
}

func TestPprofSampleTypes(t *testing.T) {
	for _, tt := range []struct {
		events []EventInfo
		want   string
		period int64
	}{
		{[]EventInfo{{Name: "task-clock", Unit: "nanoseconds", Period: 7}}, "samples/count cpu/nanoseconds", 7},
		{[]EventInfo{{Name: "cycles", Freq: 99}}, "samples/count cycles/count", 0},
		{[]EventInfo{{Name: "cpu-clock", Unit: "nanoseconds", Freq: 100}, {Name: "page-faults", Period: 1}},
			"cpu-clock_samples/count cpu-clock/nanoseconds page-faults_samples/count page-faults/count", 1e7},
	} {
		b := NewBuilder()
		for _, e := range tt.events {
			b.Add(b.Labels(Labels{}), 0, b.Event(e), 1, 5)
		}
		p, err := pprof.ParseData(writePprof(t, b.Profile(), nil))
		if err != nil {
			t.Fatal(err)
		}
		var types []string
		for _, v := range p.SampleType {
			types = append(types, v.Type+"/"+v.Unit)
		}
		if got := strings.Join(types, " "); got != tt.want || p.Period != tt.period {
			t.Errorf("got %s period %d, want %s period %d", got, p.Period, tt.want, tt.period)
		}
		last := p.Sample[len(p.Sample)-1].Value
		if got := last[len(last)-2:]; !cmp.Equal(got, []int64{1, 5}) {
			t.Errorf("last values: got %v", got)
		}
	}
}

func TestPprofKeep(t *testing.T) {
	p, err := pprof.ParseData(writePprof(t, small("web", "db"), &PprofOptions{Keep: func(s Sample) bool { return s.Labels == 1 }}))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Sample) != 2 || p.Sample[0].Label["container"][0] != "db" {
		t.Errorf("got %v", p.Sample)
	}
	for _, f := range p.Function {
		if f.Name == "web_hot" {
			t.Error("a function that no sample uses was written")
		}
	}
}

func TestPprofEmpty(t *testing.T) {
	b := NewBuilder()
	b.Event(EventInfo{Name: "cpu-clock"})
	if _, err := pprof.ParseData(writePprof(t, b.Profile(), nil)); err != nil {
		t.Error(err)
	}
}

// go tool pprof is what users will open the file with.
func TestPprofTool(t *testing.T) {
	testutil.Require(t, testutil.Tool("go"))
	path := filepath.Join(t.TempDir(), "p.pb.gz")
	if err := os.WriteFile(path, writePprof(t, detailed(), nil), 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "tool", "pprof", "-top", "-symbolize=none", path)
	cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"Type: cpu", "Total samples = 5ms", "vfs_read", "big"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

func TestWriteErrors(t *testing.T) {
	full := errors.New("disk full")
	if err := WritePprof(brokenWriter{full}, detailed(), nil); !errors.Is(err, full) {
		t.Errorf("pprof: got %v", err)
	}
	if err := WriteFolded(brokenWriter{full}, detailed(), nil); !errors.Is(err, full) {
		t.Errorf("folded: got %v", err)
	}
}
