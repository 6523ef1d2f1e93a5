// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"io"
	"time"

	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/capture/snapshot"
	"github.com/gantry-tools/gantry/container"
)

// CallGraph is how the stack of a sample is taken.
type CallGraph uint8

const (
	// NoCallGraph takes the instruction pointer only.
	NoCallGraph CallGraph = iota
	// FramePointers walks the frame pointers in the kernel.
	FramePointers
	// DWARF copies registers and a piece of the stack, to be unwound later.
	DWARF
)

// Defaults of Options.
const (
	DefaultFrequency = 4000      // Hz, as perf record
	DefaultStackSize = 8192      // bytes
	maxStackSize     = 0xfff8    // the kernel's limit
	smallRing        = 512 << 10 // bytes a CPU, as perf record
	largeRing        = 8 << 20
	allRings         = 512 << 20 // of all CPUs together
	sidebandRing     = 512 << 10
	smallestRing     = 16 << 10
)

// Target is what is recorded. The zero value is the whole machine.
type Target struct {
	// CPUs bounds everything to these CPUs; nil is all that are online.
	CPUs []int
	// PIDs and TIDs are processes, with all their threads, and threads; the
	// children they have from now on are included.
	PIDs, TIDs []int
	// Cgroups are directories of cgroups, with all below them. They are
	// filtered in the kernel.
	Cgroups []string
	// Containers are selectors of containers, those among them that start
	// later too. Options.Resolver must be set, and have been asked. With
	// them, Cgroups are selected in the same way.
	Containers []container.Choice
	// All is the whole machine also if there is a Command, which then only
	// says how long to record.
	All bool
}

// tasks reports whether single tasks are recorded.
func (t *Target) tasks() bool { return len(t.PIDs)+len(t.TIDs) > 0 }

// Command is a program to run and, unless there is another target, record.
type Command struct {
	Args []string
	// Stdin, Stdout and Stderr are the program's; nil is the null device.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Options say what to record and how. The zero value records the whole machine
// with the clock of each CPU at DefaultFrequency, without stacks.
type Options struct {
	Target  Target
	Command *Command

	// Groups are the events; none is cycles. PMUs is where they were looked
	// up, which is asked for the formats of tracepoints; nil is this machine.
	Groups []perfevent.Group
	PMUs   *perfevent.PMUs
	// Frequency in Hz or Period in counts is for events that do not say it
	// themselves. Neither: DefaultFrequency, and every hit of a tracepoint.
	Frequency, Period uint64
	// MaxFrequency bounds DefaultFrequency where the kernel takes less.
	MaxFrequency uint64

	CallGraph CallGraph
	StackSize int // bytes of DWARF, default DefaultStackSize
	// TrimStacks leaves out what is empty of each dumped stack: all of it
	// beyond the end of the task's stack. It costs a copy of each sample.
	TrimStacks bool

	// Duration ends the recording so long after its first event was enabled;
	// 0 does not.
	Duration time.Duration

	// RingSize is the size of a CPU's ring for samples in bytes. Default:
	// 512 KiB, or 8 MiB for tracepoints, DWARF and high frequencies, less on
	// many CPUs, and as much as is permitted for the unprivileged. The one for
	// sideband has 512 KiB; where a size is given and stacks are dumped, a
	// quarter of that, but 256 KiB at least.
	RingSize int
	// Compress is a zstd level, 0 for none.
	Compress int

	// Store is where binaries of containers are kept; "" keeps none.
	Store string
	// MaxBinary bounds one binary and MaxBinaries all of them, in bytes.
	// Defaults: 256 MiB and 4 GiB. Perf maps and jitdump files are bounded
	// apart: 128 MiB for one, a quarter of MaxBinaries for all.
	MaxBinary, MaxBinaries int64

	// CmdLine and Version go into the header of the file.
	CmdLine []string
	Version string

	// Snapshot tells what runs; the default is the best that is open to this
	// process. It stays the caller's.
	Snapshot snapshot.Source
	// Agent opens the events that are not permitted to this process, or is nil.
	Agent perfevent.Agent
	// NoBPF decides in the recorder, and not in the kernel, which samples are
	// of the containers of the target.
	NoBPF bool
	// NoBPFEvent does not record BPF programs that are loaded and unloaded,
	// and reads none.
	NoBPFEvent bool
	// Resolver knows the names of containers; it is the recorder's until Run
	// returns. Without it there is what the paths of cgroups tell.
	Resolver *container.Resolver
	// Definitions go into the file, for its readers: what a container is
	// beside the built-in ones, which may be among them.
	Definitions container.Definitions
	// Sources have samples from elsewhere than the kernel; they stay the caller's.
	Sources []Source
	// Live tells the output of containers as they get names, for who reads it meanwhile;
	// else it is told of those of the beginning, and of all at the end.
	Live bool
	// Segments makes several files of the recording, where Cut is called; nil: one.
	Segments *Segments
	// Progress is called about four times a second, in Run's goroutine.
	Progress func(Progress)
}
