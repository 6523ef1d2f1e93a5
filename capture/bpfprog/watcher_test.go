// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bpfprog

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/linux/bpf/testprogs"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// watch runs a Watcher until the test calls stop, which returns its ProgramTable.
func watch(t *testing.T, o WatchOptions) (stop func() *ProgramTable) {
	t.Helper()
	w, err := OpenWatcher(o)
	if err != nil {
		t.Fatal(err)
	}
	return run(t, w)
}

// run is watch for a Watcher that is open. It closes it when the test ends.
func run(t *testing.T, w *Watcher) (stop func() *ProgramTable) {
	t.Helper()
	t.Cleanup(func() { w.Close() })
	if err := w.Start(0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			cancel()
			<-done
		}
	})
	return func() *ProgramTable {
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		return w.Table()
	}
}

func loadSeven(t *testing.T) (*testprogs.Loaded, uint32) {
	t.Helper()
	p, err := testprogs.Seven()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	id, err := p.ID()
	if err != nil {
		t.Fatal(err)
	}
	return p, id
}

// checkSeven asserts that all is known of a program of testprogs.Seven.
func checkSeven(t *testing.T, d *Details) {
	t.Helper()
	checkSevenAs(t, "seven", d)
}

// checkSevenAs is checkSeven for one that was loaded under another name.
func checkSevenAs(t *testing.T, program string, d *Details) {
	t.Helper()
	if d == nil {
		t.Fatal("no details")
	}
	n := len(testprogs.SevenFunctions)
	if len(d.KSyms) != n || len(d.FuncLens) != n || len(d.Tags) != n || len(d.Funcs) != n {
		t.Fatalf("%d symbols, %d lengths, %d tags, %d functions", len(d.KSyms), len(d.FuncLens), len(d.Tags), len(d.Funcs))
	}
	sum := 0
	for i, name := range testprogs.SevenFunctions {
		if got := d.SymbolName(i); !strings.HasPrefix(got, "bpf_prog_") || !strings.HasSuffix(got, "_"+name) {
			t.Errorf("subprogram %d is %s, want one that ends with %s", i, got, name)
		}
		sum += int(d.FuncLens[i])
	}
	if len(d.JITed) != sum || d.LoadTime == 0 || len(d.MapIDs) != 1 || d.Name != program {
		t.Errorf("%d bytes of code, want %d; loaded %d, maps %v, name %q", len(d.JITed), sum, d.LoadTime, d.MapIDs, d.Name)
	}
	if len(d.Xlated) == 0 || len(d.Xlated)%8 != 0 || int(d.Funcs[n-1].Insn) >= len(d.Xlated)/8 {
		t.Errorf("%d bytes of translated instructions", len(d.Xlated))
	}
	if len(d.Lines) == 0 || len(d.JITedLines) != len(d.Lines) {
		t.Fatalf("%d lines, %d of code", len(d.Lines), len(d.JITedLines))
	}
	texts := ""
	for _, l := range d.Lines {
		if !strings.HasSuffix(d.types().String(l.File), "testprogs.bpf.c") {
			t.Errorf("file %q", d.types().String(l.File))
		}
		texts += d.types().String(l.Text)
	}
	if !strings.Contains(texts, "n += work_b(n);") {
		t.Errorf("no such line in %q", texts)
	}
}

// TestSymbolNames: the names are those that the kernel gives in kallsyms.
func TestSymbolNames(t *testing.T) {
	testutil.Require(t, testutil.Root)
	_, id := loadSeven(t)
	d, err := new(Reader).Read(id)
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	for i, addr := range d.KSyms {
		want := fmt.Sprintf("%016x t %s\t[bpf]", addr, d.SymbolName(i))
		if !strings.Contains(string(list), want) {
			t.Errorf("kallsyms have no %q", want)
		}
	}
}

func TestReadAll(t *testing.T) {
	testutil.Require(t, testutil.Root)
	_, id := loadSeven(t)
	w, err := OpenWatcher(WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.ReadAll(); err != nil {
		t.Fatal(err)
	}
	p, ok := w.Table().Program(id)
	if !ok || !p.Before || p.Route != perfdata.BPFRouteStatus || p.Loaded == 0 {
		t.Fatalf("%+v, %v", p.BPFProgramLife, ok)
	}
	checkSeven(t, p.Details)
	var names []string
	for _, rec := range p.Details.Symbols() {
		switch rec := rec.(type) {
		case *perf.Ksymbol:
			names = append(names, rec.Name[len("bpf_prog_0123456789abcdef_"):])
		case *perf.BPFEvent:
			if rec.ID != id || rec.Tag != p.Details.Tag {
				t.Errorf("%+v", rec)
			}
		}
	}
	if !slices.Equal(names, testprogs.SevenFunctions) {
		t.Errorf("symbols %q", names)
	}
}

func TestWatcher(t *testing.T) {
	testutil.Require(t, testutil.Root)
	testutil.CheckLeaks(t)
	stop := watch(t, WatchOptions{})
	p, id := loadSeven(t)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	programs := stop()
	got, ok := programs.Program(id)
	if !ok || got.Loaded == 0 || got.Before || got.Tag == "" {
		t.Fatalf("%+v, %v", got.BPFProgramLife, ok)
	}
	if l := got.Loader; l == nil || int(l.PID) != os.Getpid() || l.Comm == "" || l.Cgroup == 0 || l.Namespaces["pid"] == 0 {
		t.Errorf("loader %+v", l)
	}
	if got.Details == nil && got.Missed == "" {
		t.Error("no details, and no reason")
	}
}
