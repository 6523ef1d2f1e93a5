// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxCPU bounds a CPU list: no kernel is built for more.
const maxCPU = 1 << 16

// PageSize is the size of a memory page.
func PageSize() int { return os.Getpagesize() }

// OnlineCPUs lists the CPUs that are online, in order. They need not be dense.
// In a container without sysfs it lists those that this thread may run on.
func OnlineCPUs() ([]int, error) {
	cpus, err := readCPUList("/sys/devices/system/cpu/online")
	if errors.Is(err, fs.ErrNotExist) {
		return allowedCPUs()
	}
	return cpus, err
}

func allowedCPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("sched_getaffinity: %w", err)
	}
	var cpus []int
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// PossibleCPUs lists the CPUs that may ever be online. In a container without
// sysfs it lists what OnlineCPUs does.
func PossibleCPUs() ([]int, error) {
	cpus, err := readCPUList("/sys/devices/system/cpu/possible")
	if errors.Is(err, fs.ErrNotExist) {
		return allowedCPUs()
	}
	return cpus, err
}

func readCPUList(path string) ([]int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	cpus, err := ParseCPUList(strings.TrimSpace(string(b)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return cpus, nil
}

// ParseCPUList reads a list as the kernel writes and perf -C takes it:
// "0-3,8,10-11". The empty string is the empty list.
func ParseCPUList(s string) ([]int, error) {
	if s == "" {
		return nil, nil
	}
	var cpus []int
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, ranged := strings.Cut(part, "-")
		first, err := parseCPU(lo)
		if err != nil {
			return nil, fmt.Errorf("cpu list %q: %w", s, err)
		}
		last := first
		if ranged {
			if last, err = parseCPU(hi); err != nil {
				return nil, fmt.Errorf("cpu list %q: %w", s, err)
			}
		}
		if last < first {
			return nil, fmt.Errorf("cpu list %q: range %q runs backwards", s, part)
		}
		if len(cpus)+last-first >= maxCPU {
			return nil, fmt.Errorf("cpu list %q: more than %d cpus", s, maxCPU)
		}
		for cpu := first; cpu <= last; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

func parseCPU(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("cpu %q is no number", s)
	}
	if n >= maxCPU {
		return 0, fmt.Errorf("cpu %d is too large", n)
	}
	return int(n), nil
}
