// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"errors"
	"os"
	"testing"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/perf"
)

// An errand that does not come back is given up; what others wait for in vain is
// not waited for again, everything else is. What it brings too late is released.
func TestErrands(t *testing.T) {
	e := &Errands{vain: 10} // with little patience
	answer, released := make(chan bool), make(chan bool)
	for range maxOutOn {
		if e.run(procfs.FS{}.Self(), func(x *errand) {
			x.release(func() { released <- true })
			if err := x.waitsFor("silent", true); err != nil {
				t.Error(err)
			}
			<-answer
		}) {
			t.Error("an errand came back that did not")
		}
	}
	e.vain = 0 // a machine under load may take its time
	var err error
	if !e.run(procfs.FS{}.Self(), func(x *errand) { err = x.waitsFor("silent", true) }) || !errors.Is(err, ErrSilent) {
		t.Errorf("what others wait for: %v", err)
	}
	if !e.run(procfs.FS{}.Self(), func(x *errand) { err = x.waitsFor("other", false) }) || err != nil {
		t.Errorf("something else: %v", err)
	}
	if e.out != maxOutOn {
		t.Errorf("%d are out", e.out)
	}
	for range maxOutOn {
		answer <- true
		<-released
	}
	if e.out != 0 || len(e.on) != 0 {
		t.Errorf("%d are out, waiting for %v", e.out, e.on)
	}
	e.out = maxOut
	if e.run(procfs.FS{}.Self(), func(*errand) { t.Error("one too many") }) {
		t.Error("one too many was sent")
	}
}

// What a cgroup's processes have others wait for in vain does not keep the
// processes of another from being asked about.
func TestErrandsOfACgroup(t *testing.T) {
	root := t.TempDir()
	fsys := procfs.New(root)
	for pid, cgroup := range []string{"0::/a\n", "0::/a\n", "0::/b\n"} {
		dir := fsys.Proc(pid).Path("")
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(dir+"cgroup", []byte(cgroup), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	e := &Errands{vain: 10} // with little patience
	answer, released := make(chan bool), make(chan bool)
	for i := range maxOutOf {
		if e.run(fsys.Proc(0), func(x *errand) {
			x.release(func() { released <- true })
			if err := x.waitsFor(i, true); err != nil {
				t.Error(err)
			}
			<-answer
		}) {
			t.Error("an errand came back that did not")
		}
	}
	e.vain = 0 // a machine under load may take its time
	if e.run(fsys.Proc(1), func(*errand) { t.Error("one too many for its cgroup") }) {
		t.Error("one too many for a cgroup was sent")
	}
	begun := false
	if !e.run(fsys.Proc(2), func(*errand) { begun = true }) || !begun {
		t.Error("another cgroup is not asked about")
	}
	for range maxOutOf {
		answer <- true
		<-released
	}
	if !e.run(fsys.Proc(1), func(*errand) {}) || len(e.of) != 0 {
		t.Errorf("when all are back, %v are out", e.of)
	}
}

// An errand that is not begun takes nothing with it: Go panics at a Procmap that
// is left without being closed.
func TestErrandNotBegun(t *testing.T) {
	reader := NewIDReader(&Errands{out: maxOut})
	defer reader.Close()
	query := reader.query
	if _, err := reader.read(procfs.FS{}.Self(), new(perf.Mmap2)); !errors.Is(err, ErrSilent) {
		t.Errorf("with too many errands out: %v", err)
	}
	if reader.query != query {
		t.Error("the query went with an errand that was not begun")
	}
}
