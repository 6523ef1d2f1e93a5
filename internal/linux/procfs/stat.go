// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Stat is /proc/PID/stat as far as gantry needs it (proc_pid_stat(5)).
type Stat struct {
	PID        int
	Comm       string // raw: may hold parentheses and newlines
	State      byte   // R, S, D, Z, T, t, I, X
	PPID       int
	PGRP       int
	Session    int
	Flags      uint64 // PF_* of linux/sched.h
	UTime      uint64 // ticks
	STime      uint64 // ticks
	NumThreads int
	StartTime  uint64 // ticks since boot, CLOCK_BOOTTIME
}

// Ticks is the unit of times in stat: USER_HZ, 100 a second on every
// architecture gantry runs on.
const Ticks = 10 * time.Millisecond

// pfKthread is PF_KTHREAD of linux/sched.h.
const pfKthread = 0x00200000

// KernelThread reports whether the task belongs to the kernel.
func (s *Stat) KernelThread() bool { return s.Flags&pfKthread != 0 }

// pfExiting is PF_EXITING of linux/sched.h.
const pfExiting = 0x00000004

// Exiting reports whether the task is on its way out, or has ended and nobody has
// looked yet: it runs no code of its own any more. The EXIT record of perf comes
// after it has become so.
func (s *Stat) Exiting() bool { return s.Flags&pfExiting != 0 || s.State == 'Z' || s.State == 'X' }

// Start is when the task started, as nanoseconds of CLOCK_BOOTTIME.
func (s *Stat) Start() uint64 { return s.StartTime * uint64(Ticks) }

var errStat = errors.New("malformed stat")

// Positions in stat behind the name, where state is 0.
const (
	statState = iota
	statPPID
	statPGRP
	statSession
	statTTY
	statTPGID
	statFlags
	statUTime      = 11
	statSTime      = 12
	statNumThreads = 17
	statStartTime  = 19
	statFields     = 20
)

// ParseStat parses a stat file. The name is found by the first "(" and the
// last ")", since it may hold both, and newlines.
func ParseStat(r io.Reader) (Stat, error) {
	b, err := readAll(r)
	if err != nil {
		return Stat{}, err
	}
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return Stat{}, fmt.Errorf("no name: %w", errStat)
	}
	s := Stat{Comm: string(b[open+1 : end])}
	if s.PID, err = strconv.Atoi(string(bytes.TrimSpace(b[:open]))); err != nil {
		return Stat{}, fmt.Errorf("pid: %w", errStat)
	}
	f := bytes.Fields(b[end+1:])
	if len(f) < statFields || len(f[statState]) != 1 {
		return Stat{}, fmt.Errorf("%d fields after the name: %w", len(f), errStat)
	}
	s.State = f[statState][0]
	return s, s.numbers(f)
}

func (s *Stat) numbers(f [][]byte) error {
	for _, n := range []struct {
		dst *int
		at  int
	}{{&s.PPID, statPPID}, {&s.PGRP, statPGRP}, {&s.Session, statSession}, {&s.NumThreads, statNumThreads}} {
		v, err := strconv.Atoi(string(f[n.at]))
		if err != nil {
			*s = Stat{}
			return fmt.Errorf("field %d: %w", n.at+3, errStat)
		}
		*n.dst = v
	}
	for _, n := range []struct {
		dst *uint64
		at  int
	}{{&s.Flags, statFlags}, {&s.UTime, statUTime}, {&s.STime, statSTime}, {&s.StartTime, statStartTime}} {
		v, err := strconv.ParseUint(string(f[n.at]), 10, 64)
		if err != nil {
			*s = Stat{}
			return fmt.Errorf("field %d: %w", n.at+3, errStat)
		}
		*n.dst = v
	}
	return nil
}
