// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/capture/snapshot"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// teller writes status records, and reads the rings of sideband in between so
// that they do not overflow.
type teller struct {
	r   *Recorder
	tid int32
}

// tellStatus writes what there was before the first sample. The sideband is
// enabled already.
func (r *Recorder) tellStatus(ctx context.Context) error {
	t := &teller{r: r}
	if err := t.kernel(); err != nil {
		return err
	}
	if err := t.cgroups(); err != nil {
		return err
	}
	scope, err := r.scope()
	if err != nil {
		return err
	}
	source := r.opts.Snapshot
	if source == nil {
		source = &snapshot.Proc{FS: r.fs, Clock: sys.ClockMonotonic}
	}
	r.snapshot, err = source.Take(ctx, scope, t.task)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	if err := r.tellContainers(); err != nil {
		return err
	}
	// From here on a killed recorder leaves a file.
	if err := r.out.FinishRound(); err != nil {
		return writeError(err)
	}
	return nil
}

// tellContainers writes the containers as they are known now: a stream's reader
// needs them now, and a file whose recorder is killed has no others.
func (r *Recorder) tellContainers() error {
	section, err := r.names.section()
	if err != nil {
		return fmt.Errorf("describe containers: %w", err)
	}
	if err := r.out.WriteGantry(section); err != nil {
		return writeError(err)
	}
	return nil
}

// write writes one record with the id of the sideband.
func (t *teller) write(rec perf.Record) error {
	perf.SampleIDOf(rec).ID = t.r.set.sideband.IDs[0]
	if err := t.r.out.WriteRecord(rec, t.r.set.sideband); err != nil {
		return writeError(err)
	}
	return nil
}

// task takes the records of tasks. Between two tasks the rings may be read:
// their records are older than what follows.
func (t *teller) task(rec perf.Record) error {
	if tid := perf.SampleIDOf(rec).TID; tid != t.tid {
		t.tid = tid
		if t.r.crowded() {
			if err := t.r.pass(); err != nil {
				return err
			}
		}
	}
	t.r.side.status(rec)
	return t.write(rec)
}

// cgroups tells of every cgroup, in the hierarchy that samples refer to.
func (t *teller) cgroups() error {
	trees, err := t.r.fs.CgroupTrees()
	if err != nil {
		return fmt.Errorf("find cgroups: %w", err)
	}
	tree := trees.Perf()
	if tree == nil {
		return nil
	}
	now, err := sys.ClockMonotonic.Now()
	if err != nil {
		return err
	}
	rec := perf.Cgroup{}
	rec.Misc = perf.MiscStatusOnly
	rec.SampleID.Time = uint64(now)
	prefix := ""
	if tree.Root != "/" && !strings.HasPrefix(tree.Root, "/..") {
		prefix = tree.Root // the kernel's records have the whole path
	}
	return tree.Walk(func(id uint64, path string) error {
		path = strings.TrimSuffix(prefix+path, "/")
		rec.ID, rec.Path = id, cmp.Or(path, "/")
		t.r.names.saw(id, rec.Path)
		return t.write(&rec)
	})
}

// scope is whose state the samples need.
func (r *Recorder) scope() (snapshot.Scope, error) {
	var s snapshot.Scope
	seen := make(map[int]bool)
	add := func(pid int) {
		if !seen[pid] {
			seen[pid] = true
			s.PIDs = append(s.PIDs, pid)
		}
	}
	t := &r.opts.Target
	switch {
	case len(t.Cgroups) > 0:
		for _, dir := range t.Cgroups {
			pids, err := cgroupTasks(dir)
			if err != nil {
				return s, err
			}
			for _, pid := range pids {
				add(pid)
			}
		}
	case t.tasks():
		for _, pid := range t.PIDs {
			add(pid)
		}
		for _, tid := range t.TIDs {
			st, err := r.fs.Proc(tid).Status()
			if procfs.Gone(err) {
				continue
			}
			if err != nil {
				return s, fmt.Errorf("thread %d: %w", tid, err)
			}
			add(st.TGID)
		}
	case r.set.onExec:
	default:
		s.All = true
	}
	return s, nil
}

// cgroupTasks lists the processes in a cgroup and all below it.
func cgroupTasks(dir string) ([]int, error) {
	var pids []int
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if path != dir && procfs.Gone(err) {
				return nil
			}
			return err
		}
		if !d.IsDir() {
			return nil
		}
		text, err := readText(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			return nil // gone, or a threaded cgroup: its root lists the processes
		}
		for line := range strings.Lines(text) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list tasks of cgroup: %w", err)
	}
	return pids, nil
}
