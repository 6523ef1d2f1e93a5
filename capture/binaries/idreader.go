// SPDX-License-Identifier: Apache-2.0

//go:build linux

package binaries

import (
	"errors"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// IDReader finds the build-id of the file that an MMAP2 record says was mapped.
//
// The kernel could put the id into the record itself (attr.build_id, Linux
// 5.12). gantry does not ask for it: as of 6.18 the kernel then marks the
// MMAP2 records of other recordings as well, which do not have an id, and perf
// 6.1 aborts with a buffer overflow when it reads them.
//
// Files that a program serves (FUSE) are left alone: the reader would wait for
// that program. For other file systems it waits for a bounded time.
type IDReader struct {
	query  *sys.Procmap // nil: the kernel does not have it
	files  *procroot.Files
	access *procroot.Access
	root   *sys.FD // of this process; nil: not opened yet
}

// NewIDReader makes an IDReader, which may share its Access with others; nil is
// one of its own. The caller closes it.
func NewIDReader(a *procroot.Access) *IDReader {
	if a == nil {
		a = new(procroot.Access)
	}
	return &IDReader{query: sys.NewProcmap(), files: new(procroot.Files), access: a}
}

// Access returns the Access of the reader, to be shared.
func (r *IDReader) Access() *procroot.Access { return r.access }

// Close releases the reader.
func (r *IDReader) Close() {
	r.NoQuery()
	r.root.Close()
	r.root = nil
}

// NoQuery makes the reader do without PROCMAP_QUERY.
func (r *IDReader) NoQuery() {
	if r.query != nil {
		r.query.Close()
		r.query = nil
	}
}

// errOther: the file at the path is not the one that is mapped.
var errOther = errors.New("another file, or none")

// OnFUSE reports whether a program serves the file system of the file that proc
// has mapped. Such a file is not looked at.
func (r *IDReader) OnFUSE(proc procfs.Proc, m *perf.Mmap2) bool {
	return r.files.OnFUSE(proc, m.Maj, m.Min, m.Filename)
}

// Mapped looks at the mapping in the process that made it. The error is
// procroot.ErrPseudoFile for a file that is not read, procroot.ErrTimeout for one
// whose file system did not answer, and else means that the process has ended or
// has something else there by now. The id is empty if the file has none.
func (r *IDReader) Mapped(proc procfs.Proc, m *perf.Mmap2) (id []byte, err error) {
	if r.OnFUSE(proc, m) {
		return nil, procroot.ErrPseudoFile
	}
	return r.MappedNotFUSE(proc, m)
}

// MappedNotFUSE is Mapped for a file that is known not to be on FUSE.
func (r *IDReader) MappedNotFUSE(proc procfs.Proc, m *perf.Mmap2) ([]byte, error) {
	var id []byte
	var err error
	asked, query := *m, r.query
	var taken atomic.Bool // the query, by the operation or from it
	if e := r.access.Do(proc, func(op *procroot.Op) {
		if taken.Swap(true) {
			return
		}
		// An abandoned operation still uses the query, and releases it at its end.
		op.OnAbandon(func() {
			if query != nil {
				query.Close()
			}
		})
		root := r.files.Root(proc, op)
		if err = root.WaitForDevice(asked.Maj, asked.Min); err == nil {
			id, err = readID(root, proc, query, &asked)
		}
	}); e != nil {
		if taken.Swap(true) && query != nil {
			r.query = sys.NewProcmap()
		}
		return nil, e
	}
	return id, err
}

// readID reads the build-id of what the process has mapped.
func readID(root *procroot.Root, proc procfs.Proc, query *sys.Procmap, m *perf.Mmap2) ([]byte, error) {
	if query != nil {
		if id, ok := queryID(query, proc, m); ok {
			return id, nil
		}
	}
	f, err := root.OpenMapped(m.Addr, m.Addr+m.Len, m.Filename)
	if err == nil {
		defer f.Close()
		if id, ok := idOf(f, m); ok {
			return id, nil
		}
	}
	if errors.Is(err, procroot.ErrTimeout) || errors.Is(err, procroot.ErrPseudoFile) {
		return nil, err
	}
	if id, ok := fromMemory(proc, m); ok {
		return id, nil
	}
	return nil, errOther
}

// queryID asks the kernel for the mapping, which may have been cut since.
func queryID(query *sys.Procmap, proc procfs.Proc, m *perf.Mmap2) ([]byte, bool) {
	maps, err := sys.Open(proc.Path("maps"), os.O_RDONLY)
	if err != nil {
		return nil, false
	}
	defer maps.Close()
	var v sys.VMA
	err = query.Query(maps, m.Addr, sys.ProcmapExecutable, true, &v)
	if err != nil || v.Inode != m.Ino || v.DevMajor != m.Maj || v.DevMinor != m.Min {
		return nil, false
	}
	return append([]byte(nil), v.BuildID...), true
}

// AtPath looks at the file that has the mapping's path in the root of proc, a
// process of the same mount namespace. It must not have changed after a time, in
// nanoseconds of the wall clock. The errors are those of Mapped.
func (r *IDReader) AtPath(proc procfs.Proc, m *perf.Mmap2, before int64) (id []byte, err error) {
	if strings.HasSuffix(m.Filename, deletedSuffix) {
		return nil, errOther
	}
	if r.OnFUSE(proc, m) {
		return nil, procroot.ErrPseudoFile
	}
	asked := *m
	var found []byte
	var failed error
	if err := r.access.Do(proc, func(op *procroot.Op) {
		var f *os.File
		if f, failed = r.files.Root(proc, op).Open(asked.Filename); failed != nil {
			return
		}
		defer f.Close()
		ok := false
		if found, ok = idOf(f, &asked); !ok || changedAt(f) > before {
			found, failed = nil, errOther
		}
	}); err != nil {
		return nil, err
	}
	return found, failed
}

// OpenMapped opens the regular file that proc has mapped from start to end, see
// procroot.Root.OpenMapped, and waits for a bounded time: procroot.ErrTimeout.
func (r *IDReader) OpenMapped(proc procfs.Proc, start, end uint64, path string) (*os.File, error) {
	var f *os.File
	var err error
	if e := r.access.Do(proc, func(op *procroot.Op) {
		if f, err = r.files.Root(proc, op).OpenMapped(start, end, path); err == nil {
			op.OnAbandon(func() { f.Close() })
		}
	}); e != nil {
		return nil, e
	}
	return f, err
}

// changedAt is when a file was changed last, in nanoseconds of the wall clock.
func changedAt(f *os.File) int64 {
	info, err := f.Stat()
	if err != nil {
		return math.MaxInt64
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return math.MaxInt64
	}
	return st.Ctim.Nano()
}

// idOf reads the build-id of f if it is the file that m maps.
func idOf(f *os.File, m *perf.Mmap2) ([]byte, bool) {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Ino != m.Ino {
		return nil, false
	}
	id, err := buildid.FromFile(f, info.Size())
	if err != nil || id.Len() > maxID {
		return nil, true
	}
	return id.Bytes(), true
}

// maxID is the largest build-id that an MMAP2 record has room for.
const maxID = 20
