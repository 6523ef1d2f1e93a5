// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// IDReader finds the build-id of what an MMAP2 record says was mapped.
//
// The kernel could put the id into the record itself (attr.build_id, Linux
// 5.12). gantry does not ask for it: as of 6.18 the kernel then marks the
// MMAP2 records of other recordings as well, which do not have an id, and perf
// 6.1 aborts with a buffer overflow when it reads them.
//
// Files that a program serves (FUSE) are left alone: the reader would wait for
// that program. For other file systems it waits only so long: see Errands.
type IDReader struct {
	query   *sys.Procmap // nil: the kernel does not have it
	types   *mountTypes
	errands *Errands
	root    *sys.FD // of this process; nil: not opened yet
}

// NewIDReader makes an IDReader, which may share its errands with others; nil
// are its own. The caller closes it.
func NewIDReader(e *Errands) *IDReader {
	if e == nil {
		e = new(Errands)
	}
	return &IDReader{query: sys.NewProcmap(), types: new(mountTypes), errands: e}
}

// Close releases the reader.
func (r *IDReader) Close() {
	r.noQuery()
	r.root.Close()
	r.root = nil
}

// noQuery is for a kernel that does not have it.
func (r *IDReader) noQuery() {
	if r.query != nil {
		r.query.Close()
		r.query = nil
	}
}

// errOther: what was looked at is not what is mapped.
var errOther = errors.New("another file, or none")

// Mapped looks at the mapping in the process that made it. The error is
// ErrMadeUp for a file that is not read, ErrSilent for one whose file system did
// not answer, and else means that the process has ended or has something
// else there by now. The id is empty if the file has none.
func (r *IDReader) Mapped(proc procfs.Proc, m *perf.Mmap2) (id []byte, err error) {
	if r.Served(proc, m) {
		return nil, ErrMadeUp
	}
	return r.read(proc, m)
}

// read is Mapped of a file that no program serves.
func (r *IDReader) read(proc procfs.Proc, m *perf.Mmap2) ([]byte, error) {
	var id []byte
	var err error
	asked, query := *m, r.query
	var taken atomic.Bool // the query, by the errand or from it
	if !r.errands.run(proc, func(x *errand) {
		if taken.Swap(true) {
			return
		}
		// What has the query when nobody waits any more releases it.
		x.release(func() {
			if query != nil {
				query.Close()
			}
		})
		w := &way{r.types, proc, x}
		if err = x.waitsFor(device{asked.Maj, asked.Min}, false); err == nil {
			id, err = w.idOf(query, &asked)
		}
	}) {
		if taken.Swap(true) && query != nil {
			r.query = sys.NewProcmap()
		}
		return nil, ErrSilent
	}
	return id, err
}

// idOf reads the build-id of what the process has mapped.
func (w *way) idOf(query *sys.Procmap, m *perf.Mmap2) ([]byte, error) {
	if query != nil {
		if id, ok := askID(query, w.proc, m); ok {
			return id, nil
		}
	}
	f, err := w.openMapped(m.Addr, m.Addr+m.Len, m.Filename)
	if err == nil {
		defer f.Close()
		if id, ok := idOf(f, m); ok {
			return id, nil
		}
	}
	if errors.Is(err, ErrSilent) || errors.Is(err, ErrMadeUp) {
		return nil, err
	}
	if id, ok := fromMemory(w.proc, m); ok {
		return id, nil
	}
	return nil, errOther
}

// askID asks the kernel for the mapping, which may have been cut since.
func askID(query *sys.Procmap, proc procfs.Proc, m *perf.Mmap2) ([]byte, bool) {
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
// process of the same mount namespace. The errors are those of Mapped.
func (r *IDReader) AtPath(proc procfs.Proc, m *perf.Mmap2) (id []byte, err error) {
	if strings.HasSuffix(m.Filename, deletedSuffix) {
		return nil, errOther
	}
	if r.Served(proc, m) {
		return nil, ErrMadeUp
	}
	asked := *m
	var found []byte
	var failed error
	if !r.errands.run(proc, func(x *errand) {
		var f *os.File
		if f, failed = (&way{r.types, proc, x}).openAtPath(asked.Filename); failed != nil {
			return
		}
		defer f.Close()
		ok := false
		if found, ok = idOf(f, &asked); !ok {
			failed = errOther
		}
	}) {
		return nil, ErrSilent
	}
	return found, failed
}

// OpenMapped opens the regular file that proc has mapped from start to end: by
// map_files, which is for CAP_CHECKPOINT_RESTORE, or else by its path in the
// task's root. What has the path need not be what is mapped: look before use.
// Anything but a regular file is not opened, nor one on a file system that is made
// up. It waits for as long as it takes. The caller closes the file.
func (r *IDReader) OpenMapped(proc procfs.Proc, start, end uint64, path string) (*os.File, error) {
	return (&way{r.types, proc, nil}).openMapped(start, end, path)
}

// OpenInTime is OpenMapped that does not wait long: ErrSilent.
func (r *IDReader) OpenInTime(proc procfs.Proc, start, end uint64, path string) (*os.File, error) {
	var f *os.File
	var err error
	if !r.errands.run(proc, func(x *errand) {
		if f, err = (&way{r.types, proc, x}).openMapped(start, end, path); err == nil {
			x.release(func() { f.Close() })
		}
	}) {
		return nil, ErrSilent
	}
	return f, err
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
