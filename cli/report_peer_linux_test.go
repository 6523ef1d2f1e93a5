// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

const templatesSource = `
#include <algorithm>
#include <map>
#include <string>
#include <vector>
int main() {
	std::map<std::string, std::vector<int>> m;
	unsigned s = 1;
	for (int i = 0; i < 200000; i++) { s = s * 1103515245 + 12345; m["k" + std::to_string(s % 5000)].push_back(s); }
	for (auto &p : m) std::sort(p.second.begin(), p.second.end());
	return m.empty();
}
`

const peerWorkload = `set -e
g++ -O1 -fno-omit-frame-pointer -o templates templates.cc
./templates; ./templates
python3 -c 'import json; json.dumps([str(i) * 3 for i in range(200000)])'
i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done
python3 -c 'import time; [time.monotonic() for _ in range(500000)]'
cat /usr/include/*.h | sort | tail -n 1 >/dev/null
`

// programs are those of the workload.
var programs = []string{"sh", "g++", "cc1plus", "as", "ld", "collect2", "templates", "python3", "cat", "sort"}

// ofWorkload keeps the rows of the workload's programs. perf mixes up the
// functions of other programs, if they have the same path in two containers.
func ofWorkload(s shares) shares {
	out := shares{}
	for key, e := range s {
		if comm, _, _ := strings.Cut(key, " | "); slices.Contains(programs, comm) {
			out[key] = e
		}
	}
	return out
}

// recordPeer records a workload of several kinds of programs with the real perf.
func recordPeer(t *testing.T) string {
	t.Helper()
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tool("perf", "g++", "python3"))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "templates.cc"), []byte(templatesSource), 0o600); err != nil {
		t.Fatal(err)
	}
	// With --buildid-mmap, perf does not read the binaries of all that ran: it
	// crashes on build-ids of odd sizes, such as other tests use.
	// In large rings nothing is lost: of a task whose begin is not told, perf names
	// also what came before its name.
	file := filepath.Join(dir, "perf.data")
	_, stderr, err := testutil.RecordPerf(t, file, func() *exec.Cmd {
		cmd := exec.Command("perf", "record", "-q", "-m", "4M", "--buildid-mmap", "-a", "-g", "--all-cgroups", "-F",
			"999", "-e", "cpu-clock",
			"-o", "perf.data", "sh", "-c", peerWorkload)
		cmd.Dir = dir
		return cmd
	})
	if err != nil {
		t.Fatalf("perf record: %v\n%s", err, stderr)
	}
	return file
}

// shareOf is what a row says, and from how many rounded numbers it is.
type shareOf struct {
	self, children float64
	rows           int
}

// shares are rows by their keys. Rows of the same keys are added up: perf has
// one for each of several functions of one name. So are, for each object,
// functions without a name: perf shows their offset in the file.
type shares map[string]shareOf

func (s shares) add(keys []string, self, children float64) {
	for i, k := range keys {
		if nameless(k) {
			keys[i] = k[:len("[.] ")] + address
		}
	}
	key := strings.Join(keys, " | ")
	e := s[key]
	s[key] = shareOf{e.self + self, e.children + children, e.rows + 1}
}

const address = "(address)"

// nameless reports whether the text of a function is an address, or what perf calls
// PLT entries that lead to no symbol, or are in a section that it does not know:
// it lets _init, which has no size, reach over them.
func nameless(sym string) bool {
	if !strings.HasPrefix(sym, "[.] ") && !strings.HasPrefix(sym, "[k] ") {
		return false
	}
	name := sym[len("[.] "):]
	return sym == "[.] _init" || strings.HasPrefix(name, "0x") || strings.HasPrefix(name, "0000") || name == "@plt" ||
		strings.HasPrefix(name, "*ABS*")
}

// perfShares is what perf report says. The width of the first column is given:
// perf takes it from the last names of the threads, and cuts their earlier ones.
func perfShares(t *testing.T, file, sort string, children bool) shares {
	t.Helper()
	args := []string{"report", "-i", file, "--stdio", "-q", "-g", "none", "-t", "\x01", "--sort", sort, "-w", "10,200",
		"--no-children"}
	if children {
		args = append(args[:len(args)-2], "10,10,200", "--children")
	}
	text, stderr, err := testutil.RunPerf(t, func() *exec.Cmd { return exec.Command("perf", args...) })
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, stderr)
	}
	s := shares{}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\x01")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		for i := range f {
			f[i] = strings.TrimSpace(f[i])
		}
		var percent [2]float64
		n := 1
		if children {
			n = 2
		}
		for i := range n {
			if percent[i], err = strconv.ParseFloat(strings.TrimSuffix(f[i], "%"), 64); err != nil {
				t.Fatalf("perf: %q: %v", line, err)
			}
		}
		self, all := percent[0], 0.0
		if children {
			self, all = percent[1], percent[0]
		}
		s.add(f[n:], self, all)
	}
	return s
}

// gantryShares is what gantry report says.
func gantryShares(t *testing.T, file, sort string, children bool) shares {
	t.Helper()
	args := []string{"report", "-i", file, "--format", "json", "-g=none", "--sort", sort, "--no-children"}
	if children {
		args[len(args)-1] = "--children"
	}
	var stdout, stderr bytes.Buffer
	if status := Main(strings.NewReader(""), &stdout, &stderr, args); status != 0 {
		t.Fatalf("%v: status %d\n%s", args, status, stderr.Bytes())
	}
	var report struct {
		Events []struct {
			Rows []struct {
				Keys     map[string]any
				Percent  float64
				Children float64 `json:"children_percent"`
			}
		}
	}
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil || len(report.Events) != 1 {
		t.Fatalf("%d events: %v", len(report.Events), err)
	}
	s := shares{}
	for _, r := range report.Events[0].Rows {
		var keys []string
		for k := range strings.SplitSeq(sort, ",") {
			text := fmt.Sprint(r.Keys[k])
			if k == "sym" {
				mode := "[.] "
				if r.Keys["kernel"] == true {
					mode = "[k] "
				}
				text = mode + text
			}
			keys = append(keys, text)
		}
		s.add(keys, r.Percent, r.Children)
	}
	return s
}

// rounding is how far the sum of this row may be off, as perf prints two digits.
func (s shareOf) rounding() float64 { return 0.0051 * float64(s.rows+1) }

// compareSelf demands the same rows with the same shares. PLT entries that only
// gantry names count as nameless.
func compareSelf(t *testing.T, want, got shares) {
	t.Helper()
	for key, g := range got {
		at := strings.LastIndex(key, "[.] ")
		if _, ok := want[key]; ok || at < 0 || !strings.HasSuffix(key, "@plt") {
			continue
		}
		delete(got, key)
		plain := key[:at] + "[.] " + address
		e := got[plain]
		got[plain] = shareOf{e.self + g.self, e.children + g.children, e.rows + g.rows}
	}
	for key, w := range want {
		if g, ok := got[key]; !ok || math.Abs(g.self-w.self) > w.rounding() {
			t.Errorf("%s: %.2f%%, perf has %.2f%%", key, g.self, w.self)
		}
	}
	for key, g := range got {
		if _, ok := want[key]; !ok {
			t.Errorf("%s: %.2f%%, perf has no such row", key, g.self)
		}
	}
	if len(want) == 0 {
		t.Error("perf has no rows")
	}
}

func TestReportAgainstPerf(t *testing.T) {
	file := recordPeer(t)
	t.Run("comm,dso,sym", func(t *testing.T) {
		const sort = "comm,dso,sym"
		compareSelf(t, ofWorkload(perfShares(t, file, sort, false)), ofWorkload(gantryShares(t, file, sort, false)))
	})
	// Of other programs there may be threads that nothing named: perf names them
	// later, or not, and gantry like their process.
	for _, sort := range []string{"comm", "comm,dso"} {
		t.Run(sort, func(t *testing.T) {
			compareSelf(t, ofWorkload(perfShares(t, file, sort, false)), ofWorkload(gantryShares(t, file, sort, false)))
		})
	}
	for _, sort := range []string{"dso", "cgroup"} {
		t.Run(sort, func(t *testing.T) {
			compareSelf(t, perfShares(t, file, sort, false), gantryShares(t, file, sort, false))
		})
	}
	// perf pads the number of a cpu with zeros.
	t.Run("cpu", func(t *testing.T) {
		want := shares{}
		for key, w := range perfShares(t, file, "cpu", false) {
			n, err := strconv.Atoi(key)
			if err != nil {
				t.Fatal(err)
			}
			want[strconv.Itoa(n)] = w
		}
		compareSelf(t, want, gantryShares(t, file, "cpu", false))
	})
	// perf's pid is that of the thread, and followed by its name.
	t.Run("tid", func(t *testing.T) {
		want := shares{}
		for key, w := range perfShares(t, file, "pid", false) {
			tid, _, _ := strings.Cut(key, ":")
			old := want[tid]
			want[tid] = shareOf{self: old.self + w.self, rows: old.rows + w.rows}
		}
		compareSelf(t, want, gantryShares(t, file, "tid", false))
	})
	t.Run("archive", func(t *testing.T) { compareArchive(t, file) })
	t.Run("children", func(t *testing.T) { compareChildren(t, file) })
}

// compareArchive demands the report of the recording from an archive of it.
func compareArchive(t *testing.T, file string) {
	report := func(args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if status := Main(strings.NewReader(""), &stdout, &stderr, args); status != 0 {
			t.Fatalf("%v: status %d\n%s", args, status, stderr.Bytes())
		}
		return stdout.String()
	}
	packed := filepath.Join(t.TempDir(), "packed.gantry")
	report("archive", "-i", file, "-o", packed)
	// Files of other programs may go meanwhile.
	args := []string{"report", "--comm", strings.Join(programs, ","), "--format", "json", "-g=none", "--sort",
		"comm,dso,sym", "-i"}
	if want, got := report(append(args, file)...), report(append(args, packed)...); want != got {
		t.Errorf("the recording:\n%s\nits archive:\n%s", want, got)
	}
}

// compareChildren compares the 30 heaviest functions of the kernel and of the
// program that was built with frame pointers. Callers differ in two ways: gantry
// looks a caller up in its call, perf behind it, and perf keeps the mappings of a
// program after another was executed in its place. Both touch few stacks. Where
// there are no frame pointers, callers are what the register held, such as the
// start of a function, and the first difference shows.
func compareChildren(t *testing.T, file string) {
	const most, slack, few = 30, 0.5, 4
	const sort = "comm,dso,sym"
	want, got := ofWorkload(perfShares(t, file, sort, true)), ofWorkload(gantryShares(t, file, sort, true))
	var keys []string
	for key := range want {
		framed := strings.Contains(key, "| [k] ") || strings.HasPrefix(key, "templates | templates |")
		if framed && !strings.Contains(key, address) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Compare(want[b].children, want[a].children) })
	differ := 0
	for _, key := range keys[:min(most, len(keys))] {
		w, g := want[key], got[key]
		d := math.Abs(w.children - g.children)
		if math.Abs(w.self-g.self) > w.rounding() || d > slack {
			t.Errorf("%s: %.2f%% and %.2f%% itself, perf has %.2f%% and %.2f%%", key, g.children, g.self, w.children,
				w.self)
		}
		if d > w.rounding() {
			t.Logf("%s: %.2f%%, perf has %.2f%%", key, g.children, w.children)
			differ++
		}
	}
	if len(keys) < most || differ > few {
		t.Errorf("%d of %d functions differ", differ, len(keys))
	}
}
