// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStatNames(t *testing.T) {
	for _, comm := range []string{"sh", "a) R 1 (b", "((", "))", "x\ny) S 2 3\n", " ", "", "(sd-pam)"} {
		text := "42 (" + comm + ") S 1 42 41 0 -1 4194560 1 2 3 4 50 60 7 8 20 0 3 0 777 12345 67\n"
		got, err := ParseStat(strings.NewReader(text))
		if err != nil {
			t.Errorf("%q: %v", comm, err)
			continue
		}
		want := Stat{PID: 42, Comm: comm, State: 'S', PPID: 1, PGRP: 42, Session: 41,
			Flags: 4194560, UTime: 50, STime: 60, NumThreads: 3, StartTime: 777}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: %s", comm, diff)
		}
	}
	for _, bad := range []string{"", "1", "1 (a", "(a) S", "1 (a) S 1 2", "x (a) S 1 42 41 0 -1 0 1 2 3 4 50 60 7 8 20 0 3 0 777"} {
		if got, err := ParseStat(strings.NewReader(bad)); err == nil || got != (Stat{}) {
			t.Errorf("%q: %+v, %v", bad, got, err)
		}
	}
}

func TestSelfStat(t *testing.T) {
	s, err := New("").Self().Stat()
	if err != nil {
		t.Fatal(err)
	}
	if s.PID != os.Getpid() || s.PPID != os.Getppid() || s.StartTime == 0 || s.KernelThread() {
		t.Errorf("%+v", s)
	}
	kthreadd, err := New("/").Proc(2).Stat()
	if err == nil && kthreadd.Comm == "kthreadd" && !kthreadd.KernelThread() {
		t.Errorf("kthreadd is no kernel thread: %+v", kthreadd)
	}
}

func TestSelfFiles(t *testing.T) {
	p := New("").Self()
	st, err := p.Status()
	if err != nil {
		t.Fatal(err)
	}
	if st.TGID != os.Getpid() || int(st.UID[1]) != os.Geteuid() || st.InnerPID() != os.Getpid() {
		t.Errorf("%+v", st)
	}
	tasks, err := p.Tasks()
	if err != nil || len(tasks) != st.Threads && len(tasks) < 1 {
		t.Errorf("%v, %v", tasks, err)
	}
	if ns, err := p.Namespace("mnt"); err != nil || ns == 0 {
		t.Errorf("mnt %d, %v", ns, err)
	}
	if _, err := p.Namespace("nope"); !Gone(err) {
		t.Errorf("err %v", err)
	}
	comm, err := p.Task(tasks[0]).Comm()
	if err != nil || comm == "" {
		t.Errorf("%q, %v", comm, err)
	}
	if root, err := p.RootLink(); err != nil || !strings.HasPrefix(root, "/") {
		t.Errorf("%q, %v", root, err)
	}
}

func TestMachine(t *testing.T) {
	f := New("")
	mem, err := f.MemTotal()
	if err != nil || mem < 1000 {
		t.Errorf("%d, %v", mem, err)
	}
	cpu, err := f.CPU()
	if err != nil || cpu.Model == "" {
		t.Errorf("%+v, %v", cpu, err)
	}
	if _, err := f.Modules(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if v, err := f.SysctlInt("kernel.pid_max"); err != nil || v < 300 {
		t.Errorf("%d, %v", v, err)
	}
	pids, err := f.PIDs()
	if err != nil || !slices.Contains(pids, os.Getpid()) {
		t.Errorf("%v, %v", pids, err)
	}
}

func TestStatus(t *testing.T) {
	const text = "Name:\ta\\n\\\\b\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t70\nNgid:\t0\nPid:\t71\nPPid:\t1\nTracerPid:\t0\n" +
		"Uid:\t1000\t1001\t1002\t1003\nGid:\t4294967295\t0\t0\t0\nFDSize:\t64\nGroups:\t \nNStgid:\t70\t1\nNSpid:\t71\t2\nThreads:\t9\n" +
		"CapEff:\t000001ffffffffff\nNoNewPrivs:\t1\nSeccomp:\t2\n"
	got, err := ParseStatus(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := Status{Name: "a\n\\b", TGID: 70, PID: 71, PPID: 1, UID: [4]uint32{1000, 1001, 1002, 1003},
		GID: [4]uint32{4294967295}, NSTGID: []int{70, 1}, NSPID: []int{71, 2}, Threads: 9,
		CapEff: 0x1ffffffffff, NoNewPrivs: true, Seccomp: 2}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got.InnerPID() != 2 {
		t.Errorf("inner %d", got.InnerPID())
	}
	for _, bad := range []string{"x", "Pid:\tx", "Uid:\t1 2", "CapEff:\tzz", "NSpid:" + strings.Repeat(" 1", 34)} {
		if got, err := ParseStatus(strings.NewReader(bad)); err == nil || got.PID != 0 {
			t.Errorf("%q: %+v, %v", bad, got, err)
		}
	}
}

func TestParseCPU(t *testing.T) {
	for _, tt := range []struct {
		file string
		want CPU
	}{
		{"cpuinfo.amd64", CPU{"Intel(R) Xeon(R) Platinum 8275CL CPU @ 3.00GHz", "GenuineIntel,6,85,7"}},
		{"cpuinfo.arm64", CPU{"Neoverse-N1", "0x00000000413fd0c1"}},
		{"cpuinfo.arm64-unknown", CPU{"ARM implementer 0x61 part 0x022", "0x00000000611f0221"}},
	} {
		f, err := os.Open(filepath.Join("testdata", tt.file))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		got, err := ParseCPU(f)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", tt.file, diff)
		}
	}
	if c, err := ParseCPU(strings.NewReader("flags\t: a\n")); err == nil {
		t.Errorf("%+v", c)
	}
}

func TestParseModules(t *testing.T) {
	const text = "nf_tables 376832 0 - Live 0xffffffffc0a10000\nhidden 1 2 a,b, Loading 0x0000000000000000 (OE)\n"
	got, err := ParseModules(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []Module{{"nf_tables", 376832, "Live", 0xffffffffc0a10000}, {"hidden", 1, "Loading", 0}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"a 1\n", "a x 0 - Live 0x1\n", "a 1 0 - Live zz\n"} {
		if m, err := ParseModules(strings.NewReader(bad)); err == nil {
			t.Errorf("%q: %v", bad, m)
		}
	}
}

func TestNSLink(t *testing.T) {
	if n, err := parseNSLink("mnt:[4026531841]"); n != 4026531841 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, bad := range []string{"", "mnt", "mnt:[", "mnt:[x]", "mnt:[1"} {
		if _, err := parseNSLink(bad); !errors.Is(err, errNSLink) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzStatus(f *testing.F) {
	f.Add("Name:\ta\\n\\\\b\nTgid:\t70\nPid:\t71\nUid:\t1\t2\t3\t4\nNSpid:\t71\t2\nCapEff:\t000001ffffffffff\nNoNewPrivs:\t1\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseStatus(strings.NewReader(text))
		if err != nil {
			if diff := cmp.Diff(Status{}, s); diff != "" {
				t.Fatal(diff)
			}
			return
		}
		name := strings.NewReplacer("\\", `\\`, "\n", `\n`).Replace(s.Name)
		again, err := ParseStatus(strings.NewReader(fmt.Sprintf("Name:\t%s\nPid:\t%d\nUid:\t%d %d %d %d\nCapEff:\t%x\n",
			name, s.PID, s.UID[0], s.UID[1], s.UID[2], s.UID[3], s.CapEff)))
		if err != nil || again.Name != s.Name || again.PID != s.PID || again.UID != s.UID || again.CapEff != s.CapEff {
			t.Fatalf("%+v, %+v, %v", s, again, err)
		}
	})
}

func FuzzModules(f *testing.F) {
	f.Add("nf_tables 376832 0 - Live 0xffffffffc0a10000\nhidden 1 2 a,b, Loading 0x0000000000000000 (OE)\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseModules(strings.NewReader(text))
		if err != nil && list != nil {
			t.Fatal("value and error")
		}
		var b strings.Builder
		for _, m := range list {
			fmt.Fprintf(&b, "%s %d 0 - %s 0x%x\n", m.Name, m.Size, m.State, m.Address)
		}
		again, err := ParseModules(strings.NewReader(b.String()))
		if diff := cmp.Diff(list, again); diff != "" || err != nil {
			t.Fatal(err, diff)
		}
	})
}

// TestParseLines: the files that are read line by line tell which line is wrong,
// and then have no value.
func TestParseLines(t *testing.T) {
	long := strings.Repeat("x", maxLine+1)
	for _, tt := range []struct {
		name, good string
		parse      func(string) (int, error)
	}{
		{"cgroup", "0::/\n", func(s string) (int, error) { v, err := ParseCgroups(strings.NewReader(s)); return len(v), err }},
		{"mountinfo", "22 1 0:21 / /proc rw - proc proc rw\n", func(s string) (int, error) {
			v, err := ParseMountinfo(strings.NewReader(s))
			return len(v), err
		}},
		{"modules", "ext4 1 1 - Live 0x10\n", func(s string) (int, error) { v, err := ParseModules(strings.NewReader(s)); return len(v), err }},
	} {
		if n, err := tt.parse(tt.good + tt.good); n != 2 || err != nil {
			t.Errorf("%s: %d, %v", tt.name, n, err)
		}
		if n, err := tt.parse(tt.good + "bad\n"); n != 0 || err == nil || !strings.HasPrefix(err.Error(), "line 2: ") {
			t.Errorf("%s: %d, %v", tt.name, n, err)
		}
		if n, err := tt.parse(tt.good + long); n != 0 || !errors.Is(err, bufio.ErrTooLong) {
			t.Errorf("%s: %d, %v", tt.name, n, err)
		}
	}
}
