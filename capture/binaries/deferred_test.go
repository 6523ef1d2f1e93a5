// SPDX-License-Identifier: Apache-2.0

//go:build linux

package binaries

import (
	"os"
	"testing"

	"github.com/gantry-tools/gantry/capture/proctable"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
)

// This process is not chosen: its files are not to be copied, until a sample of it
// is recorded all the same.
func TestDeferred(t *testing.T) {
	k := New(&Options{Store: t.TempDir()}, procfs.FS{})
	defer k.Close()
	w := NewMappings(procfs.FS{}, proctable.New(procfs.FS{}, 0), k)
	defer w.Close()
	w.Deferred = NewDeferred(k, func(int32) bool { return false })
	k.hostMnt = 1
	enqueue := func(path string, mnt uint64) bool {
		key := new(binaryKey)
		key.Path = path
		before := len(k.waiting)
		w.enqueue(key, mappedAt{pid: os.Getpid(), mnt: mnt})
		return len(k.waiting) > before
	}
	if enqueue("/of/a/container", 2) || enqueue("/of/the/host (deleted)", 1) {
		t.Error("a file of a process that is not chosen is to be copied")
	}
	code := func() int { return len(k.jit.all) }
	if enqueue(anonMemory, 1); code() != 0 {
		t.Error("generated code of a process that is not chosen is to be kept")
	}
	if !enqueue("/of/the/host", 1) || !enqueue("/of/nobody/knows/whom", 0) {
		t.Error("a file that need not be copied is kept back")
	}
	before := len(k.waiting)
	w.Deferred.Release(int32(os.Getpid()))
	if n := len(k.waiting) - before; n != 2 {
		t.Errorf("%d files are copied once the process has a sample, want 2", n)
	}
	if code() != 1 {
		t.Error("generated code is not kept once the process has a sample")
	}
	if !enqueue("/another (deleted)", 1) {
		t.Error("a file of a process with a sample is not copied")
	}
	// Nobody has the number of a process that does not exist.
	key := binaryKey{}
	key.Path = "/of/one/that/has/ended (deleted)"
	before = len(k.waiting)
	w.enqueue(&key, mappedAt{pid: 1 << 30, mnt: 2})
	if len(k.waiting) != before || w.Deferred.answers[1<<30] {
		t.Error("the file of a process that has ended is to be copied")
	}
	w.Deferred.forget(1 << 30)
	w.Deferred.forget(int32(os.Getpid()))
	if w.Deferred.count != 0 || len(w.Deferred.answers) != 0 {
		t.Errorf("%+v is left", w.Deferred)
	}
}
