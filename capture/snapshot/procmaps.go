// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/gantry-tools/gantry/capture/binaries"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// mapReader gives the executable mappings of one process after the other.
// The build-id of each file is read once.
type mapReader struct {
	lister *lister
	text   bool // maps are read as text
	access *procroot.Access
	ids    map[binaries.FileKey][]byte
	// reader reads them; timedOut counts the files of which nothing came in time.
	reader   *binaries.IDReader
	timedOut int
	// left is how long processes may still hold up all others.
	left time.Duration
	// root is where the root directory of the process is, "" for the one of
	// its mount namespace.
	root string
	rec  perf.Mmap2
}

const (
	// maxHeldUp is how long the processes whose mappings cannot be read hold up
	// a snapshot, all together, and firstHeldUp the first one: a loaded machine
	// takes some time to read others, too.
	maxHeldUp   = 400 * time.Millisecond
	firstHeldUp = 150 * time.Millisecond
	minHeldUp   = 10 * time.Millisecond
)

func (r *mapReader) init(p *Proc) {
	r.ids = make(map[binaries.FileKey][]byte)
	if r.access = p.Access; r.access == nil {
		r.access = new(procroot.Access)
	}
	r.lister = newLister()
	r.reader = binaries.NewIDReader(r.access)
	r.left = maxHeldUp
	if p.TextMaps {
		r.useText()
	}
}

func (r *mapReader) useText() {
	r.text = true
	r.reader.NoQuery()
}

func (r *mapReader) close() {
	r.lister.query.Close()
	r.reader.Close()
}

func (r *mapReader) method() Method {
	if r.text {
		return ByText
	}
	return ByQuery
}

// each calls fn for the executable mappings of proc, whose mount namespace is
// mnt (0: not known). The record, without the process, is used again. The error
// is procroot.ErrTimeout if the process holds its mappings locked: whoever looks
// at them waits in the kernel, until it lets go.
func (r *mapReader) each(proc procfs.Proc, mnt uint64, fn func(*perf.Mmap2) error) error {
	r.root = ""
	if root, err := proc.RootLink(); err == nil && root != "/" {
		r.root = root
	}
	list, err := r.list(proc)
	if err != nil {
		return err
	}
	for i := range list {
		m := &list[i]
		key := binaries.FileKey{Major: m.DevMajor, Minor: m.DevMinor, Inode: m.Inode, Mnt: mnt,
			Path: r.name(m.Path)}
		r.fill(&key, r.idOf(proc, m.Start, m.End, &key))
		r.rec.Addr, r.rec.Len, r.rec.PgOff = m.Start, m.End-m.Start, m.Offset
		r.rec.Prot, r.rec.Flags = uint32(m.Prot), shareFlags(m.Shared)
		if err := fn(&r.rec); err != nil {
			return err
		}
	}
	return nil
}

// list lists the mappings of proc by a worker, which is abandoned with all that
// it uses if it does not come back.
func (r *mapReader) list(proc procfs.Proc) ([]procfs.Mapping, error) {
	timeout := max(min(firstHeldUp, r.left/2), minHeldUp)
	l, text := r.lister, r.text
	err := r.access.DoWithin(proc, timeout, func(op *procroot.Op) {
		op.OnAbandon(l.query.Close) // at its end, which may be late
		l.list(proc, text)
	})
	if errors.Is(err, procroot.ErrTimeout) {
		if !errors.Is(err, procroot.ErrNotStarted) {
			r.left -= timeout
			r.lister = newLister()
		}
		return nil, err
	}
	if errors.Is(l.err, syscall.ENOTTY) {
		r.useText()
		return r.list(proc)
	}
	return l.mappings, l.err
}

// lister lists the mappings of a process.
type lister struct {
	query    *sys.Procmap
	text     *procfs.MapsScanner
	names    map[string]string // interned
	mappings []procfs.Mapping
	err      error
}

func newLister() *lister {
	return &lister{query: sys.NewProcmap(), text: procfs.NewMapsScanner(), names: make(map[string]string)}
}

func (l *lister) list(proc procfs.Proc, text bool) {
	l.mappings = l.mappings[:0]
	if !text {
		l.err = l.queryAll(proc)
	}
	// ENAMETOOLONG is a path that the kernel does not give in one piece.
	if text || errors.Is(l.err, syscall.ENAMETOOLONG) {
		l.mappings = l.mappings[:0]
		l.err = proc.Maps(l.text, func(m *procfs.Mapping) error {
			if m.Prot&procfs.ProtExec != 0 && m.Path != "[vsyscall]" {
				l.mappings = append(l.mappings, *m)
			}
			return nil
		})
	}
}

func (l *lister) queryAll(proc procfs.Proc) error {
	maps, err := sys.Open(proc.Path("maps"), os.O_RDONLY)
	if err != nil {
		return err
	}
	defer maps.Close()
	const flags = sys.ProcmapExecutable | sys.ProcmapOrNext
	for addr := uint64(0); ; {
		var v sys.VMA
		err := l.query.Query(maps, addr, flags, false, &v)
		if errors.Is(err, syscall.ENOENT) {
			return nil
		}
		if err != nil {
			return err
		}
		l.mappings = append(l.mappings, procfs.Mapping{
			Start: v.Start, End: v.End, Offset: v.Offset, DevMajor: v.DevMajor, DevMinor: v.DevMinor, Inode: v.Inode,
			Prot: procfs.Prot(v.Flags & protFlags), Shared: v.Flags&sys.ProcmapShared != 0, Path: l.intern(v.Name),
		})
		addr = v.End
	}
}

// idOf is the build-id of the file that proc has mapped from start to end; empty
// if it has none or cannot be read.
func (r *mapReader) idOf(proc procfs.Proc, start, end uint64, key *binaries.FileKey) []byte {
	id, known := r.ids[*key]
	if known || key.Inode == 0 {
		return id
	}
	id, err := r.reader.Mapped(proc,
		&perf.Mmap2{Addr: start, Len: end - start, Maj: key.Major, Min: key.Minor, Ino: key.Inode, Filename: key.Path})
	if errors.Is(err, procroot.ErrTimeout) {
		r.timedOut++
	}
	if len(r.ids) >= maxIDs {
		clear(r.ids)
	}
	r.ids[*key] = id
	return id
}

// fill sets what the mappings of one file have in common, in the form with a
// build-id if there is one.
func (r *mapReader) fill(key *binaries.FileKey, id []byte) {
	r.rec = perf.Mmap2{Filename: key.Path, Maj: key.Major, Min: key.Minor, Ino: key.Inode}
	r.rec.Misc = perf.MiscUser
	if len(id) > 0 {
		r.rec.Misc |= perf.MiscMmapBuildID
		r.rec.BuildID = id
	}
}

// name translates a path of /proc/PID/maps to that of the kernel's MMAP2 record: maps has
// paths as the reader sees them, and names that a process gave to its own memory.
func (r *mapReader) name(path string) string {
	switch {
	case path == "" || strings.HasPrefix(path, "[anon:"):
		return "//anon"
	case strings.HasPrefix(path, "[anon_shmem:"):
		return "/dev/zero (deleted)"
	case r.root == "":
		return path
	}
	if below, ok := strings.CutPrefix(path, r.root); ok && strings.HasPrefix(below, "/") {
		return below
	}
	return path
}

// maxNames bounds the interned paths, and maxIDs the files whose build-id is
// remembered: a process can have any number of them, also under one path.
const (
	maxNames = 1 << 16
	maxIDs   = 1 << 16
)

func (l *lister) intern(b []byte) string {
	if s, ok := l.names[string(b)]; ok {
		return s
	}
	if len(l.names) >= maxNames {
		clear(l.names)
	}
	s := string(b)
	l.names[s] = s
	return s
}

// protFlags are the same bits as PROT_*.
const protFlags = sys.ProcmapReadable | sys.ProcmapWritable | sys.ProcmapExecutable

func shareFlags(shared bool) uint32 {
	if shared {
		return syscall.MAP_SHARED
	}
	return syscall.MAP_PRIVATE
}
