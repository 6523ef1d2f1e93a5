// SPDX-License-Identifier: Apache-2.0

//go:build linux

package binaries

import (
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
)

// copyJob copies a binary to the store, or compares it with the file that another mount
// namespace has under the same build-id and path.
type copyJob struct {
	b       *binary
	at      mappedAt
	compare bool
	file    *os.File // b's, when its turn has come
}

// duplicates are files with the build-id of another file. The linker writes the build-id
// that it is given, and programs that differ in their symbols' names only have the
// same. Duplicates are kept by their content.
type duplicates struct {
	// compared are the locations that were compared, or wait to be.
	compared map[location]bool
	// verified are the files whose content is that in the store.
	verified map[verifiedFile]bool
	list     buildid.MappedFiles
	// bytes is how much was compared.
	bytes int64
	// Everything is guarded by the collector's mutex.
}

// location is a binary in a mount namespace.
type location struct {
	b   *binary
	mnt uint64
}

// verifiedFile is a file with a build-id.
type verifiedFile struct {
	id buildid.ID
	fileStamp
}

// fileStamp tells files apart without reading them. The device is not in it: each
// overlay has its own, over one and the same file. The time of the last change
// is set by the kernel alone.
type fileStamp struct {
	inode        uint64
	size         int64
	mtime, ctime syscall.Timespec
}

const (
	// maxAsked bounds the places, and the files, that are remembered.
	maxAsked = 1 << 16
	// maxCompared bounds the bytes that a recording compares.
	maxCompared = 1 << 30
)

func stampOf(info fs.FileInfo) fileStamp {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileStamp{}
	}
	return fileStamp{st.Ino, st.Size, st.Mtim, st.Ctim}
}

// same takes note of a file that is what the store has.
func (t *duplicates) same(id buildid.ID, s fileStamp) {
	if t.verified == nil || len(t.verified) >= maxAsked {
		t.verified = make(map[verifiedFile]bool)
	}
	t.verified[verifiedFile{id, s}] = true
}

// needsCompare reports whether a binary that is known from another mount namespace is to
// be compared in this one. k.mu is held.
func (k *Collector) needsCompare(b *binary, mnt uint64) bool {
	if k.store == nil || b.id.IsZero() || mnt == 0 || mnt == k.hostMnt || mnt == b.mnt {
		return false
	}
	t, p := &k.duplicates, location{b, mnt}
	if t.compared[p] {
		return false
	}
	if t.compared == nil || len(t.compared) >= maxAsked {
		t.compared = make(map[location]bool)
	}
	t.compared[p] = true
	return true
}

// compare looks whether the file that is mapped at a place is the one that the
// store has for its build-id, and keeps it by its content if not. What is gone
// cannot be compared any more.
func (k *Collector) compare(op *procroot.Op, b *binary, at mappedAt) {
	t := &k.duplicates
	file, err := k.files.Root(k.fs.Proc(at.pid), op).OpenMapped(at.start, at.end,
		strings.TrimSuffix(b.key.Path, " (deleted)"))
	if err != nil {
		return
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() > min(k.max, k.left.Load()) {
		return
	}
	op.Extend(copyTime(info.Size()))
	if buildid.Check(file, info.Size(), b.id) != nil {
		return // another file by now
	}
	s := stampOf(info)
	if !k.mayCompare(verifiedFile{b.id, s}, info.Size()) {
		return
	}
	same, err := k.store.Same(b.id, file, info.Size())
	if err != nil {
		return // the store has nothing to be taken for it
	}
	if same {
		k.mu.Lock()
		t.same(b.id, s)
		k.mu.Unlock()
		return
	}
	id, err := k.store.Add(file, buildid.Source{Path: b.key.Path, Content: true, Limit: info.Size()})
	if err != nil {
		return
	}
	k.left.Add(-info.Size())
	if !op.Commit() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	t.list = append(t.list, buildid.Mapped{ID: id, Path: b.key.Path, BuildID: b.id, MountNS: at.mnt})
}

// mayCompare queues a comparison, if it is needed and there is room for it.
func (k *Collector) mayCompare(file verifiedFile, size int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := &k.duplicates
	if t.verified[file] || t.bytes+size > maxCompared {
		return false
	}
	t.bytes += size
	return true
}
