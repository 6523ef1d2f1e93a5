// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

const probedSource = `
#include <stdio.h>
__attribute__((noinline)) int hit(int n) { __asm__ volatile(""); return n + 1; }
__attribute__((noinline)) static int twin(int n) { __asm__ volatile(""); return n; }
int other(int);
int main(void) { int n = 0; getchar(); for (int i = 0; i < 9; i++) n = hit(n); return twin(n) + other(n) - 18; }
`

// A second file has a function of the same name.
const duplicateSource = `
__attribute__((noinline)) static int twin(int n) { __asm__ volatile(""); return n; }
int other(int n) { return twin(n); }
`

// probedProgram is a program with a function hit, which it calls nine times
// once it has read a byte, and two functions twin.
func probedProgram(t *testing.T) string {
	t.Helper()
	more := filepath.Join(t.TempDir(), "more.c")
	if err := os.WriteFile(more, []byte(duplicateSource), 0o666); err != nil {
		t.Fatal(err)
	}
	return testutil.CompileC(t, probedSource, more)
}

// place is what a spec of one probe became.
func place(t *testing.T, spec string) EventSpec {
	t.Helper()
	groups, err := Parse(spec, fixturePMUs())
	if err != nil {
		t.Fatal(err)
	}
	s := groups[0].Events[0]
	if s.Probe == nil || s.Attr.Type != 9 {
		t.Fatalf("%s: %+v", spec, s)
	}
	return s
}

func TestParseUprobe(t *testing.T) {
	testutil.Require(t, testutil.Tool("gcc"))
	prog := probedProgram(t)
	start := symbolOffset(t, prog, "hit")
	s := place(t, "uprobe:"+prog+":hit")
	if got := fmt.Sprintf("%#x", s.Probe.Offset); got != start || s.Probe.Name != prog || s.Attr.Config != 0 {
		t.Errorf("probe %+v, config %#x, want %s", s.Probe, s.Attr.Config, start)
	}
	if s.Name != "uprobe:"+prog+":hit" {
		t.Errorf("name %q", s.Name)
	}
	for spec, add := range map[string]uint64{
		"uprobe:" + prog + ":hit+1":       1,
		"uprobe:\"" + prog + "\":\"hit\"": 0,
		"uprobe:" + prog + ":hit+0x2":     2,
		"uprobe:" + prog + ":" + start:    0,
	} {
		if got := place(t, spec); got.Probe.Offset != s.Probe.Offset+add {
			t.Errorf("%s: offset %#x, want %d more than %s", spec, got.Probe.Offset, add, start)
		}
	}
	r := place(t, "uretprobe:"+prog+":hit")
	if r.Attr.Config != 1 || r.Probe.Offset != s.Probe.Offset {
		t.Errorf("return probe: %+v, config %#x", r.Probe, r.Attr.Config)
	}
	t.Chdir(filepath.Dir(prog))
	if got := place(t, "uprobe:./prog:hit"); *got.Probe != *s.Probe {
		t.Errorf("relative: %+v, want %+v", got.Probe, s.Probe)
	}
	groups, err := Parse("{uprobe:"+prog+":hit,cpu-clock}:S", fixturePMUs())
	if err != nil || len(groups) != 1 || len(groups[0].Events) != 2 || !groups[0].SampleRead {
		t.Errorf("group: %+v, %v", groups, err)
	}
}

func TestParseUprobeErrors(t *testing.T) {
	testutil.Require(t, testutil.Tool("gcc"))
	prog := probedProgram(t)
	dir := t.TempDir()
	stripped := filepath.Join(dir, "stripped")
	cmd := exec.Command("gcc", "-s", "-static", "-nostdlib", "-o", stripped, "-x", "c", "-")
	cmd.Stdin = strings.NewReader("void _start(void) { for (;;); }")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("no program"), 0o666); err != nil {
		t.Fatal(err)
	}
	at := len("uprobe:"+prog+":") + 1
	for spec, want := range map[string]struct {
		kind   error
		column int
		text   string
	}{
		"uprobe:" + prog + ":hti":         {ErrTermValue, at, "did you mean hit?"},
		"uprobe:" + prog + ":hit+0x10000": {ErrTermValue, at + 4, "hit has only"},
		"uprobe:" + prog + ":hit+x":       {ErrTermValue, at + 4, `"x" is no number`},
		"uprobe:" + prog + ":twin":        {ErrTermValue, at, "2 functions of"},
		"uprobe:" + prog + ":0x0":         {ErrTermValue, at, "not in the code"},
		"uprobe:" + prog + ":0xffffffff":  {ErrTermValue, at, "not in the code"},
		"uprobe:" + prog + ":0xzz":        {ErrTermValue, at, "is no number"},
		"uprobe:" + prog + ":":            {ErrSyntax, at, "function or offset is missing"},
		"uprobe:" + prog:                  {ErrSyntax, at - 1, "function or offset is missing"},
		"uprobe:" + prog + ":hit:u":       {ErrSyntax, at + 3, "a comma belongs"},
		"uprobe:" + stripped + ":main":    {ErrTermValue, len(stripped) + 9, "has no symbols"},
		"uprobe:" + text + ":main":        {ErrTermValue, 8, "not an ELF file"},
		"uprobe:/no/such/file:main":       {ErrTermValue, 8, "there is no file /no/such/file"},
		"cpu-clock,uprobe:/dev/zero:main": {ErrTermValue, 18, "not a regular file"},
		"uprobe:" + dir + ":main":         {ErrTermValue, 8, "not a regular file"},
		`uprobe:"bin/ls":main`:            {ErrSyntax, 9, "/path/to/it"},
		`uprobe:"/bin/ls:main`:            {ErrSyntax, 9, "closing quote"},
		"uprobe:ls:main":                  {ErrSyntax, 8, "write uprobe:/path/to/file:FUNCTION"},
		"uretprobe:main":                  {ErrSyntax, 11, "write uretprobe:/path/to/file:FUNCTION"},
	} {
		_, err := Parse(spec, fixturePMUs())
		var p *ParseError
		if !errors.As(err, &p) {
			t.Errorf("%q: got %v, want a ParseError", spec, err)
			continue
		}
		if !errors.Is(err, want.kind) || p.Offset+1 != want.column || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%q:\n got column %d, %v\nwant column %d, %v, %q", spec, p.Offset+1, err, want.column, want.kind, want.text)
		}
	}
	if _, err := Parse("uprobe:"+prog+":hit", hybridPMUs()); !errors.Is(err, ErrUnsupported) {
		t.Errorf("without the device: %v", err)
	}
}

// TestUprobeHits counts the calls of a function and its returns.
func TestUprobeHits(t *testing.T) {
	testutil.CheckLeaks(t)
	testutil.Require(t, testutil.Root, testutil.Tool("gcc"))
	prog := probedProgram(t)
	groups, err := Parse("uprobe:"+prog+":hit,uretprobe:"+prog+":hit", livePMUs(t))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(prog)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var events []*Event
	for _, g := range groups {
		s := g.Events[0]
		events = append(events, opened(t, s.Attr, Target{PID: cmd.Process.Pid, CPU: Any, Probe: s.Probe}, nil))
	}
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	for i, ev := range events {
		if got := mustCounts(t, ev).Counts[0].Value; got != 9 {
			t.Errorf("%s hit %d times, want 9", groups[i].Events[0].Name, got)
		}
	}
}
