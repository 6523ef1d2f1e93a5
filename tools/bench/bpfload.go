// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// partName is the function of a subprogram of what is loaded.
func partName(i int) string {
	if i == 0 {
		return "bench_main"
	}
	return fmt.Sprintf("bench_part%d", i)
}

// sevenParts is a program of seven subprograms, with a line of source each.
func sevenParts() asm.Instructions {
	integer := &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	named := func(ins asm.Instruction, name string) asm.Instruction {
		f := &btf.Func{Name: name,
			Type: &btf.FuncProto{Return: integer, Params: []btf.FuncParam{{Name: "n", Type: integer}}}}
		return btf.WithFuncMetadata(ins.WithSymbol(name), f).WithSource(asm.Comment("int " + name + "(int n)"))
	}
	main := asm.Instructions{named(asm.Mov.Imm(asm.R0, 0), partName(0))}
	var parts asm.Instructions
	for i := 1; i < subprograms; i++ {
		main = append(main, asm.Mov.Imm(asm.R1, int32(i)), asm.Call.Label(partName(i)))
		parts = append(parts, named(asm.Mov.Reg(asm.R0, asm.R1), partName(i)))
		for j := range 20 {
			parts = append(parts, asm.Add.Imm(asm.R0, int32(i*100+j)))
		}
		parts = append(parts, asm.Return())
	}
	return append(append(main, asm.Mov.Imm(asm.R0, 0), asm.Return()), parts...)
}

// bpfLoader loads a program again and again, with nothing between the return of
// the load and the close of its descriptor but looking at clocks.
type bpfLoader struct {
	attr                        progLoad
	code, funcs, lines, license []byte
	types                       *btf.Handle
}

// progLoad is what BPF_PROG_LOAD takes, as far as it is used (union bpf_attr of
// linux/bpf.h).
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
	lineCount, _                  uint32
}

const (
	// Sizes of struct bpf_func_info, struct bpf_line_info and an instruction.
	funcInfoSize, lineInfoSize, insnSize = 8, 16, 8
	bpfProgLoad                          = 5 // enum bpf_cmd
	clockThread                          = 3 // CLOCK_THREAD_CPUTIME_ID
)

// sysBPF is the number of bpf(2), by architecture.
var sysBPF = map[string]uintptr{"amd64": 321, "arm64": 280}[runtime.GOARCH]

// newBPFLoader prepares the loads. The caller closes types.
func newBPFLoader() (*bpfLoader, error) {
	types, err := btf.NewBuilder(nil, nil)
	if err != nil {
		return nil, err
	}
	l := &bpfLoader{license: []byte("MIT\x00")}
	code := sevenParts()
	if l.funcs, l.lines, err = btf.MarshalExtInfos(code, types); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := code.Marshal(&out, binary.LittleEndian); err != nil {
		return nil, err
	}
	l.code = out.Bytes()
	if l.types, err = btf.NewHandle(types); err != nil {
		return nil, fmt.Errorf("load BTF: %w", err)
	}
	l.attr = progLoad{
		kind: uint32(ebpf.SocketFilter), codeCount: uint32(len(l.code) / insnSize), btf: uint32(l.types.FD()),
		funcRec: funcInfoSize, funcCount: uint32(len(l.funcs) / funcInfoSize),
		lineRec: lineInfoSize, lineCount: uint32(len(l.lines) / lineInfoSize),
	}
	return l, nil
}

// bpfLoads is what loads were like for who loaded.
type bpfLoads struct {
	held, gone []time.Duration // from the return of each load to the call of close, and to the return of that
	cpu        []time.Duration // of each load and close, without the time between
}

// loadAndUnload loads programs of such names, each when the one before is gone.
func loadAndUnload(ctx context.Context, names []string, life time.Duration) (all bpfLoads, err error) {
	l, err := newBPFLoader()
	if err != nil {
		return all, err
	}
	defer l.types.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, name := range names {
		if err := l.load(name, life, &all); err != nil {
			return all, fmt.Errorf("program %s: %w", name, err)
		}
		if err := ctx.Err(); err != nil {
			return all, err
		}
	}
	return all, nil
}

// load loads a program and closes it when it has lived so long.
func (l *bpfLoader) load(name string, life time.Duration, all *bpfLoads) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	a := l.attr
	copy(a.name[:len(a.name)-1], name)
	for to, from := range map[*uint64][]byte{&a.code: l.code, &a.license: l.license, &a.funcs: l.funcs,
		&a.lines: l.lines} {
		pin.Pin(&from[0])
		*to = uint64(uintptr(unsafe.Pointer(&from[0])))
	}
	var cpu [4]int64
	cpu[0] = threadClock()
	fd, _, errno := uintptr(0), uintptr(0), syscall.EAGAIN
	for errno == syscall.EAGAIN { // a signal of Go's scheduler ends the verifier
		fd, _, errno = syscall.RawSyscall(sysBPF, bpfProgLoad, uintptr(unsafe.Pointer(&a)), unsafe.Sizeof(a))
	}
	begun := time.Now()
	if errno != 0 {
		return errno
	}
	if life > 0 {
		cpu[1] = threadClock()
		for time.Since(begun) < life-time.Microsecond {
		}
		cpu[2] = threadClock()
	}
	held := time.Since(begun)
	for held < life {
		held = time.Since(begun)
	}
	_, _, errno = syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
	all.gone = append(all.gone, time.Since(begun))
	all.held = append(all.held, held)
	cpu[3] = threadClock()
	all.cpu = append(all.cpu, time.Duration(cpu[3]-cpu[2]+cpu[1]-cpu[0]))
	if errno != 0 {
		return errno
	}
	return nil
}

// threadClock is the CPU time of the calling thread in nanoseconds.
func threadClock() int64 {
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockThread, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}

// spread writes the least, the median and the most, in microseconds.
func spread(list []time.Duration) string {
	if len(list) == 0 {
		return "-"
	}
	list = slices.Sorted(slices.Values(list))
	us := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/1e3) }
	return us(list[0]) + ", " + us(list[len(list)/2]) + ", " + us(list[len(list)-1])
}
