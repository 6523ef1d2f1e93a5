// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"errors"
	"os"
	"strings"
	"syscall"

	"github.com/gantry-tools/gantry/capture/binaries"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// mapReader gives the executable mappings of one process after the other.
// The build-id of each file is read once.
type mapReader struct {
	query *sys.Procmap // nil: maps are read as text
	text  *procfs.MapsScanner
	ids   map[binaries.FileKey][]byte
	names map[string]string // interned
	// reader reads them; silent counts the files of which nothing came in time.
	reader   *binaries.IDReader
	timedOut int
	// root is where the root directory of the process is, "" for the one of
	// its mount namespace.
	root string
	rec  perf.Mmap2
}

func (r *mapReader) init(p *Proc) {
	r.ids, r.names = make(map[binaries.FileKey][]byte), make(map[string]string)
	r.text = procfs.NewMapsScanner()
	r.reader = binaries.NewIDReader(p.Access)
	if p.TextMaps {
		r.reader.NoQuery()
	} else {
		r.query = sys.NewProcmap()
	}
}

func (r *mapReader) close() {
	if r.query != nil {
		r.query.Close()
	}
	r.reader.Close()
}

func (r *mapReader) method() Method {
	if r.query == nil {
		return ByText
	}
	return ByQuery
}

// each calls fn for the executable mappings of proc, whose mount namespace is
// mnt (0: not known). The record, without the process, is used again.
func (r *mapReader) each(proc procfs.Proc, mnt uint64, fn func(*perf.Mmap2) error) error {
	r.root = ""
	if root, err := proc.RootLink(); err == nil && root != "/" {
		r.root = root
	}
	if r.query != nil {
		err := r.eachQuery(proc, mnt, fn)
		if errors.Is(err, syscall.ENAMETOOLONG) {
			// A path that the kernel does not give in one piece. What was
			// told already is told again, which harms nothing.
			return r.eachLine(proc, mnt, fn)
		}
		if !errors.Is(err, syscall.ENOTTY) {
			return err
		}
		r.query.Close()
		r.query = nil
		r.reader.NoQuery()
	}
	return r.eachLine(proc, mnt, fn)
}

func (r *mapReader) eachQuery(proc procfs.Proc, mnt uint64, fn func(*perf.Mmap2) error) error {
	maps, err := sys.Open(proc.Path("maps"), os.O_RDONLY)
	if err != nil {
		return err
	}
	defer maps.Close()
	const flags = sys.ProcmapExecutable | sys.ProcmapOrNext
	for addr := uint64(0); ; addr = r.rec.Addr + r.rec.Len {
		var v sys.VMA
		err := r.query.Query(maps, addr, flags, false, &v)
		if errors.Is(err, syscall.ENOENT) {
			return nil
		}
		if err != nil {
			return err
		}
		key := binaries.FileKey{Major: v.DevMajor, Minor: v.DevMinor, Inode: v.Inode, Mnt: mnt,
			Path: r.name(r.intern(v.Name))}
		r.fill(&key, r.idOf(proc, v.Start, v.End, &key))
		r.rec.Addr, r.rec.Len, r.rec.PgOff = v.Start, v.End-v.Start, v.Offset
		r.rec.Prot, r.rec.Flags = protOf(v.Flags), shareFlags(v.Flags&sys.ProcmapShared != 0)
		if err := fn(&r.rec); err != nil {
			return err
		}
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

func (r *mapReader) eachLine(proc procfs.Proc, mnt uint64, fn func(*perf.Mmap2) error) error {
	return proc.Maps(r.text, func(m *procfs.Mapping) error {
		if m.Prot&procfs.ProtExec == 0 || m.Path == "[vsyscall]" {
			return nil
		}
		key := binaries.FileKey{Major: m.DevMajor, Minor: m.DevMinor, Inode: m.Inode, Mnt: mnt, Path: r.name(m.Path)}
		r.fill(&key, r.idOf(proc, m.Start, m.End, &key))
		r.rec.Addr, r.rec.Len, r.rec.PgOff = m.Start, m.End-m.Start, m.Offset
		r.rec.Prot, r.rec.Flags = uint32(m.Prot), shareFlags(m.Shared)
		return fn(&r.rec)
	})
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

func (r *mapReader) intern(b []byte) string {
	if s, ok := r.names[string(b)]; ok {
		return s
	}
	if len(r.names) >= maxNames {
		clear(r.names)
	}
	s := string(b)
	r.names[s] = s
	return s
}

func protOf(f sys.ProcmapFlags) uint32 {
	return uint32(f & (sys.ProcmapReadable | sys.ProcmapWritable | sys.ProcmapExecutable))
}

func shareFlags(shared bool) uint32 {
	if shared {
		return syscall.MAP_SHARED
	}
	return syscall.MAP_PRIVATE
}
