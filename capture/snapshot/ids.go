// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"os"
	"strings"
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
// that program.
type IDReader struct {
	query *sys.Procmap // nil: the kernel does not have it
	types mountTypes
}

// NewIDReader makes an IDReader. The caller closes it.
func NewIDReader() *IDReader { return &IDReader{query: sys.NewProcmap()} }

// Close releases the reader.
func (r *IDReader) Close() {
	if r.query != nil {
		r.query.Close()
		r.query = nil
	}
}

// Mapped looks at the mapping in the process that made it. It is not ok if the
// process has ended or has something else there by now. The id is empty if the
// file has none.
func (r *IDReader) Mapped(proc procfs.Proc, m *perf.Mmap2) (id []byte, ok bool) {
	if r.types.served(proc, device{m.Maj, m.Min}, m.Filename) {
		return nil, false
	}
	return r.read(proc, m)
}

// read is Mapped of a file that no program serves.
func (r *IDReader) read(proc procfs.Proc, m *perf.Mmap2) (id []byte, ok bool) {
	if r.query != nil {
		if id, ok := r.ask(proc, m); ok {
			return id, true
		}
	}
	f, err := OpenMapped(proc, m.Addr, m.Addr+m.Len, m.Filename)
	if err != nil {
		return fromMemory(proc, m)
	}
	defer f.Close()
	if id, ok := idOf(f, m); ok {
		return id, true
	}
	return fromMemory(proc, m)
}

// ask asks the kernel for the mapping, which may have been cut since.
func (r *IDReader) ask(proc procfs.Proc, m *perf.Mmap2) ([]byte, bool) {
	maps, err := sys.Open(proc.Path("maps"), os.O_RDONLY)
	if err != nil {
		return nil, false
	}
	defer maps.Close()
	var v sys.VMA
	err = r.query.Query(maps, m.Addr, sys.ProcmapExecutable, true, &v)
	if err != nil || v.Inode != m.Ino || v.DevMajor != m.Maj || v.DevMinor != m.Min {
		return nil, false
	}
	return append([]byte(nil), v.BuildID...), true
}

// AtPath looks at the file that has the mapping's path in the root of proc, a
// process of the same mount namespace. It is not ok if that is another file.
func (r *IDReader) AtPath(proc procfs.Proc, m *perf.Mmap2) (id []byte, ok bool) {
	if strings.HasSuffix(m.Filename, " (deleted)") || r.types.served(proc, device{m.Maj, m.Min}, m.Filename) {
		return nil, false
	}
	f, err := openAtPath(proc, m.Filename)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	return idOf(f, m)
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
