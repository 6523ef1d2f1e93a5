// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// BPFKind is a kind of object of bpf(2) that has ids.
type BPFKind uint8

// The kinds. All need CAP_SYS_ADMIN to be opened by their id.
const (
	BPFProg BPFKind = iota
	BPFBTF
	BPFLink // Linux 5.8
)

// bpfCommands are the commands for the next id and for a descriptor.
var bpfCommands = [...]struct {
	name       string
	next, open int
}{
	BPFProg: {"program", unix.BPF_PROG_GET_NEXT_ID, unix.BPF_PROG_GET_FD_BY_ID},
	BPFBTF:  {"BTF", unix.BPF_BTF_GET_NEXT_ID, unix.BPF_BTF_GET_FD_BY_ID},
	BPFLink: {"link", unix.BPF_LINK_GET_NEXT_ID, unix.BPF_LINK_GET_FD_BY_ID},
}

// bpfCall makes a call that takes some microseconds: telling Go's scheduler of it
// would take as long.
func bpfCall(cmd int, attr unsafe.Pointer, size uintptr) (int, error) {
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_BPF, uintptr(cmd), uintptr(attr), size)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// BPFNextID is the id of the first object behind the given id. The error is
// ENOENT behind the last one.
func BPFNextID(k BPFKind, id uint32) (uint32, error) {
	attr := struct{ start, next, flags uint32 }{start: id}
	if _, err := bpfCall(bpfCommands[k].next, unsafe.Pointer(&attr), unsafe.Sizeof(attr)); err != nil {
		if id == 0 {
			return 0, fmt.Errorf("find the first BPF %s: %w", bpfCommands[k].name, err)
		}
		return 0, fmt.Errorf("find the BPF %s behind %d: %w", bpfCommands[k].name, id, err)
	}
	return attr.next, nil
}

// BPFOpen opens an object by its id, which keeps it as long as the descriptor
// is open. The error is ENOENT for one that is gone.
func BPFOpen(k BPFKind, id uint32) (*FD, error) {
	attr := struct{ id, next, flags uint32 }{id: id}
	fd, err := bpfCall(bpfCommands[k].open, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	if err != nil {
		return nil, fmt.Errorf("open BPF %s %d: %w", bpfCommands[k].name, id, err)
	}
	return own(fd), nil
}

// A BPFArray is where an info of bpf(2) has the address of an array, and the
// memory that is given for it.
type BPFArray struct {
	At     int
	Memory []byte
}

// BPFInfo fills info, a struct bpf_prog_info, bpf_btf_info or bpf_link_info of
// any version, and the arrays whose number of elements is set in it. It returns how much
// of info the kernel knows.
func BPFInfo(fd *FD, info []byte, arrays ...BPFArray) (int, error) {
	if len(info) == 0 {
		return 0, fmt.Errorf("describe BPF object: %w", unix.EINVAL)
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	for _, a := range arrays {
		if len(a.Memory) > 0 {
			pin.Pin(&a.Memory[0])
			binary.NativeEndian.PutUint64(info[a.At:], uint64(uintptr(unsafe.Pointer(&a.Memory[0]))))
		}
	}
	pin.Pin(&info[0])
	attr := struct {
		fd, size uint32
		info     uint64
	}{uint32(fd.Int()), uint32(len(info)), uint64(uintptr(unsafe.Pointer(&info[0])))}
	_, err := bpfCall(unix.BPF_OBJ_GET_INFO_BY_FD, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	runtime.KeepAlive(fd)
	if err != nil {
		return 0, fmt.Errorf("describe BPF object: %w", err)
	}
	return int(attr.size), nil
}

// BPFCountRuns has the kernel count the runs of BPF programs and their time as
// long as the descriptor is open (Linux 5.8, CAP_SYS_ADMIN).
func BPFCountRuns() (*FD, error) {
	attr := struct{ kind uint32 }{unix.BPF_STATS_RUN_TIME}
	fd, err := bpfCall(unix.BPF_ENABLE_STATS, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	if err != nil {
		return nil, fmt.Errorf("count runs of BPF programs: %w", err)
	}
	return own(fd), nil
}

// A BPFTaskFD is what a descriptor of a task has to do with BPF.
type BPFTaskFD struct {
	Program uint32 // id
	Type    uint32 // enum bpf_task_fd_type
	Offset  uint64
	Name    string // tracepoint, symbol or path
}

// BPFQueryTaskFD tells which program is attached through a task's descriptor,
// to a perf event or a raw tracepoint (Linux 4.18). The error is EOPNOTSUPP or
// ENOTSUPP (524) for descriptors of other kinds.
func BPFQueryTaskFD(pid, fd int) (BPFTaskFD, error) {
	name := make([]byte, 256)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&name[0])
	attr := struct {
		pid, fd, flags, size uint32
		buf                  uint64
		prog, kind           uint32
		offset, addr         uint64
	}{pid: uint32(pid), fd: uint32(fd), size: uint32(len(name)), buf: uint64(uintptr(unsafe.Pointer(&name[0])))}
	_, err := bpfCall(unix.BPF_TASK_FD_QUERY, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	if err != nil && !errors.Is(err, unix.ENOSPC) { // ENOSPC: the name is cut
		return BPFTaskFD{}, fmt.Errorf("ask for the program of descriptor %d of process %d: %w", fd, pid, err)
	}
	return BPFTaskFD{Program: attr.prog, Type: attr.kind, Offset: attr.offset, Name: unix.ByteSliceToString(name)}, nil
}
