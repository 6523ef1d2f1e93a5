// SPDX-License-Identifier: Apache-2.0

//go:build linux

package testprogs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// ShortLived loads the program Seven as often as it is asked to, with nothing between
// the return of the load and the close of its descriptor but looking at the clock.
// It is for one goroutine, which Live locks to its thread meanwhile.
type ShortLived struct {
	attr                        progLoad
	code, funcs, lines, license []byte
	types                       *btf.Handle
	sum                         *ebpf.Map
}

// A Lifetime is how long a program lived, by CLOCK_MONOTONIC of its loader.
type Lifetime struct {
	// Held is from the return of the load to the call that closes the only
	// descriptor, Gone to the return of that.
	Held, Gone time.Duration
}

// progLoad is what BPF_PROG_LOAD takes, as far as it is used (union bpf_attr of
// linux/bpf.h, Linux 5.0).
type progLoad struct {
	kind, codeCount               uint32
	code, license                 uint64
	logLevel, logSize             uint32
	log                           uint64
	version, flags                uint32
	name                          [16]byte
	ifindex, attach, btf, funcRec uint32
	funcs                         uint64
	funcCount, lineRec            uint32
	lines                         uint64
	lineCount                     uint32
	_                             uint32
}

// testRun is what BPF_PROG_TEST_RUN takes, as far as it is used.
type testRun struct {
	program, result uint32
	size, sizeOut   uint32
	data, out       uint64
	repeat, took    uint32
}

// Sizes of struct bpf_func_info, struct bpf_line_info and an instruction.
const (
	funcInfoSize, lineInfoSize, insnSize = 8, 16, 8
	bpfProgLoad, bpfProgTestRun          = 5, 10 // enum bpf_cmd
)

// sysBPF is the number of bpf(2), by architecture.
var sysBPF = map[string]uintptr{"amd64": 321, "arm64": 280}[runtime.GOARCH]

// NewShortLived prepares the loads. The caller closes it.
func NewShortLived() (_ *ShortLived, err error) {
	spec, err := loadProgram()
	if err != nil {
		return nil, err
	}
	b := new(ShortLived)
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	// The kernel's own way to load it has made its map too.
	var objects struct {
		Seven *ebpf.Program `ebpf:"seven"`
		Sum   *ebpf.Map     `ebpf:".bss"`
	}
	if err := load(&objects); err != nil {
		return nil, err
	}
	b.sum = objects.Sum
	if err := objects.Seven.Close(); err != nil {
		return nil, err
	}
	code := append(asm.Instructions(nil), spec.Programs["seven"].Instructions...)
	if err := code.AssociateMap(".bss", b.sum); err != nil {
		return nil, err
	}
	return b, b.marshal(code)
}

// marshal brings the program into the form that the kernel reads.
func (b *ShortLived) marshal(code asm.Instructions) (err error) {
	types, err := btf.NewBuilder(nil, nil)
	if err != nil {
		return err
	}
	if b.funcs, b.lines, err = btf.MarshalExtInfos(code, types); err != nil {
		return err
	}
	if b.types, err = btf.NewHandle(types); err != nil {
		return fmt.Errorf("load BTF: %w", err)
	}
	var out bytes.Buffer
	if err := code.Marshal(&out, binary.LittleEndian); err != nil {
		return err
	}
	b.code, b.license = out.Bytes(), []byte("Dual BSD/GPL\x00")
	b.attr = progLoad{
		kind: uint32(ebpf.SocketFilter), codeCount: uint32(len(b.code) / insnSize), btf: uint32(b.types.FD()),
		funcRec: funcInfoSize, funcCount: uint32(len(b.funcs) / funcInfoSize),
		lineRec: lineInfoSize, lineCount: uint32(len(b.lines) / lineInfoSize),
	}
	return nil
}

// Close releases everything.
func (b *ShortLived) Close() error {
	var errs []error
	if b.types != nil {
		errs = append(errs, b.types.Close())
	}
	if b.sum != nil {
		errs = append(errs, b.sum.Close())
	}
	return errors.Join(errs...)
}

// Live loads the program under a name of at most 15 bytes, and closes it when
// that long has passed since the load returned, at once with 0.
func (b *ShortLived) Live(name string, life time.Duration) (Lifetime, error) {
	return b.live(name, life, func(uintptr) syscall.Errno { return 0 })
}

// Run is Live for a program that is run meanwhile, again and again.
func (b *ShortLived) Run(name string, life time.Duration) (Lifetime, error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	data := make([]byte, 64)
	pin.Pin(&data[0])
	run := testRun{size: uint32(len(data)), data: uint64(uintptr(unsafe.Pointer(&data[0]))), repeat: 4}
	return b.live(name, life, func(fd uintptr) syscall.Errno {
		run.program = uint32(fd)
		_, _, errno := syscall.RawSyscall(sysBPF, bpfProgTestRun, uintptr(unsafe.Pointer(&run)), unsafe.Sizeof(run))
		if errno == syscall.EINTR { // a signal of Go's scheduler
			errno = 0
		}
		return errno
	})
}

// live calls during with the descriptor until the program has lived so long.
func (b *ShortLived) live(name string, life time.Duration, during func(uintptr) syscall.Errno) (Lifetime, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var pin runtime.Pinner
	defer pin.Unpin()
	a := b.attr
	copy(a.name[:len(a.name)-1], name)
	for to, from := range map[*uint64][]byte{&a.code: b.code, &a.license: b.license, &a.funcs: b.funcs,
		&a.lines: b.lines} {
		pin.Pin(&from[0])
		*to = uint64(uintptr(unsafe.Pointer(&from[0])))
	}
	fd, _, errno := uintptr(0), uintptr(0), syscall.EAGAIN
	for errno == syscall.EAGAIN { // a signal of Go's scheduler ends the verifier
		fd, _, errno = syscall.RawSyscall(sysBPF, bpfProgLoad, uintptr(unsafe.Pointer(&a)), unsafe.Sizeof(a))
	}
	begun := time.Now()
	if errno != 0 {
		return Lifetime{}, fmt.Errorf("load BPF program %s: %w", name, errno)
	}
	held := time.Since(begun)
	for held < life && errno == 0 {
		errno = during(fd)
		held = time.Since(begun)
	}
	if errno != 0 {
		syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
		return Lifetime{}, fmt.Errorf("run BPF program %s: %w", name, errno)
	}
	_, _, errno = syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
	gone := time.Since(begun)
	if errno != 0 {
		return Lifetime{}, fmt.Errorf("close BPF program %s: %w", name, errno)
	}
	return Lifetime{held, gone}, nil
}
