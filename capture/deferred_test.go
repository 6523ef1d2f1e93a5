// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"os"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/capture/filter"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
)

// TestReserve takes this process, which is not chosen: its files are not to be
// copied, until a sample of it is recorded all the same.
func TestReserve(t *testing.T) {
	r, err := container.NewResolver(nil)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := filter.NewPlan(nil, r.Table().Host)
	if err != nil {
		t.Fatal(err)
	}
	plan.AddCgroup("/nobody/is/in/this")
	f, err := filter.New(plan, plan.View(r.Table(), time.Now(), true), procfs.FS{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	k := newCollector(&Options{Store: t.TempDir()}, procfs.FS{})
	defer k.close()
	w := newSidebandWalker(nil, procfs.FS{}, nil, k)
	defer w.buildIDs.close()
	w.deferred = newDeferredBinaries(f, k)
	k.hostMnt = 1
	offer := func(path string, mnt uint64) bool {
		key := new(binaryKey)
		key.Path = path
		before := len(k.waiting)
		w.enqueue(key, mappedAt{pid: os.Getpid(), mnt: mnt})
		return len(k.waiting) > before
	}
	if offer("/of/a/container", 2) || offer("/of/the/host (deleted)", 1) {
		t.Error("a file of a process that is not chosen is to be copied")
	}
	code := func() int { return len(k.jit.all) }
	if offer(anonMemory, 1); code() != 0 {
		t.Error("generated code of a process that is not chosen is to be kept")
	}
	if !offer("/of/the/host", 1) || !offer("/of/nobody/knows/whom", 0) {
		t.Error("a file that need not be copied is kept back")
	}
	before := len(k.waiting)
	w.deferred.release(int32(os.Getpid()))
	if n := len(k.waiting) - before; n != 2 {
		t.Errorf("%d files are copied once the process has a sample, want 2", n)
	}
	if code() != 1 {
		t.Error("generated code is not kept once the process has a sample")
	}
	if !offer("/another (deleted)", 1) {
		t.Error("a file of a process with a sample is not copied")
	}
	// Nobody has the number of a process that does not exist.
	key := binaryKey{}
	key.Path = "/of/one/that/has/ended (deleted)"
	before = len(k.waiting)
	w.enqueue(&key, mappedAt{pid: 1 << 30, mnt: 2})
	if len(k.waiting) != before || w.deferred.wanted[1<<30] {
		t.Error("the file of a process that has ended is to be copied")
	}
	w.deferred.forget(1 << 30)
	w.deferred.forget(int32(os.Getpid()))
	if w.deferred.count != 0 || len(w.deferred.wanted) != 0 {
		t.Errorf("%+v is left", w.deferred)
	}
}
