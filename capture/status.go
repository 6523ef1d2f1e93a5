// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"context"
	"fmt"

	"github.com/gantry-tools/gantry/capture/snapshot"
)

// openSource chooses how to find out what runs, if the target needs that at
// all. BPF programs are loaded here, before any event is open: it takes long.
func (r *Recorder) openSource() {
	t := &r.opts.Target
	switch {
	case r.opts.Snapshot != nil:
		r.source = r.opts.Snapshot
		return
	case len(t.Cgroups) == 0 && t.tasks():
		// Of these few all sideband is recorded, so that reading /proc
		// misses nobody.
		r.source = snapshot.ChooseProc(r.fs)
	case len(t.Containers)+len(t.Cgroups) == 0 && r.child != nil && !t.All:
		return // the command, which is not yet there
	default:
		c := snapshot.Choose(r.fs)
		for _, no := range c.Refused {
			if no.Method == snapshot.ByBPF {
				r.notes = append(r.notes, "what runs is read from /proc, which can miss short processes: "+no.Why)
			}
		}
		r.source = c
	}
	r.files = append(r.files, r.source)
}

// writeStatus writes what there was before the first sample. The sideband is
// enabled already.
func (r *Recorder) writeStatus(ctx context.Context) error {
	s := r.synthesizer()
	s.Drain, s.DataMaps = r.drain, r.opts.dumpsStacks()
	s.Pause = func() error {
		if !r.crowded() {
			return nil
		}
		return r.pass()
	}
	hidden, err := s.Kernel()
	if err != nil {
		return err
	}
	if hidden && r.set.kernelSampled() {
		r.result.note("kernel functions will have no names: their addresses are hidden (sysctl " +
			"kernel.kptr_restrict, CAP_SYSLOG)")
	}
	if err := r.bpf.status(r.writeRecord); err != nil {
		return err
	}
	if err := s.Cgroups(); err != nil {
		return err
	}
	if scope, ok := r.scope(); ok {
		if err := r.writeTasks(ctx, s, scope); err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
	} else {
		r.names.namespaced.Finish(false) // no snapshot is taken that could tell
	}
	if err := r.writeContainers(); err != nil {
		return err
	}
	// From here on a killed recorder leaves a file.
	if err := r.out.FinishRound(); err != nil {
		return writeError(err)
	}
	return nil
}

func (r *Recorder) writeTasks(ctx context.Context, s *snapshot.Synthesizer, scope snapshot.Scope) error {
	res, err := s.Tasks(ctx, r.source, scope)
	r.mappings.EndSnapshot()
	r.snapshot = res
	if len(res.HeldUp) > 0 {
		r.result.note("what %d processes have mapped is not known, such as pid %d: they hold their memory locked, "+
			"as one does that waits for a file system", len(res.HeldUp), res.HeldUp[0])
	}
	// One process may be denied: the first, which some machines hide. It is the
	// host itself.
	whole := scope.All && !r.blind() && err == nil && res.Denied <= 1 && res.Unreadable == 0
	r.names.namespaced.Finish(whole)
	return err
}

// scope is the tasks whose state the samples need; not ok: none.
func (r *Recorder) scope() (s snapshot.Scope, ok bool) {
	t := &r.opts.Target
	switch {
	case len(t.Containers) > 0:
		s.All = true // any task may enter one
	case len(t.Cgroups) > 0:
		s.Cgroups = t.Cgroups
	case t.tasks():
		s.PIDs = append(s.PIDs, t.PIDs...)
		for _, tid := range t.TIDs {
			// One that has gone needs nothing.
			if st, err := r.fs.Proc(tid).Status(); err == nil {
				s.PIDs = append(s.PIDs, st.TGID)
			}
		}
	case r.set.onExec:
		return s, false
	default:
		s.All = true
	}
	return s, r.source != nil
}
