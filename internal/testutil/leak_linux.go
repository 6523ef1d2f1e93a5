// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// CheckLeaks fails the test if it leaves behind file descriptors (perf events
// among them), child processes, or mounts and cgroups of its own. Call it
// first: cleanups registered later run before the check. What it looks at
// belongs to the whole process, so the test cannot be parallel.
func CheckLeaks(t testing.TB) {
	t.Helper()
	// Setenv makes the testing package refuse t.Parallel.
	t.Setenv("GANTRY_TEST_LEAKS", "checked")
	before := takeInventory(t)
	t.Cleanup(func() {
		after := takeInventory(t)
		for _, kind := range slices.Sorted(maps.Keys(after)) {
			for name, n := range after[kind] {
				if extra := n - before[kind][name]; extra > 0 {
					t.Errorf("leaked %d %s: %s", extra, kind, name)
				}
			}
		}
	})
}

// inventory counts what a process holds: kind -> name -> number.
type inventory map[string]map[string]int

func takeInventory(t testing.TB) inventory {
	t.Helper()
	inv := inventory{}
	for kind, list := range map[string]func() ([]string, error){
		"file descriptor": listFDs,
		"child process":   listChildren,
		"mount":           func() ([]string, error) { return listMounts(t.Name()) },
		"cgroup":          listCgroups,
	} {
		names, err := list()
		if err != nil {
			t.Fatal(err)
		}
		inv[kind] = map[string]int{}
		for _, name := range names {
			inv[kind][name]++
		}
	}
	return inv
}

// listFDs names the process's descriptors, less those the Go runtime opens on
// first use and keeps.
func listFDs() ([]string, error) {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join(dir, entry.Name()))
		switch {
		case err != nil: // the directory's own descriptor
		case target == "anon_inode:[eventpoll]", target == "anon_inode:[eventfd]":
		case strings.HasPrefix(target, "/sys/fs/cgroup/") && strings.HasSuffix(target, "/cpu.max"):
		default:
			names = append(names, target)
		}
	}
	return names, nil
}

func listChildren() ([]string, error) {
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, path := range tasks {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for _, pid := range strings.Fields(string(data)) {
			comm, err := os.ReadFile("/proc/" + pid + "/comm")
			if err == nil {
				names = append(names, pid+" "+strings.TrimSpace(string(comm)))
			}
		}
	}
	return names, nil
}

// listMounts lists the mounts of this process's bundles and of tests' own
// directories of the test root's name; other test processes of the machine
// have mounts too, which are none of this test's business.
func listMounts(test string) ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	test, _, _ = strings.Cut(test, "/")
	own := []string{filepath.Join(os.TempDir(), test), filepath.Join(os.TempDir(), ownPrefix())}
	var names []string
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && (strings.HasPrefix(fields[4], own[0]) || strings.HasPrefix(fields[4], own[1])) {
			names = append(names, fields[4])
		}
	}
	return names, nil
}

func listCgroups() ([]string, error) {
	mounts, err := cgroupMounts()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, mount := range mounts {
		dirs, err := filepath.Glob(filepath.Join(mount, ownPrefix()+"*"))
		if err != nil {
			return nil, err
		}
		names = append(names, dirs...)
	}
	return names, nil
}
