// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recorder is a test whose outcome is looked at.
type recorder struct {
	testing.TB
	skipped, failed string
	cleanups        []func()
}

type stopped struct{}

func (r *recorder) Skipf(format string, args ...any) {
	r.skipped = fmt.Sprintf(format, args...)
	panic(stopped{})
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	panic(stopped{})
}

func (r *recorder) Errorf(format string, args ...any) { r.failed += fmt.Sprintf(format, args...) }
func (r *recorder) Cleanup(f func())                  { r.cleanups = append(r.cleanups, f) }

// record runs f and then its cleanups, last first.
func record(t *testing.T, f func(t testing.TB)) (r *recorder) {
	r = &recorder{TB: t}
	defer func() {
		if p := recover(); p != nil && p != any(stopped{}) {
			panic(p)
		}
		for i := len(r.cleanups) - 1; i >= 0; i-- {
			r.cleanups[i]()
		}
	}()
	f(r)
	return r
}

type missing string

func (m missing) Missing() string { return string(m) }
func (m missing) String() string  { return "the thing" }

func TestSkips(t *testing.T) {
	lacks := func(t testing.TB) { Lacks(t, "no %s", "tool") }
	notHere := func(t testing.TB) { NotHere(t, "no %s", "tool") }
	for _, all := range []string{"", "all"} {
		t.Setenv(RequireEnv, all)
		if r := record(t, notHere); r.skipped != "no tool" || r.failed != "" {
			t.Errorf("%q: not here: skipped %q, failed %q", all, r.skipped, r.failed)
		}
		if r := record(t, lacks); (r.failed != "") != (all == "all") || all == "" && r.skipped != "no tool" {
			t.Errorf("%q: lacks: skipped %q, failed %q", all, r.skipped, r.failed)
		}
	}
}

func TestRequire(t *testing.T) {
	need := func(req Requirement) func(testing.TB) {
		return func(t testing.TB) { Require(t, missing(""), req) }
	}
	t.Setenv(RequireEnv, "")
	r := record(t, need(missing("gone; get it")))
	if want := "requires the thing: gone; get it"; r.skipped != want || r.failed != "" {
		t.Errorf("skipped %q, failed %q; want to skip with %q", r.skipped, r.failed, want)
	}
	if r := record(t, need(missing(""))); r.skipped+r.failed != "" {
		t.Errorf("skipped %q, failed %q with nothing missing", r.skipped, r.failed)
	}
	t.Setenv(RequireEnv, "all")
	if r := record(t, need(missing("gone"))); r.failed == "" {
		t.Errorf("skipped %q, want to fail", r.skipped)
	}
	if r := record(t, need(Arch("pdp11"))); r.skipped == "" {
		t.Errorf("failed %q, want to skip what is impossible", r.failed)
	}
}

func TestTool(t *testing.T) {
	got := Tool("go", "no-such-program").Missing()
	if !strings.Contains(got, "no-such-program") || strings.Contains(got, "go,") {
		t.Errorf("missing %q", got)
	}
}

func TestGolden(t *testing.T) {
	path := filepath.Join(t.TempDir(), "testdata", "x.golden")
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("one\ntwo\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if *update {
		NotHere(t, "-update rewrites instead of comparing")
	}
	if r := record(t, func(t testing.TB) { Golden(t, path, []byte("one\ntwo\n")) }); r.failed != "" {
		t.Errorf("equal: %s", r.failed)
	}
	if r := record(t, func(t testing.TB) { Golden(t, path, []byte("one\nthree\n")) }); !strings.Contains(r.failed, "three") {
		t.Errorf("different: %q", r.failed)
	}
	if r := record(t, func(t testing.TB) { Golden(t, path+".absent", nil) }); !strings.Contains(r.failed, "-update") {
		t.Errorf("absent: %q", r.failed)
	}
}
