// SPDX-License-Identifier: Apache-2.0

//go:build linux

package filter

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// names are the namespaces in the order of Namespaces.
var names = [NumNS]string{"net", "uts", "ipc", "pid", "user", "mnt", "cgroup", "time"}

// own is the namespaces of this process.
func own(t *testing.T) (ns Namespaces) {
	t.Helper()
	for i, name := range names {
		ino, err := procfs.FS{}.Self().Namespace(name)
		if err != nil {
			t.Fatal(err)
		}
		ns[i] = uint32(ino)
	}
	return ns
}

// ownCgroup is the id of the cgroup that this process is in, as samples have it.
func ownCgroup(t *testing.T) uint64 {
	t.Helper()
	trees, err := procfs.FS{}.CgroupTrees()
	if err != nil {
		t.Fatal(err)
	}
	list, err := procfs.FS{}.Self().Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	tree := trees.Perf()
	if tree == nil || tree.Of(list) == nil {
		t.Fatal("no hierarchy of cgroups")
	}
	id, err := tree.ID(tree.Of(list).Path)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// loaded is a filter, set on an event that samples each page fault of this
// thread.
type loaded struct {
	*Programs
	before Counts
}

func load(t *testing.T, c *Config) *loaded {
	t.Helper()
	p, err := Load(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	a := perf.Attr{Type: perf.TypeSoftware, Config: perf.SWPageFaults, SampleCount: 1}
	ev, err := sys.PerfEventOpen(a.Append(nil, perf.LittleEndian), 0, -1, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ev.Close() })
	if err := p.Attach(ev, false); err != nil {
		t.Fatal(err)
	}
	return &loaded{Programs: p}
}

const pages = 50

// verdict makes page faults and tells what became of them.
func (l *loaded) verdict(t *testing.T) string {
	t.Helper()
	l.since(t)
	mem, err := syscall.Mmap(-1, 0, pages*os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(mem)
	for i := range pages {
		mem[i*os.Getpagesize()] = 1
	}
	n := l.since(t)
	var all []string
	for _, v := range []struct {
		name string
		n    uint64
	}{{"kept", n.Kept}, {"undecided", n.Undecided}, {"dropped", n.Dropped}} {
		if v.n >= pages {
			all = append(all, v.name)
		} else if v.n > 0 {
			all = append(all, strconv.FormatUint(v.n, 10)+" "+v.name)
		}
	}
	return strings.Join(all, " and ")
}

// since is what was counted since the last call.
func (l *loaded) since(t *testing.T) (n Counts) {
	t.Helper()
	list, probes, err := l.Counts()
	if err != nil {
		t.Fatal(err)
	}
	var sum Counts
	for _, c := range list {
		sum.Kept += c.Kept
		sum.Undecided += c.Undecided
		sum.Dropped += c.Dropped
	}
	for _, c := range probes {
		if c != (Counts{}) {
			t.Errorf("counted for probes: %+v", c)
		}
	}
	n = Counts{sum.Kept - l.before.Kept, sum.Undecided - l.before.Undecided, sum.Dropped - l.before.Dropped}
	l.before = sum
	return n
}

const (
	all = 1<<NumNS - 1
	r1  = FirstRule
	r2  = FirstRule << 1
)

// other is a host that has none of these namespaces.
func other() (ns Namespaces) {
	for i := range ns {
		ns[i] = 1
	}
	return ns
}

// Every kind of namespace is read, and all of a mask must differ.
func TestNamespaces(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.BTF, testutil.Kernel("5.12"), testutil.CgroupV2)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ns, cgroup := own(t), ownCgroup(t)
	for odd := range 2 {
		c := &Config{Host: other(), Cgroups: 4}
		for n := range NumNS {
			if n%2 == odd {
				c.Host[n] = ns[n]
			}
			c.Masks = append(c.Masks, Mask{Set: 1 << n, Any: FirstRule << n})
			c.Masks = append(c.Masks, Mask{Set: 1<<n | 1<<((n+1)%NumNS), Any: FirstRule << (NumNS + n)})
			c.Masks = append(c.Masks, Mask{Set: 1<<n | 1<<((n+2)%NumNS), Any: FirstRule << (2*NumNS + n)})
		}
		l := load(t, c)
		for n := range NumNS {
			differs := map[bool]string{true: "kept", false: "dropped"}[n%2 != odd]
			for i, want := range []string{differs, "dropped", differs} {
				if err := l.SetCgroup(cgroup, FirstRule<<(i*NumNS+n)); err != nil {
					t.Fatal(err)
				}
				if got := l.verdict(t); got != want {
					t.Errorf("%s with %d others: %s, want %s", names[n], min(i, 1), got, want)
				}
			}
		}
	}
}

func TestIdentities(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.BTF, testutil.Kernel("5.12"))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	id := Identity{Mask: all, NS: own(t)}
	l := load(t, &Config{Host: other(), Masks: []Mask{{Set: all, ByIdentity: true}}, Identities: 2})
	want := func(what string) {
		t.Helper()
		if got := l.verdict(t); got != what {
			t.Errorf("%s, want %s", got, what)
		}
	}
	set := func(rules Rules) {
		t.Helper()
		if err := l.SetIdentity(&id, rules); err != nil {
			t.Fatal(err)
		}
	}
	want("dropped")
	set(ByNamespaces)
	want("kept")
	set(0)
	want("dropped")
	if err := errors.Join(l.ForgetIdentity(&id), l.ForgetIdentity(&id)); err != nil {
		t.Error(err)
	}
	// What is not listed of an open mask is undecided.
	l = load(t, &Config{Host: other(), Masks: []Mask{{Set: all, ByIdentity: true, Open: ByNamespaces}}, Identities: 2})
	want("undecided")
	set(0)
	want("dropped")
	if err := l.ForgetIdentity(&id); err != nil {
		t.Error(err)
	}
	want("undecided")
	full := id
	for i := range uint32(8) {
		full.NS[0] = i
		if err := l.SetIdentity(&full, 0); err != nil {
			if !errors.Is(err, syscall.E2BIG) {
				t.Errorf("a map that is full: %v", err)
			}
			return
		}
	}
	t.Error("a map of two takes eight")
}

func TestCgroups(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.BTF, testutil.Kernel("5.12"), testutil.CgroupV2)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cgroup := ownCgroup(t)
	any := Mask{Set: all, Any: r1}
	closed := Mask{Set: 1, Any: 0}
	open := Mask{Set: all, Open: r2, ByIdentity: true}
	for name, tt := range map[string]struct {
		c    Config
		said map[Rules]string // by what the cgroup satisfies
		none string           // if nothing is known of it
	}{
		"by cgroup":                  {Config{ByCgroup: true}, map[Rules]string{ByCgroup: "kept", 0: "dropped", r1: "dropped"}, "undecided"},
		"both":                       {Config{Masks: []Mask{any}}, map[Rules]string{ByCgroup: "dropped", r1: "kept", r2: "dropped"}, "undecided"},
		"either":                     {Config{ByCgroup: true, Masks: []Mask{any}}, map[Rules]string{ByCgroup: "kept", r1: "kept", r2: "dropped"}, "undecided"},
		"neither":                    {Config{Masks: []Mask{closed}}, map[Rules]string{r1: "dropped"}, "dropped"},
		"open":                       {Config{Masks: []Mask{open}}, map[Rules]string{r1: "dropped", r2: "undecided", r1 | r2: "undecided"}, "undecided"},
		"none of it":                 {Config{}, map[Rules]string{ByCgroup | r1: "dropped"}, "dropped"},
		"whatever the cgroup":        {Config{Masks: []Mask{{Set: all, Any: ByNamespaces}}}, map[Rules]string{0: "kept"}, "kept"},
		"the last rule":              {Config{Masks: []Mask{{Set: all, Any: LastRule}}}, map[Rules]string{LastRule: "kept", LastRule >> 1: "dropped"}, "undecided"},
		"a mask that passes all":     {Config{Masks: []Mask{{Set: 0, Any: r1}}}, map[Rules]string{r1: "kept", r2: "dropped"}, "undecided"},
		"many masks, of which a few": {Config{Masks: append(make([]Mask, MaxMasks-1), any)}, map[Rules]string{r1: "kept", r2: "dropped"}, "undecided"},
	} {
		tt.c.Host, tt.c.Cgroups, tt.c.Identities = other(), 4, 4
		l := load(t, &tt.c)
		if got := l.verdict(t); got != tt.none {
			t.Errorf("%s: cgroup unknown: %s, want %s", name, got, tt.none)
		}
		for rules, want := range tt.said {
			if err := l.SetCgroup(cgroup, rules); err != nil {
				t.Fatal(err)
			}
			if got := l.verdict(t); got != want {
				t.Errorf("%s: cgroup %#x: %s, want %s", name, rules, got, want)
			}
		}
		if err := errors.Join(l.ForgetCgroup(cgroup), l.ForgetCgroup(cgroup)); err != nil {
			t.Error(err)
		}
		if got := l.verdict(t); got != tt.none {
			t.Errorf("%s: cgroup forgotten: %s, want %s", name, got, tt.none)
		}
	}
	if _, err := Load(&Config{Masks: make([]Mask, MaxMasks+1)}); !errors.Is(err, syscall.E2BIG) {
		t.Errorf("too many masks: %v", err)
	}
}
