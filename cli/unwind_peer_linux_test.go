// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// unwindC has what is hard about the stacks of C: recursion, alloca, callbacks
// out of the C library, setjmp, a signal handler, the vdso, deep call chains of
// the C library, tail calls.
const unwindC = `
#define _GNU_SOURCE
#include <alloca.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#define NOINLINE __attribute__((noinline))
static volatile unsigned long sink;
NOINLINE unsigned long spin(unsigned long n) { unsigned long x = n; for (unsigned long i = 0; i < n; i++) x = x * 31 + i; sink += x; return x; }
NOINLINE unsigned long deep(int d) { if (!d) return spin(20000); unsigned long r = deep(d - 1); return r + spin(100) + d; }
NOINLINE unsigned long room(int n) { char *p = alloca(n * 16 + 32); memset(p, n, n * 16); unsigned long r = spin(20000); for (int i = 0; i < n * 16; i += 7) r += p[i]; return r; }
static int cmp(const void *a, const void *b) { spin(50); return *(int *)a - *(int *)b; }
NOINLINE void sorts(void) { int v[300]; for (int i = 0; i < 300; i++) v[i] = i * 7919 % 503; qsort(v, 300, sizeof *v, cmp); sink += v[3]; }
static jmp_buf jb;
NOINLINE void jumper(int d) { if (!d) { spin(10000); longjmp(jb, 1); } jumper(d - 1); spin(1); }
NOINLINE void jumps(void) { if (!setjmp(jb)) jumper(5); spin(1000); }
NOINLINE static void handle(int n) { spin(n); sink++; }
static void handler(int s) { handle(s * 1000); sink++; }
NOINLINE void clocks(void) { struct timespec t; for (int i = 0; i < 500; i++) { clock_gettime(CLOCK_MONOTONIC, &t); sink += t.tv_nsec; } }
NOINLINE void memory(void) { char *p = malloc(1 << 18), *q = malloc(1 << 18); memset(p, 1, 1 << 18); memcpy(q, p, 1 << 18); sink += q[77]; free(p); free(q); }
NOINLINE void prints(void) { char b[200]; for (int i = 0; i < 100; i++) snprintf(b, 200, "%d %s %f", i, "hello", i * 1.5); sink += b[3]; }
NOINLINE unsigned long tail(int n) { return spin(n); }
int main(int argc, char **argv) {
	if (argc > 2) getchar();
	signal(SIGPROF, handler); // by CPU time: a busy machine gives no more of them
	struct itimerval it = {{0, 9700}, {0, 9700}};
	setitimer(ITIMER_PROF, &it, 0);
	for (int i = atoi(argv[1]); i > 0; i--) { deep(10); deep(60); room(5); room(50); sorts(); jumps(); clocks(); memory(); prints(); tail(5000); }
}
`

// unwindCxx has what C++ adds: templates, exceptions that unwind while they
// are sampled, virtual and type-erased calls, over-aligned frames, threads,
// containers and streams of the library.
const unwindCxx = `
#include <algorithm>
#include <functional>
#include <map>
#include <pthread.h>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>
#define NOINLINE __attribute__((noinline))
static volatile unsigned long sink;
template <int N> struct F { NOINLINE static unsigned long f(unsigned long x) { for (int i = 0; i < 200; i++) x = x * 31 + i; unsigned long r = F<N - 1>::f(x) + N; sink += r; return r; } };
template <> struct F<0> { NOINLINE static unsigned long f(unsigned long x) { for (int i = 0; i < 2000; i++) x = x * 31 + i; return x; } };
NOINLINE void thrower(int d) { std::string s(100, 'a' + d); if (!d) throw std::runtime_error(s); thrower(d - 1); sink += s.size(); }
NOINLINE void catcher() { for (int i = 0; i < 20; i++) try { thrower(8); } catch (const std::exception &e) { sink += e.what()[0]; } }
NOINLINE void maps() { std::map<std::string, int> m; for (int i = 0; i < 300; i++) m["k" + std::to_string(i * 7919 % 1000)]++; for (auto &p : m) sink += p.second; }
NOINLINE void sorts() { std::vector<std::string> v; for (int i = 0; i < 300; i++) v.push_back(std::to_string(i * 7919 % 1000)); std::sort(v.begin(), v.end(), [](const std::string &a, const std::string &b) { return a < b; }); sink += v[0].size(); }
NOINLINE void streams() { std::ostringstream o; for (int i = 0; i < 100; i++) o << i << ' ' << i * 1.5; sink += o.str().size(); }
struct Base { virtual ~Base() {} virtual unsigned long go(std::function<unsigned long(int)> f) = 0; };
struct Derived : Base { unsigned long go(std::function<unsigned long(int)> f) override { unsigned long r = 0; for (int i = 0; i < 100; i++) r += f(i); return r; } };
NOINLINE void aligned() { alignas(64) volatile char buf[256]; for (int k = 0; k < 20000; k++) buf[k & 255] += k; sink += buf[3]; }
static void *worker(void *) { for (int i = 0; i < 20; i++) { F<20>::f(i); maps(); } return nullptr; }
int main(int, char **argv) {
	Derived d;
	Base *b = &d;
	for (int i = atoi(argv[1]); i > 0; i--) {
		F<30>::f(3); catcher(); maps(); sorts(); streams(); aligned();
		sink += b->go([](int i) { return F<3>::f(i); });
		pthread_t t;
		pthread_create(&t, 0, worker, 0);
		pthread_join(t, 0);
	}
}
`

// TestUnwindPeer compares unwound stacks with perf's, frame by frame.
func TestUnwindPeer(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents,
		testutil.Tool("perf", "gcc", "g++", "clang", "bash", "perl", "gzip"), testutil.Arch("amd64"))
	dir := t.TempDir()
	p := peer{t: t, dir: dir}
	store := filepath.Join(dir, ".debug") // where perf keeps the vdso
	total := unwindDiffs{}
	for _, c := range []struct {
		name, compiler, src string
		flags               []string
		rounds              int
		gantry              bool     // recorded by gantry
		running             bool     // from when it runs already
		argv                []string // a program of the machine, in place of a source
	}{
		{name: "c", compiler: "gcc", src: unwindC, flags: []string{"-O2", "-fomit-frame-pointer"}, rounds: 400},
		{name: "c-by-gantry", compiler: "gcc", src: unwindC, flags: []string{"-O2", "-fomit-frame-pointer"},
			rounds: 200, gantry: true},
		{name: "c-attached", compiler: "gcc", src: unwindC, flags: []string{"-O2", "-fomit-frame-pointer"}, rounds: 200,
			running: true},
		{name: "c-clang", compiler: "clang", src: unwindC, flags: []string{"-O1"}, rounds: 200},
		{name: "cxx", compiler: "g++", src: unwindCxx, flags: []string{"-x", "c++", "-O2"}, rounds: 150},
		{name: "bash", argv: []string{"bash", "-c",
			"for ((i = 0; i < 40000; i++)); do x=$((x + i)); y=${x/1/2}; done"}},
		{name: "perl", argv: []string{"perl", "-e",
			`for (1..100000) { $h{$_ % 997} .= "x$_"; } print length join "", map { sort split //, $_ } values %h`}},
		{name: "gzip", argv: []string{"gzip", "-9", "-c", "/proc/self/exe", "/proc/kallsyms"}},
		{name: "cxx-unoptimised", compiler: "g++", src: unwindCxx, flags: []string{"-x", "c++", "-O0"}, rounds: 50},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.t = t
			prog, argv := filepath.Join(dir, c.name), c.argv
			if argv == nil {
				prog = compileAs(t, prog, c.compiler, c.src, append(c.flags, "-pthread"))
				argv = []string{prog, strconv.Itoa(c.rounds)}
			}
			file := prog + ".data"
			record := append([]string{"record", "-q", "-e", "cpu-clock", "-F", "1999", "--call-graph", "dwarf", "-o",
				file, "--"}, argv...)
			switch {
			case c.running:
				p.recordRunning(prog, c.rounds, file, store)
			case c.gantry:
				p.gantry(slices.Insert(record, 1, "--buildid-dir", store, "--trim-stacks")...)
			default:
				p.record(file, record...)
			}
			fields := []string{"script", "-i", file, "-F", "tid,time,ip,sym,dso", "--no-inline"}
			want := stackBlocks(p.perf(fields...))
			got := stackBlocks(p.gantry(append(fields, "--buildid-dir", store)...))
			total.add(t, want, got)
		})
	}
	total.report(t)
}

// recordRunning has gantry record a program that runs, and waits for a line,
// when recording begins. The recorded command sends the line and waits for the
// program's end, also when it is told that all recorded tasks have ended.
func (p *peer) recordRunning(prog string, rounds int, file, store string) {
	t := p.t
	t.Helper()
	in, out := filepath.Join(p.dir, "in"), filepath.Join(p.dir, "out")
	for _, name := range []string{in, out} {
		if err := syscall.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Both ends are open from the start, so that nobody waits to open them.
	cmd := exec.Command("sh", "-c", fmt.Sprintf("exec %s %d wait <>%s 1<>%s", prog, rounds, in, out))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	p.gantry("record", "-q", "-e", "cpu-clock", "-F", "1999", "--call-graph", "dwarf", "--buildid-dir", store, "-o",
		file,
		"-p", strconv.Itoa(cmd.Process.Pid), "--duration", "60s", "--", "sh", "-c",
		"trap : TERM; echo >"+in+"; cat "+out+"; exit 0")
}

// compileAs compiles a program to the given path.
func compileAs(t *testing.T, out, compiler, src string, flags []string) string {
	t.Helper()
	in := out + ".c"
	if err := os.WriteFile(in, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append(flags, "-o", out, in)
	if msg, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, msg)
	}
	return out
}

// gantry runs gantry and returns what it prints.
func (p *peer) gantry(args ...string) string {
	p.t.Helper()
	var stdout, stderr bytes.Buffer
	if code := Main(nil, &stdout, &stderr, args); code != 0 {
		p.t.Fatalf("gantry %q: exit status %d\n%s", args, code, &stderr)
	}
	return stdout.String()
}

// stackBlocks splits the text of a script into samples: a line, and its
// frames.
func stackBlocks(text string) [][]string {
	var blocks [][]string
	for b := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		blocks = append(blocks, strings.Split(b, "\n"))
	}
	return blocks
}

// unwindDiffs counts equal stacks and the kinds of difference.
type unwindDiffs struct {
	samples, equal int
	kinds          map[string]int
}

func (d *unwindDiffs) add(t *testing.T, want, got [][]string) {
	t.Helper()
	if len(want) != len(got) || len(want) < 20 {
		t.Fatalf("perf prints %d samples, gantry %d", len(want), len(got))
	}
	for i := range want {
		d.samples++
		kind := diffStacks(want[i], got[i])
		if kind == "" {
			d.equal++
			continue
		}
		if d.kinds == nil {
			d.kinds = make(map[string]int)
		}
		d.kinds[kind]++
	}
}

func (d *unwindDiffs) report(t *testing.T) {
	for _, kind := range slices.Sorted(maps.Keys(d.kinds)) {
		t.Logf("%d samples: %s", d.kinds[kind], kind)
	}
	t.Logf("%d of %d stacks equal perf's", d.equal, d.samples)
	if d.equal*100 < d.samples*99 {
		t.Errorf("%d of %d stacks equal perf's, fewer than 99 %%", d.equal, d.samples)
	}
}

// diffStacks says how the second stack differs from perf's, "" if it does not.
// What a function is called is not the unwinder's doing: addresses count, and
// objects.
func diffStacks(want, got []string) string {
	for i := 1; i < min(len(want), len(got)); i++ {
		w, g := parseFrame(want[i]), parseFrame(got[i])
		switch {
		case w.ip == g.ip && w.dso == g.dso:
		case w.ip+1 == g.ip && strings.HasPrefix(g.sym, "__restore_rt"):
			return "perf takes one byte from the address that a signal handler returns to"
		default:
			return fmt.Sprintf("perf %s, gantry %s, behind %s", w.sym, g.sym, parseFrame(want[i-1]).sym)
		}
	}
	switch {
	case len(want) > len(got):
		return "perf has more behind " + parseFrame(got[len(got)-1]).sym
	case len(want) < len(got):
		return "gantry has more behind " + parseFrame(want[len(want)-1]).sym
	}
	return ""
}

type scriptFrame struct {
	ip       uint64
	sym, dso string
}

func parseFrame(line string) scriptFrame {
	ip, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	sym, dso, _ := strings.Cut(rest, " (/")
	n, _ := strconv.ParseUint(ip, 16, 64)
	return scriptFrame{n, sym, dso}
}
