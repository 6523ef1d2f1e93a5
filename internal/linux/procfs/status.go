// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Status is /proc/PID/status as far as gantry needs it (proc_pid_status(5)).
type Status struct {
	Name       string // unescaped
	TGID       int
	PID        int
	PPID       int
	TracerPID  int
	UID        [4]uint32 // real, effective, saved, file system
	GID        [4]uint32
	NSTGID     []int // in each pid namespace, outermost first
	NSPID      []int
	Threads    int
	CapInh     uint64
	CapPrm     uint64
	CapEff     uint64
	CapBnd     uint64
	CapAmb     uint64
	NoNewPrivs bool
	Seccomp    int // 0 off, 1 strict, 2 filter
}

// InnerPID is the task's number in its own pid namespace.
func (s *Status) InnerPID() int {
	if len(s.NSPID) == 0 {
		return s.PID
	}
	return s.NSPID[len(s.NSPID)-1]
}

// ParseStatus parses a status file; keys that it does not know are skipped.
func ParseStatus(r io.Reader) (Status, error) {
	var s Status
	sc := lines(r)
	for n := 1; sc.Scan(); n++ {
		key, val, ok := strings.Cut(sc.Text(), ":")
		if !ok {
			return Status{}, fmt.Errorf("line %d: no colon", n)
		}
		if err := s.set(key, strings.TrimLeft(val, "\t ")); err != nil {
			return Status{}, fmt.Errorf("line %d: %s: %w", n, key, err)
		}
	}
	if err := sc.Err(); err != nil {
		return Status{}, err
	}
	return s, nil
}

func (s *Status) set(key, val string) (err error) {
	switch key {
	case "Name":
		s.Name = unescapeComm(val)
	case "Tgid":
		s.TGID, err = strconv.Atoi(val)
	case "Pid":
		s.PID, err = strconv.Atoi(val)
	case "PPid":
		s.PPID, err = strconv.Atoi(val)
	case "TracerPid":
		s.TracerPID, err = strconv.Atoi(val)
	case "Threads":
		s.Threads, err = strconv.Atoi(val)
	case "Seccomp":
		s.Seccomp, err = strconv.Atoi(val)
	case "NoNewPrivs":
		s.NoNewPrivs = val == "1"
	case "Uid":
		err = four(&s.UID, val)
	case "Gid":
		err = four(&s.GID, val)
	case "NStgid":
		s.NSTGID, err = ints(val)
	case "NSpid":
		s.NSPID, err = ints(val)
	default:
		return s.setCap(key, val)
	}
	return err
}

func (s *Status) setCap(key, val string) error {
	var dst *uint64
	switch key {
	case "CapInh":
		dst = &s.CapInh
	case "CapPrm":
		dst = &s.CapPrm
	case "CapEff":
		dst = &s.CapEff
	case "CapBnd":
		dst = &s.CapBnd
	case "CapAmb":
		dst = &s.CapAmb
	default:
		return nil
	}
	v, err := strconv.ParseUint(val, 16, 64)
	*dst = v
	return err
}

func four(dst *[4]uint32, val string) error {
	f := strings.Fields(val)
	if len(f) != len(dst) {
		return fmt.Errorf("%d ids instead of %d", len(f), len(dst))
	}
	for i := range dst {
		v, err := strconv.ParseUint(f[i], 10, 32)
		if err != nil {
			return err
		}
		dst[i] = uint32(v)
	}
	return nil
}

// maxNesting is MAX_PID_NS_LEVEL of the kernel plus the initial one.
const maxNesting = 33

func ints(val string) ([]int, error) {
	f := strings.Fields(val)
	if len(f) > maxNesting {
		return nil, fmt.Errorf("%d namespaces", len(f))
	}
	out := make([]int, 0, len(f))
	for _, s := range f {
		v, err := strconv.Atoi(s)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// unescapeComm undoes the kernel's ESCAPE_SPACE|ESCAPE_SPECIAL of the
// characters newline and backslash in status.
func unescapeComm(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	return strings.NewReplacer(`\n`, "\n", `\\`, `\`).Replace(s)
}
