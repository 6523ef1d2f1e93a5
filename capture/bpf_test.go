// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/bpf/testprogs"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

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

// bpfOf is what a recording says of BPF programs.
type bpfOf struct {
	programs map[uint32]*perfdata.BPFProgram
	btf      map[uint32][]byte
	lives    map[uint32]*perfdata.BPFProgramLife
	symbols  map[uint64]*perf.Ksymbol // that came, by address
}

func readBPF(t *testing.T, path string) *bpfOf {
	t.Helper()
	b := &bpfOf{map[uint32]*perfdata.BPFProgram{}, map[uint32][]byte{}, map[uint32]*perfdata.BPFProgramLife{}, map[uint64]*perf.Ksymbol{}}
	for _, rec := range byTime(t, path) {
		if k, ok := rec.(*perf.Ksymbol); ok && k.Flags&perf.KsymbolUnregister == 0 {
			b.symbols[k.Addr] = k
		}
	}
	r, err := perfdata.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f := r.Features()
	programs, err := perfdata.DecodeBPFPrograms(f.BPFProgInfo, r.Order())
	if err != nil {
		t.Fatal(err)
	}
	for i := range programs {
		b.programs[programs[i].ID] = &programs[i]
	}
	btf, err := perfdata.DecodeBPFBTF(f.BPFBTF, r.Order())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range btf {
		b.btf[e.ID] = e.Data
	}
	lives, err := perfdata.DecodeGantryBPF(f.Gantry)
	if err != nil {
		t.Fatal(err)
	}
	for i := range lives {
		b.lives[lives[i].ID] = &lives[i]
	}
	return b
}

// checkSeven asserts that all subprograms of a program of testprogs.Seven are
// named, with lines.
func (b *bpfOf) checkSeven(t *testing.T, id uint32) {
	t.Helper()
	p := b.programs[id]
	if p == nil {
		t.Fatalf("no details of program %d: %+v", id, b.lives[id])
	}
	var names []string
	for _, addr := range p.KSyms {
		if k := b.symbols[addr]; k != nil {
			names = append(names, k.Name[len("bpf_prog_0123456789abcdef_"):])
		}
	}
	if !slices.Equal(names, testprogs.SevenFunctions) {
		t.Errorf("program %d has the symbols %q, want %q", id, names, testprogs.SevenFunctions)
	}
	types, err := perfdata.ParseBTF(b.btf[p.BTFID], perf.LittleEndian)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Lines) == 0 || len(p.Lines) != len(p.JITedLines) || !strings.HasSuffix(types.String(p.Lines[0].File), "testprogs.bpf.c") {
		t.Errorf("program %d has %d lines, of the code %d", id, len(p.Lines), len(p.JITedLines))
	}
}

func TestRecordsBPFPrograms(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.Tool("perf"))
	_, before := loadSeven(t)
	var during uint32
	rec := recordWhile(t, Options{Target: Target{All: true}}, func() {
		p, err := testprogs.Seven()
		if err != nil {
			t.Error(err)
			return
		}
		defer p.Close()
		if during, err = p.ID(); err != nil {
			t.Error(err)
		}
		if err := p.Run(1000); err != nil {
			t.Error(err)
		}
		tail, err := testprogs.TailCall()
		if err != nil {
			t.Error(err)
			return
		}
		if err := errors.Join(tail.Run(1000), tail.Close()); err != nil {
			t.Error(err)
		}
	})
	b := readBPF(t, rec.path)
	b.checkSeven(t, before)
	b.checkSeven(t, during)
	if l := b.lives[before]; l == nil || !l.Before || l.Unloaded != 0 || l.Route != perfdata.BPFRouteStatus {
		t.Errorf("the one of before: %+v", l)
	}
	l := b.lives[during]
	if l == nil || l.Before || l.Loaded == 0 || l.Unloaded <= l.Loaded || l.Loader == nil || int(l.Loader.PID) != os.Getpid() || l.Loader.Cgroup == 0 {
		t.Errorf("the one of the recording: %+v", l)
	}
	for _, name := range []string{"caller", "called"} {
		if !slices.ContainsFunc(slices.Collect(maps.Values(b.lives)), func(l *perfdata.BPFProgramLife) bool {
			return l.Name == name && l.Missed == "" && l.Loader != nil && int(l.Loader.PID) == os.Getpid()
		}) {
			t.Errorf("nothing is known of %s", name)
		}
	}
	// perf reads the same.
	report := perfOutput(t, "report", "-i", rec.path, "-I", "--header-only")
	for _, id := range []uint32{before, during} {
		if !strings.Contains(report, "# bpf_prog_info "+strconv.Itoa(int(id))+":\n") {
			t.Errorf("perf report knows no program %d:\n%s", id, report)
		}
	}
	events := perfOutput(t, "script", "-i", rec.path, "--show-bpf-events")
	for _, id := range []uint32{before, during} {
		if !strings.Contains(events, "PERF_RECORD_BPF_EVENT type 1, flags 0, id "+strconv.Itoa(int(id))+"\n") {
			t.Errorf("perf script shows no load of program %d", id)
		}
	}
}

func perfOutput(t *testing.T, args ...string) string {
	t.Helper()
	out, stderr, err := testutil.RunPerf(t, func() *exec.Cmd { return exec.Command("perf", args...) })
	if err != nil {
		t.Fatalf("perf %s: %v\n%s", args[0], err, stderr)
	}
	return string(out)
}

func TestNoBPFEvent(t *testing.T) {
	testutil.Require(t, testutil.Root)
	_, before := loadSeven(t)
	rec := recordWhile(t, Options{Target: Target{All: true}, NoBPFEvent: true}, func() {})
	b := readBPF(t, rec.path)
	if b.programs[before] != nil || b.lives[before] != nil {
		t.Errorf("program %d is recorded", before)
	}
}

// loaderSource loads programs with the name that it reads and unloads each at
// once.
const loaderSource = `
#include <linux/bpf.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
	struct bpf_insn code[] = {{.code = 0xb7}, {.code = 0x95}}; // r0 = 0; exit
	char line[32];
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = 0;
		for (int i = 0; i < 50; i++) {
			union bpf_attr a;
			memset(&a, 0, sizeof a);
			a.prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
			a.insns = (unsigned long)code;
			a.insn_cnt = 2;
			a.license = (unsigned long)"MIT";
			strncpy(a.prog_name, line, BPF_OBJ_NAME_LEN - 1);
			int fd = syscall(SYS_bpf, BPF_PROG_LOAD, &a, sizeof a);
			if (fd < 0) {
				perror("load");
				return 1;
			}
			close(fd);
		}
		puts("done");
		fflush(stdout);
	}
	return 0;
}
`

// Of programs that a container loads, and that live some microseconds, each is
// known with the container.
func TestRecordsBPFOfContainer(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.Tool("runc"), testutil.Tool("gcc"))
	prog := testutil.CompileC(t, loaderSource, "-static", "-O2")
	c := testutil.StartContainer(t, testutil.ContainerSpec{Name: "bpf", Files: map[string]string{"/app/loader": prog},
		Args: []string{"/app/loader"}, Ready: "ready", Capabilities: []string{"CAP_BPF"}})
	name := "gt_" + testutil.RandomHex(5)
	rec := recordWhile(t, Options{Target: Target{All: true}}, func() {
		c.Write(t, name+"\n")
		c.ReadLine(t)
	})
	b := readBPF(t, rec.path)
	known := 0
	for id, l := range b.lives {
		if l.Name != name {
			continue
		}
		known++
		if p := b.programs[id]; p == nil || len(p.JITed) == 0 || len(p.KSyms) != 1 || l.Unloaded < l.Loaded {
			t.Errorf("program %d: %+v", id, l)
		}
		if w := l.Loader; w == nil || w.Comm != "loader" || w.Namespaces["pid"] != c.Namespace(t, "pid") {
			t.Errorf("loader %+v", w)
		}
	}
	if known != 50 {
		t.Errorf("%d programs of the container are known, want 50", known)
	}
}

// loadAndRecordForever records until it is killed, and says on stdout the id of a
// program, which was loaded meanwhile, when the file has it. It ends if others have
// loaded so much that no more is shown.
func loadAndRecordForever(t *testing.T, name string) {
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	var id uint32
	var r *Recorder
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err = Open(Options{Target: Target{All: true}, Groups: groups(t, "cpu-clock"), Frequency: 1000, Progress: func(Progress) {
		if id == 0 {
			_, id = loadSeven(t)
		}
		if _, size := r.bpf.programs.Taken(); size > maxCheckpoint {
			fmt.Println(tooMuchLoaded)
			cancel()
		}
		got, err := perfdata.Open(name, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer got.Close()
		list, err := perfdata.DecodeBPFPrograms(got.Features().BPFProgInfo, got.Order())
		if err != nil {
			t.Error(err)
		}
		if slices.ContainsFunc(list, func(p perfdata.BPFProgram) bool { return p.ID == id }) {
			fmt.Printf("program %d\n", id)
			<-make(chan struct{}) // until it is killed
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Run(ctx, Output{File: f}); err != nil {
		t.Fatal(err)
	}
}

// tooMuchLoaded is what loadAndRecordForever says when it ends for that reason.
const tooMuchLoaded = "others have loaded too much"

// killLoader starts a process that does loadAndRecordForever and kills it when it
// has told of the program, 0 if it never does.
func killLoader(t *testing.T, variable string) (id uint32, crowded bool) {
	t.Helper()
	cmd := testProcess("TestKilledRecorderLeavesBPF", variable)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for id == 0 && lines.Scan() {
		fmt.Sscanf(lines.Text(), "program %d", &id)
		crowded = crowded || lines.Text() == tooMuchLoaded
	}
	cmd.Process.Kill()
	cmd.Wait()
	return id, crowded && id == 0
}

// A killed recorder leaves the details of programs that were loaded meanwhile.
func TestKilledRecorderLeavesBPF(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tool("perf"))
	const variable = "GANTRY_TEST_LOAD_AND_RECORD"
	if name := os.Getenv(variable); name != "" {
		loadAndRecordForever(t, name)
		return
	}
	name := filepath.Join(t.TempDir(), "perf.data")
	var id uint32
	for tries, crowded := 0, true; crowded && tries < 20; tries++ {
		id, crowded = killLoader(t, variable+"="+name)
	}
	if id == 0 {
		t.Fatal("the file had no program")
	}
	b := readBPF(t, name)
	b.checkSeven(t, id)
	report := perfOutput(t, "report", "-i", name, "-I", "--header-only")
	if !strings.Contains(report, fmt.Sprintf("# bpf_prog_info %d:\n", id)) {
		t.Errorf("perf report knows no program %d:\n%s", id, report)
	}
}
