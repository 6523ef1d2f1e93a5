// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package testprogs has BPF programs for tests and benchmarks to load. Nothing
// else uses it.
package testprogs

import (
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"

	"github.com/gantry-tools/gantry/internal/linux/bpf"
)

// Names of the functions of the program Seven, the main one first.
var SevenFunctions = []string{"seven", "work_a", "work_b", "work_c", "work_d", "work_e", "work_f"}

// Loaded are programs that the caller closes.
type Loaded struct {
	// Program is what to run: a socket filter.
	Program *ebpf.Program
	all     []io.Closer
}

// Close unloads the programs.
func (l *Loaded) Close() error {
	var errs []error
	for _, c := range l.all {
		errs = append(errs, c.Close())
	}
	l.all = nil
	return errors.Join(errs...)
}

// Run runs the program so many times.
func (l *Loaded) Run(times uint32) error {
	_, err := l.Program.Run(&ebpf.RunOptions{Data: make([]byte, 64), Repeat: times})
	return err
}

// ID is the program's.
func (l *Loaded) ID() (uint32, error) {
	info, err := l.Program.Info()
	if err != nil {
		return 0, err
	}
	id, ok := info.ID()
	if !ok {
		return 0, ebpf.ErrNotSupported
	}
	return uint32(id), nil
}

// Seven loads a program of seven subprograms.
func Seven() (*Loaded, error) {
	var objects struct {
		Seven *ebpf.Program `ebpf:"seven"`
		Sum   *ebpf.Map     `ebpf:".bss"`
	}
	if err := load(&objects); err != nil {
		return nil, err
	}
	return &Loaded{Program: objects.Seven, all: []io.Closer{objects.Seven, objects.Sum}}, nil
}

// TailCall loads a program that calls another, which is the last of its work.
func TailCall() (*Loaded, error) {
	var objects struct {
		Caller *ebpf.Program `ebpf:"caller"`
		Called *ebpf.Program `ebpf:"called"`
		Calls  *ebpf.Map     `ebpf:"calls"`
		Sum    *ebpf.Map     `ebpf:".bss"`
	}
	if err := load(&objects); err != nil {
		return nil, err
	}
	l := &Loaded{Program: objects.Caller, all: []io.Closer{objects.Caller, objects.Called, objects.Calls, objects.Sum}}
	if err := objects.Calls.Put(uint32(0), objects.Called); err != nil {
		l.Close()
		return nil, fmt.Errorf("fill program array: %w", err)
	}
	return l, nil
}

func load(to any) error {
	spec, err := loadProgram()
	if err != nil {
		return err
	}
	return bpf.Load(spec, to)
}
