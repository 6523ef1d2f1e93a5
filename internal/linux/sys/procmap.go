// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"bytes"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioctlProcmapQuery is PROCMAP_QUERY of linux/fs.h: _IOWR('f', 17, 104 bytes).
const ioctlProcmapQuery = 0xc0686611

// ProcmapFlags choose the mapping that a ProcmapQuery finds
// (enum procmap_query_flags).
type ProcmapFlags uint64

// Flags of a query. The first four demand a property, and are those of a VMA.
const (
	ProcmapReadable   ProcmapFlags = 0x01
	ProcmapWritable   ProcmapFlags = 0x02
	ProcmapExecutable ProcmapFlags = 0x04
	ProcmapShared     ProcmapFlags = 0x08
	// ProcmapOrNext finds the next mapping if none covers the address.
	ProcmapOrNext     ProcmapFlags = 0x10
	ProcmapFileBacked ProcmapFlags = 0x20
)

// procmapQuery is struct procmap_query of linux/fs.h.
type procmapQuery struct {
	size, flags, addr       uint64
	start, end, vmaFlags    uint64
	pageSize, offset, inode uint64
	devMajor, devMinor      uint32
	nameSize, buildIDSize   uint32
	nameAddr, buildIDAddr   uint64
}

// VMA is one mapping of a process. Its slices are valid until the next query.
type VMA struct {
	Start, End         uint64
	Flags              ProcmapFlags
	Offset, Inode      uint64
	DevMajor, DevMinor uint32
	// Name is as in /proc/PID/maps but with nothing escaped; empty for
	// anonymous memory.
	Name    []byte
	BuildID []byte // if asked for and the file has one
}

// Procmap asks the kernel for single mappings of a process (ioctl
// PROCMAP_QUERY, Linux 6.11). One value serves many processes, one after the
// other.
type Procmap struct {
	q       *procmapQuery
	name    []byte
	buildID []byte
	pin     runtime.Pinner
}

// maxBuildID is what the kernel keeps of a build-id, BUILD_ID_SIZE_MAX.
const maxBuildID = 20

// NewProcmap allocates the buffers of the queries. Close releases them.
func NewProcmap() *Procmap {
	p := &Procmap{q: new(procmapQuery), name: make([]byte, unix.PathMax), buildID: make([]byte, maxBuildID)}
	// The kernel gets addresses of these inside q, where the garbage
	// collector does not see them.
	p.pin.Pin(&p.name[0])
	p.pin.Pin(&p.buildID[0])
	return p
}

// Close releases the buffers; the Procmap cannot be used any more.
func (p *Procmap) Close() { p.pin.Unpin() }

// Query finds the mapping at addr in the process whose /proc/PID/maps is open
// as maps. ENOENT: there is none; ESRCH: the process has no memory any more;
// ENOTTY: the kernel does not have the call.
func (p *Procmap) Query(maps *FD, addr uint64, flags ProcmapFlags, withBuildID bool, v *VMA) error {
	q := p.q
	*q = procmapQuery{
		size: uint64(unsafe.Sizeof(*q)), flags: uint64(flags), addr: addr,
		nameSize: uint32(len(p.name)), nameAddr: uint64(uintptr(unsafe.Pointer(&p.name[0]))),
	}
	if withBuildID {
		q.buildIDSize = uint32(len(p.buildID))
		q.buildIDAddr = uint64(uintptr(unsafe.Pointer(&p.buildID[0])))
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(maps.Int()), ioctlProcmapQuery, uintptr(unsafe.Pointer(q)))
	runtime.KeepAlive(maps)
	if errno != 0 {
		return fmt.Errorf("procmap query: %w", errno)
	}
	*v = VMA{
		Start: q.start, End: q.end, Flags: ProcmapFlags(q.vmaFlags), Offset: q.offset,
		Inode: q.inode, DevMajor: q.devMajor, DevMinor: q.devMinor,
		Name: p.name[:min(int(q.nameSize), len(p.name))],
	}
	if i := bytes.IndexByte(v.Name, 0); i >= 0 {
		v.Name = v.Name[:i]
	}
	if withBuildID {
		v.BuildID = p.buildID[:min(int(q.buildIDSize), len(p.buildID))]
	}
	return nil
}
