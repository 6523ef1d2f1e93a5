// SPDX-License-Identifier: Apache-2.0

package tracens

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// fake is a system that writes down what is asked of it, and fails as it is told.
type fake struct {
	name   string
	calls  *[]string
	fail   map[string]error // by operation
	busy   bool
	parses string // the commands that it takes begin with this
}

func (f *fake) Name() string { return f.name }

func (f *fake) call(op string) error {
	*f.calls = append(*f.calls, op+" "+f.name)
	return f.fail[op]
}

func (f *fake) Create(ns *Namespace) error { ns.SetValue(f, f.name); return f.call("create") }
func (f *fake) Remove(*Namespace) error    { return f.call("remove") }
func (f *fake) IsBusy(*Namespace) bool     { return f.busy }

func (f *fake) Parse(_ *Namespace, command string) error {
	if !strings.HasPrefix(command, f.parses) {
		return ErrNotMine
	}
	return f.call("parse")
}

func (f *fake) Show(ns *Namespace) (string, error) {
	return fmt.Sprint("# ", ns.Value(f)), f.fail["show"]
}

// three are systems a, b and c, the commands of which begin with their names.
func three(t *testing.T) (*Registry, []*fake, *[]string) {
	t.Helper()
	r, calls := NewRegistry(), new([]string)
	var list []*fake
	for _, name := range []string{"a", "b", "c"} {
		f := &fake{name: name, calls: calls, fail: make(map[string]error), parses: name}
		if err := r.Register(f); err != nil {
			t.Fatal(err)
		}
		list = append(list, f)
	}
	return r, list, calls
}

func TestOperations(t *testing.T) {
	for _, tt := range []struct {
		name  string
		set   func(s []*fake)
		do    func(r *Registry) error
		want  error
		calls []string
		stays bool // namespace "old" is there afterwards
	}{
		{"create in order", nil, func(r *Registry) error { _, err := r.Create("new"); return err }, nil,
			[]string{"create a", "create b", "create c"}, true},
		{"create undone, the last first", func(s []*fake) { s[2].fail["create"] = syscall.ENOMEM },
			func(r *Registry) error { _, err := r.Create("new"); return err }, syscall.ENOMEM,
			[]string{"create a", "create b", "create c", "remove b", "remove a"}, true},
		{"the first fails", func(s []*fake) { s[0].fail["create"] = syscall.EPERM },
			func(r *Registry) error { _, err := r.Create("new"); return err }, syscall.EPERM, []string{"create a"}, true},
		{"undoing fails too", func(s []*fake) {
			s[1].fail["create"] = syscall.ENOMEM
			s[0].fail["remove"] = syscall.EIO
		}, func(r *Registry) error { _, err := r.Create("new"); return err }, syscall.ENOMEM,
			[]string{"create a", "create b", "remove a"}, true},
		{"create twice", nil, func(r *Registry) error { _, err := r.Create("old"); return err }, syscall.EEXIST, nil, true},
		{"create a bad name", nil, func(r *Registry) error { _, err := r.Create("a/b"); return err }, syscall.EINVAL,
			nil, true},
		{"remove", nil, func(r *Registry) error { return r.Remove("old") }, nil,
			[]string{"remove a", "remove b", "remove c"}, false},
		{"remove what is not there", nil, func(r *Registry) error { return r.Remove("none") }, syscall.ENOENT, nil, true},
		{"remove goes on, the last error counts", func(s []*fake) {
			s[0].fail["remove"] = syscall.EIO
			s[1].fail["remove"] = syscall.ENOSPC
		}, func(r *Registry) error { return r.Remove("old") }, syscall.ENOSPC,
			[]string{"remove a", "remove b", "remove c"}, true},
		{"nothing to remove is no error", func(s []*fake) { s[1].fail["remove"] = syscall.ENOENT },
			func(r *Registry) error { return r.Remove("old") }, nil, []string{"remove a", "remove b", "remove c"}, false},
		{"a system is busy", func(s []*fake) { s[2].busy = true }, func(r *Registry) error { return r.Remove("old") },
			syscall.EBUSY, nil, true},
		{"held", nil, func(r *Registry) error {
			ns, err := r.Find("old")
			if err != nil {
				return err
			}
			return errors.Join(r.Hold(ns), r.Remove("old"))
		}, syscall.EBUSY, nil, true},
		{"held and released", nil, func(r *Registry) error {
			ns, err := r.Find("old")
			if err != nil {
				return err
			}
			err = r.Hold(ns)
			r.Release(ns)
			return errors.Join(err, r.Remove("old"))
		}, nil, []string{"remove a", "remove b", "remove c"}, false},
		{"the second takes a command", nil, configure("b x"), nil, []string{"parse b"}, true},
		{"each line, comments left out", nil, configure("c 1\n\n# a\na 2\n"), nil, []string{"parse c", "parse a"}, true},
		{"nobody's command", nil, configure("x"), syscall.EINVAL, nil, true},
		{"whose command fails", func(s []*fake) { s[1].fail["parse"] = syscall.E2BIG }, configure("b\nc"), syscall.E2BIG,
			[]string{"parse b"}, true},
		{"the first that takes it", func(s []*fake) { s[0].parses = "" }, configure("b"), nil, []string{"parse a"}, true},
		{"a long command", nil, configure("a" + strings.Repeat("x", maxCommand)), syscall.E2BIG, nil, true},
	} {
		r, systems, calls := three(t)
		if _, err := r.Create("old"); err != nil {
			t.Fatal(err)
		}
		*calls = nil
		if tt.set != nil {
			tt.set(systems)
		}
		err := tt.do(r)
		if !errors.Is(err, tt.want) || tt.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		if !slices.Equal(*calls, tt.calls) {
			t.Errorf("%s: %q, want %q", tt.name, *calls, tt.calls)
		}
		if _, err := r.Find("old"); (err == nil) != tt.stays {
			t.Errorf("%s: old: %v", tt.name, err)
		}
		if _, err := r.Find("new"); err == nil && tt.want != nil {
			t.Errorf("%s: what failed is there", tt.name)
		}
	}
}

func configure(text string) func(r *Registry) error {
	return func(r *Registry) error {
		ns, err := r.Find("old")
		if err != nil {
			return err
		}
		return r.Configure(ns, text)
	}
}

func TestShow(t *testing.T) {
	r, systems, _ := three(t)
	ns, err := r.Create("x")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := r.Show(ns); err != nil || text != "# a\n# b\n# c\n" {
		t.Errorf("%q, %v", text, err)
	}
	systems[1].fail["show"] = syscall.EIO
	if _, err := r.Show(ns); !errors.Is(err, syscall.EIO) {
		t.Errorf("%v", err)
	}
	systems[1].fail["show"] = nil
	if err := r.Remove("x"); err != nil {
		t.Fatal(err)
	}
	// One that was kept by a stale directory.
	if _, err := r.Show(ns); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("show what is gone: %v", err)
	}
	if err := r.Configure(ns, "a"); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("configure what is gone: %v", err)
	}
	if err := r.Hold(ns); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("hold what is gone: %v", err)
	}
}

func TestNoSystems(t *testing.T) {
	r := NewRegistry()
	if _, err := r.Create("x"); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("create: %v", err)
	}
	if err := r.Remove("x"); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("remove: %v", err)
	}
}

func TestRegister(t *testing.T) {
	r, _, calls := three(t)
	for _, tt := range []struct {
		system System
		want   error
	}{
		{nil, syscall.EINVAL}, {&fake{name: ""}, syscall.EINVAL}, {&fake{name: "a:b"}, syscall.EINVAL},
		{&fake{name: "b"}, syscall.EEXIST}, {&fake{name: "d", calls: calls}, nil},
	} {
		if err := r.Register(tt.system); !errors.Is(err, tt.want) || tt.want == nil && err != nil {
			t.Errorf("%v: %v, want %v", tt.system, err, tt.want)
		}
	}
	if _, err := r.Create("x"); err != nil {
		t.Fatal(err)
	}
	if err := r.Register(&fake{name: "late"}); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("behind a namespace: %v", err)
	}
}

// TestIDs: numbers come back only after all others, and 0 never.
func TestIDs(t *testing.T) {
	r, _, _ := three(t)
	first, err := r.Create("first")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Remove("first"); err != nil {
		t.Fatal(err)
	}
	again, err := r.Create("first")
	if err != nil || again.ID == first.ID {
		t.Errorf("number %d again: %v", again.ID, err)
	}
	r.last = ^ID(0) - 1
	var ids []ID
	for _, name := range []string{"x", "y", "z"} {
		ns, err := r.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, ns.ID)
	}
	if !slices.Equal(ids, []ID{^ID(0), 1, 3}) { // 2 is in use
		t.Errorf("%d", ids)
	}
}

// TestManyAtOnce: many create, configure and remove at the same time.
func TestManyAtOnce(t *testing.T) {
	r := NewRegistry()
	if err := r.Register(&counting{}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for n := range 16 {
		wg.Go(func() {
			for i := range 200 {
				name := fmt.Sprintf("ns-%d", (n*7+i)%20)
				if ns, err := r.Create(name); err == nil {
					_ = r.Configure(ns, "x") // somebody may have removed it
				}
				_ = r.Remove(name) // or it
				r.List()
			}
		})
	}
	wg.Wait()
	for _, ns := range r.List() {
		if err := r.Remove(ns.Name); err != nil {
			t.Error(err)
		}
	}
}

// counting is a system without anything.
type counting struct{}

func (*counting) Name() string                    { return "counting" }
func (*counting) Create(*Namespace) error         { return nil }
func (*counting) Remove(*Namespace) error         { return nil }
func (*counting) Parse(*Namespace, string) error  { return nil }
func (*counting) Show(*Namespace) (string, error) { return "", nil }
func (*counting) IsBusy(*Namespace) bool          { return false }
