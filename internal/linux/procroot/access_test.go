// SPDX-License-Identifier: Apache-2.0

//go:build linux

package procroot

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
)

// An operation that does not return is abandoned; what others wait for is not
// waited for again, everything else is. A result that comes too late is released.
func TestAccess(t *testing.T) {
	a := &Access{timeouts: 10} // with the shortest timeouts
	answer, released := make(chan bool), make(chan bool)
	for range maxPerTarget {
		if err := a.Do(procfs.FS{}.Self(), func(op *Op) {
			op.OnAbandon(func() { released <- true })
			if err := op.WaitFor("hung", true); err != nil {
				t.Error(err)
			}
			<-answer
		}); !errors.Is(err, ErrTimeout) || errors.Is(err, ErrNotStarted) {
			t.Errorf("an operation that hangs: %v", err)
		}
	}
	a.timeouts = 0 // a machine under load may take its time
	var err error
	if e := a.Do(procfs.FS{}.Self(), func(op *Op) { err = op.WaitFor("hung", true) }); e != nil || !errors.Is(err, ErrTimeout) {
		t.Errorf("what others wait for: %v, %v", e, err)
	}
	if e := a.Do(procfs.FS{}.Self(), func(op *Op) { err = op.WaitFor("other", false) }); e != nil || err != nil {
		t.Errorf("something else: %v, %v", e, err)
	}
	if a.abandoned != maxPerTarget {
		t.Errorf("%d are abandoned", a.abandoned)
	}
	for range maxPerTarget {
		answer <- true
		<-released
	}
	if a.abandoned != 0 || len(a.perTarget) != 0 {
		t.Errorf("%d are abandoned, waiting for %v", a.abandoned, a.perTarget)
	}
	a.abandoned = maxAbandoned
	if err := a.Do(procfs.FS{}.Self(), func(*Op) { t.Error("one too many") }); !errors.Is(err, ErrNotStarted) || !errors.Is(err, ErrTimeout) {
		t.Errorf("one too many: %v", err)
	}
}

// The files of one cgroup's processes that hang do not keep the files of others
// from being looked at.
func TestQuotaPerCgroup(t *testing.T) {
	root := t.TempDir()
	fsys := procfs.New(root)
	for pid, cgroup := range []string{"0::/a\n", "0::/a\n", "0::/b\n"} {
		dir := fsys.Proc(pid).Path("")
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(dir+"cgroup", []byte(cgroup), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	a := &Access{timeouts: 10} // with the shortest timeouts
	answer, released := make(chan bool), make(chan bool)
	for i := range maxPerCgroup {
		if err := a.Do(fsys.Proc(0), func(op *Op) {
			op.OnAbandon(func() { released <- true })
			if err := op.WaitFor(i, true); err != nil {
				t.Error(err)
			}
			<-answer
		}); !errors.Is(err, ErrTimeout) {
			t.Errorf("an operation that hangs: %v", err)
		}
	}
	a.timeouts = 0 // a machine under load may take its time
	if err := a.Do(fsys.Proc(1), func(*Op) { t.Error("one too many for its cgroup") }); !errors.Is(err, ErrNotStarted) {
		t.Errorf("one too many for a cgroup: %v", err)
	}
	begun := false
	if err := a.Do(fsys.Proc(2), func(*Op) { begun = true }); err != nil || !begun {
		t.Errorf("another cgroup: %v", err)
	}
	for range maxPerCgroup {
		answer <- true
		<-released
	}
	if err := a.Do(fsys.Proc(1), func(*Op) {}); err != nil || len(a.perCgroup) != 0 {
		t.Errorf("when all have returned: %v, %v", err, a.perCgroup)
	}
}

// Copying has a deadline of its own, which can be extended, and is waited for
// once its result is published.
func TestDoWithin(t *testing.T) {
	a := new(Access)
	self := procfs.FS{}.Self()
	answer := make(chan bool)
	late := make(chan bool, 1)
	if err := a.DoWithin(self, time.Millisecond, func(op *Op) {
		<-answer
		late <- op.Commit()
	}); !errors.Is(err, ErrTimeout) {
		t.Errorf("an operation that hangs: %v", err)
	}
	answer <- true
	if <-late {
		t.Error("an abandoned operation may publish its result")
	}
	if a.timeouts != 0 {
		t.Error("the timeout of others became shorter")
	}
	extended := make(chan bool)
	if err := a.DoWithin(self, time.Hour, func(op *Op) {
		op.Extend(time.Hour)
		close(extended)
	}); err != nil {
		t.Error(err)
	}
	<-extended
	if err := a.DoWithin(self, 10*time.Millisecond, func(op *Op) {
		if op.Commit() {
			<-time.After(30 * time.Millisecond) // beyond the deadline
		}
	}); err != nil && !errors.Is(err, ErrTimeout) {
		t.Error(err)
	}
}
