// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package helper runs small programs that do what a Go program cannot: they have
// one thread, and nothing in their memory. Each has a directory below, with its C
// and the code that tools/helper made of it.
//
// Start with Start. A helper is one section of code that needs no library, so that
// it works in any container; it gets descriptors from 3 on and no argument.
package helper

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Sizes and constants of the ELF header (elf(5)) and where the code is mapped.
const (
	headerSize  = 64
	segmentSize = 56
	codeOffset  = headerSize + 2*segmentSize
	codeAddress = 0x400000
	machineAMD  = 62
	machineARM  = 183
)

// image is an ELF file: one segment with the code, which starts with its first
// byte, and a stack that cannot be run.
func image(code []byte) []byte {
	machine := uint16(machineAMD)
	if runtime.GOARCH == "arm64" {
		machine = machineARM
	}
	le := binary.LittleEndian
	b := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9)...)
	b = le.AppendUint16(b, 2) // ET_EXEC
	b = le.AppendUint16(b, machine)
	b = le.AppendUint32(b, 1)
	b = le.AppendUint64(b, codeAddress+codeOffset)
	b = le.AppendUint64(b, headerSize)
	b = le.AppendUint64(b, 0)
	b = le.AppendUint32(b, 0)
	for _, v := range []uint16{headerSize, segmentSize, 2, 0, 0, 0} {
		b = le.AppendUint16(b, v)
	}
	segment := func(kind, flags uint32, addr, size, align uint64) {
		b = le.AppendUint32(b, kind)
		b = le.AppendUint32(b, flags)
		for _, v := range []uint64{0, addr, addr, size, size, align} {
			b = le.AppendUint64(b, v)
		}
	}
	const load, gnuStack, readRun, readWrite, page = 1, 0x6474e551, 5, 6, 0x10000
	segment(load, readRun, codeAddress, uint64(codeOffset+len(code)), page)
	segment(gnuStack, readWrite, 0, 0, 16)
	return append(b, code...)
}

// Process is a helper that runs.
type Process struct {
	cmd *exec.Cmd
}

// Options of Start. The zero value gives a helper no standard descriptors.
type Options struct {
	Stdin, Stdout, Stderr *os.File
	// Files are the descriptors from 3 on; they stay the caller's.
	Files []*sys.FD
}

// Start runs a helper of the given code as root without groups. The caller calls
// Wait.
func Start(name string, code []byte, o *Options) (*Process, error) {
	file, err := sys.SealedMemory(name, image(code))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer file.Close()
	cmd := exec.Command(file.Path())
	cmd.Args = []string{name}
	cmd.Env = []string{}
	// An *os.File that is nil must not get into the interface.
	if o.Stdin != nil {
		cmd.Stdin = o.Stdin
	}
	if o.Stdout != nil {
		cmd.Stdout = o.Stdout
	}
	if o.Stderr != nil {
		cmd.Stderr = o.Stderr
	}
	for _, f := range o.Files {
		// A copy, which os.File closes.
		d, err := f.Dup()
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", name, err)
		}
		c := d.File(name)
		defer c.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, c)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		// A key typed in a terminal is not meant for it.
		Setsid:     true,
		Credential: &syscall.Credential{Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid()), Groups: []uint32{}},
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return &Process{cmd: cmd}, nil
}

// PID is the helper's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill ends the helper.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }

// Wait waits for its end.
func (p *Process) Wait() error { return p.cmd.Wait() }
