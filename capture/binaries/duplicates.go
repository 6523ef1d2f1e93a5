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

// copyJob copies a binary to the store, or looks which content another mount namespace
// has under the same build-id and path.
type copyJob struct {
	b       *binary
	at      mappedAt
	compare bool
	file    *os.File // opened as soon as it was seen; nil: it has to be looked for
}

// duplicates are the contents of files with a build-id, by where they were mapped. The
// linker writes the build-id that it is given, so that files with one build-id may
// differ.
type duplicates struct {
	// compared are the locations that were looked at, or wait to be.
	compared map[location]bool
	// verified are the contents of files that were read.
	verified map[verifiedFile]buildid.ID
	list     buildid.MappedFiles
	// Everything is guarded by the collector's mutex.
}

// location is a binary in a mount namespace.
type location struct {
	b          *binary
	mnt        uint64
	generation uint32
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

// maxAsked bounds the locations, and the files, that are remembered.
const maxAsked = 1 << 16

func stampOf(info fs.FileInfo) fileStamp {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileStamp{}
	}
	return fileStamp{st.Ino, st.Size, st.Mtim, st.Ctim}
}

// verified takes note of the content of a file.
func (k *Collector) verified(file verifiedFile, content buildid.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := &k.duplicates
	if t.verified == nil || len(t.verified) >= maxAsked {
		t.verified = make(map[verifiedFile]buildid.ID)
	}
	t.verified[file] = content
}

// mappedAs takes note of the content that a binary with a build-id has in a mount
// namespace.
func (k *Collector) mappedAs(b *binary, at mappedAt, content buildid.ID) {
	if b.id.IsZero() || at.mnt == 0 || at.mnt == k.hostMnt && !at.hostRoot {
		return // a user can have another root there, with files at the host's paths
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.duplicates.list = append(k.duplicates.list,
		buildid.Mapped{ID: content, Path: b.key.Path, BuildID: b.id, MountNS: at.mnt})
}

// needsCompare reports whether a binary that is known from another mount namespace is to
// be looked at in this one. k.mu is held.
func (k *Collector) needsCompare(b *binary, at mappedAt) bool {
	if k.store == nil || b.id.IsZero() || at.mnt == 0 || at.mnt == k.hostMnt ||
		at.mnt == b.mnt && at.generation == b.generation {
		return false
	}
	t, p := &k.duplicates, location{b, at.mnt, at.generation}
	if t.compared[p] {
		return false
	}
	if t.compared == nil || len(t.compared) >= maxAsked {
		t.compared = make(map[location]bool)
	}
	t.compared[p] = true
	return true
}

// compare keeps the file that is mapped at a place by its content. What is gone
// cannot be looked at any more.
func (k *Collector) compare(op *procroot.Op, t copyJob) {
	file := t.file
	if file == nil {
		var err error
		file, err = k.files.Root(k.fs.Proc(t.at.pid), op).OpenMapped(t.at.start, t.at.end,
			strings.TrimSuffix(t.b.key.Path, " (deleted)"))
		if err != nil {
			return
		}
		defer file.Close()
	}
	info, err := file.Stat()
	if err != nil {
		return
	}
	op.Extend(copyTime(info.Size()))
	_, _ = k.copy(file, info, t.b, t.at) // what is not kept has no names
}
