// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bpfprog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// nativeOrder is the byte order of the machines gantry builds for.
const nativeOrder = perf.LittleEndian

// Details are the instructions, lines and types of a program, as BPF_OBJ_GET_INFO_BY_FD has them.
type Details struct {
	perfdata.BPFProgram
	BTF []byte // of BTFID, nil if it has none or was not told
}

// maxDetails bounds what is read of one program, and one BTF, in bytes.
const maxDetails = 64 << 20

// errTooLarge: a program is larger than maxDetails.
var errTooLarge = errors.New("its details are too large")

// A Reader reads details. It keeps its memory for the next program: it is for
// one goroutine.
type Reader struct {
	arena []byte
	btf   []byte
}

// guess is how many elements of each array there is room for at first.
var guess = [...]int{64 << 10, 64 << 10, 256, 256, 256, 256, 4096, 4096, 256}

// Read reads the details of the program with the id, which is kept meanwhile.
// Errors: fs.ErrNotExist if it is gone, fs.ErrPermission without CAP_SYS_ADMIN.
func (r *Reader) Read(id uint32) (*Details, error) {
	fd, err := sys.BPFOpen(sys.BPFProg, id)
	if err != nil {
		return nil, err
	}
	defer fd.Close()
	return r.ReadFD(fd)
}

// ReadFD is Read for a descriptor, which stays the caller's. A BTF that cannot be
// read is left out.
func (r *Reader) ReadFD(fd *sys.FD) (*Details, error) {
	counts := guess[:]
	for {
		info, arrays, err := r.ask(fd, counts)
		if err != nil {
			return nil, err
		}
		counts = nil
		enough, size := true, 0
		for i, p := range perfdata.BPFArrayFields() {
			n := int(nativeOrder.Uint32(info[p.CountAt:]))
			enough = enough && n*p.Size <= len(arrays[i].Memory)
			counts = append(counts, n)
			size += n * p.Size
		}
		if size > maxDetails {
			return nil, fmt.Errorf("describe BPF program: %w", errTooLarge)
		}
		if !enough {
			continue
		}
		d, err := decode(info, arrays)
		if err != nil {
			return nil, err
		}
		if d.BTFID != 0 {
			d.BTF, _ = r.readBTF(d.BTFID)
		}
		return d, nil
	}
}

// ask asks once, with room for so many elements of each array.
func (r *Reader) ask(fd *sys.FD, counts []int) ([]byte, []sys.BPFArray, error) {
	size := 0
	for i, p := range perfdata.BPFArrayFields() {
		size += (counts[i]*p.Size + 7) &^ 7
	}
	if len(r.arena) < size {
		r.arena = make([]byte, size)
	}
	info := make([]byte, perfdata.BPFInfoSize)
	var arrays []sys.BPFArray
	rest := r.arena
	for i, p := range perfdata.BPFArrayFields() {
		n := counts[i] * p.Size
		arrays = append(arrays, sys.BPFArray{At: p.AddrAt, Memory: rest[:n:n]})
		rest = rest[(n+7)&^7:]
		if n == 0 {
			continue
		}
		binary.NativeEndian.PutUint32(info[p.CountAt:], uint32(counts[i]))
		if p.SizeAt != 0 {
			binary.NativeEndian.PutUint32(info[p.SizeAt:], uint32(p.Size))
		}
	}
	_, err := sys.BPFInfo(fd, info, arrays...)
	return info, arrays, err
}

// decode makes the section of perf.data out of what the kernel gave, and reads
// that.
func decode(info []byte, arrays []sys.BPFArray) (*Details, error) {
	var data []byte
	mask := uint64(0)
	for i, p := range perfdata.BPFArrayFields() {
		n := int(nativeOrder.Uint32(info[p.CountAt:])) * p.Size
		if nativeOrder.Uint64(info[p.AddrAt:]) == 0 || n == 0 {
			continue // not told
		}
		mask |= 1 << i
		binary.NativeEndian.PutUint64(info[p.AddrAt:], uint64(len(data)))
		data = append(data, arrays[i].Memory[:n]...)
		data = append(data, make([]byte, -n&7)...)
	}
	b := nativeOrder.AppendUint32(nil, 1)
	b = nativeOrder.AppendUint32(b, uint32(len(info)))
	b = nativeOrder.AppendUint32(b, uint32(len(data)))
	b = nativeOrder.AppendUint64(b, mask)
	list, err := perfdata.DecodeBPFPrograms(append(append(b, info...), data...), nativeOrder)
	if err != nil {
		return nil, fmt.Errorf("describe BPF program: %w", err)
	}
	return &Details{BPFProgram: list[0]}, nil
}

// Places in struct bpf_btf_info.
const (
	btfDataAt, btfSizeAt, btfInfoSize = 0, 8, 32
)

// readBTF reads a BTF. It must be alive.
func (r *Reader) readBTF(id uint32) ([]byte, error) {
	fd, err := sys.BPFOpen(sys.BPFBTF, id)
	if err != nil {
		return nil, err
	}
	defer fd.Close()
	for len(r.btf) < maxDetails {
		if r.btf == nil {
			r.btf = make([]byte, 64<<10)
		}
		info := make([]byte, btfInfoSize)
		binary.NativeEndian.PutUint32(info[btfSizeAt:], uint32(len(r.btf)))
		if _, err := sys.BPFInfo(fd, info, sys.BPFArray{At: btfDataAt, Memory: r.btf}); err != nil {
			return nil, err
		}
		n := int(nativeOrder.Uint32(info[btfSizeAt:]))
		if n <= len(r.btf) {
			return append([]byte(nil), r.btf[:n]...), nil
		}
		r.btf = make([]byte, min(n, maxDetails))
	}
	return nil, errTooLarge
}

// List calls fn with the details of each program that is loaded and that want,
// if it is not nil, says yes to. One that goes
// meanwhile is passed over, one that cannot be read is an error for fn, which
// ends the list with its own. fs.ErrPermission without CAP_SYS_ADMIN.
func (r *Reader) List(want func(id uint32) bool, fn func(id uint32, d *Details, err error) error) error {
	id := uint32(0)
	for {
		next, err := sys.BPFNextID(sys.BPFProg, id)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		id = next
		if want != nil && !want(id) {
			continue
		}
		d, err := r.Read(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := fn(id, d, err); err != nil {
			return err
		}
	}
}
