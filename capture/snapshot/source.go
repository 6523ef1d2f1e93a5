// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/perf"
)

// Scope is which processes a snapshot is about, with all their threads. The
// zero value is none.
type Scope struct {
	// All is every task of the machine, and the idle task.
	All bool
	// PIDs are processes, and Cgroups directories of cgroups, whose
	// processes and those of the cgroups below are meant.
	PIDs    []int
	Cgroups []string
}

// Task is a thread as Sink.Want is asked about it.
type Task struct {
	// PID is the process, TID the thread, PPID the parent of the process.
	PID, TID, PPID int32
	// Comm is the thread's name, as raw bytes.
	Comm string
	// Kernel: it has no memory of its own.
	Kernel bool
	// Zombie: it has exited, and its parent has not looked yet.
	Zombie bool
	// Start is when it was made, in nanoseconds of CLOCK_BOOTTIME.
	Start uint64
	// Cgroup is the id of its cgroup in the v2 hierarchy, 0: not known.
	Cgroup uint64
	// Namespaces are its namespaces, by perf.NSNet and so on; TimeNS is
	// the inode of one more, which perf has no number for. 0: not known.
	Namespaces [numLinks]perf.NSLink
	TimeNS     uint64
}

// Sink takes what a snapshot finds. An error of it ends the snapshot.
type Sink struct {
	// Record takes one status record, which is used again after the call.
	Record func(rec perf.Record) error
	// Want says, before the records of a task, whether there should be any;
	// nil is yes. The first thread of a process decides about its mappings.
	// The Task is used again. Asking costs a Proc two more files per task.
	Want func(t *Task) bool
	// Pause is called now and then, if it is not nil: what comes after it
	// was read after it.
	Pause func() error
}

func (s *Sink) pause() error {
	if s.Pause == nil {
		return nil
	}
	return s.Pause()
}

// Method is a way to find out what runs.
type Method string

// The methods, the best first.
const (
	ByBPF   Method = "BPF iterators"
	ByQuery Method = "/proc with PROCMAP_QUERY"
	ByText  Method = "/proc/PID/maps"
)

// Refusal is a better method that was not used, and why.
type Refusal struct {
	Method Method `json:"method"`
	Why    string `json:"why"`
}

// Stats is what a snapshot found.
type Stats struct {
	// Method is the way it was done, Refused the better ways that are not
	// open here.
	Method    Method    `json:"method"`
	Refused   []Refusal `json:"refused,omitempty"`
	Processes int       `json:"processes"`
	Threads   int       `json:"threads"` // beside the first of each process
	Mappings  int       `json:"mappings"`
	// Gone are processes that ended while they were read, Denied are those
	// of which something could not be read for want of privilege.
	Gone   int `json:"gone,omitempty"`
	Denied int `json:"denied,omitempty"`
	// Unreadable are processes that could not be read for another reason.
	Unreadable int `json:"unreadable,omitempty"`
	// Reused are processes whose number went to another one while they were
	// read; that one was read then.
	Reused int `json:"reused,omitempty"`
	// HeldUp are processes whose mappings are not known, because they hold them
	// locked: such as one that waits for a file system that does not answer.
	HeldUp []int32 `json:"held_up,omitempty"`
	// TimedOut are mapped files of which no build-id could be read because their
	// file system did not answer in time.
	TimedOut int `json:"silent,omitempty"`
}

// Source gives the status records of running tasks.
type Source interface {
	// Take calls sink for each record. Of each thread there are FORK,
	// NAMESPACES and COMM in a row, and MMAP2 of each process behind its
	// FORK, in a row as well.
	Take(ctx context.Context, scope Scope, sink Sink) (Stats, error)
	// Close releases the source. Closing twice does nothing.
	Close() error
}

// setTrailer fills what a status record has beside its body.
func setTrailer(t *perf.Trailer, misc perf.Misc, pid, tid int32, time uint64) {
	t.Misc = misc | perf.MiscStatusOnly
	t.SampleID = perf.SampleIDInfo{PID: pid, TID: tid, Time: time}
}

// pids are the processes that s names, each once.
func (s *Scope) pids() ([]int, error) {
	var list []int
	seen := make(map[int]bool)
	add := func(pid int) {
		if !seen[pid] {
			seen[pid] = true
			list = append(list, pid)
		}
	}
	for _, pid := range s.PIDs {
		add(pid)
	}
	for _, dir := range s.Cgroups {
		if err := eachProc(dir, add); err != nil {
			return nil, fmt.Errorf("list tasks of cgroup: %w", err)
		}
	}
	return list, nil
}

// eachProc calls fn for the processes in a cgroup and all below it.
func eachProc(dir string, fn func(pid int)) error {
	return eachCgroup(dir, func(path string) error {
		text, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			return nil // gone, or a threaded cgroup: its root lists the processes
		}
		for line := range strings.Lines(string(text)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
				fn(pid)
			}
		}
		return nil
	})
}

// eachCgroup calls fn for the directory of a cgroup and all below it.
func eachCgroup(dir string, fn func(path string) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if path != dir && procfs.Gone(err) {
				return nil
			}
			return err
		}
		if !d.IsDir() {
			return nil
		}
		return fn(path)
	})
}
