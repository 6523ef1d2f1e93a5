// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gantry-tools/gantry/capture/bpfprog"
	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// bpfWatch reads BPF programs, those that run and those that are loaded. nil:
// nobody may.
type bpfWatch struct {
	watcher        *bpfprog.Watcher
	programs       *bpfprog.ProgramTable
	cancel         context.CancelFunc
	done           chan error // nil: not started
	checkpointed   uint64     // programs whose details a killed recorder leaves
	nextCheckpoint time.Time  // when those of others are shown, at the earliest
	// info and btf are what files say of programs, when one less than encoded had details.
	info, btf []byte
	encoded   uint64
}

// maxCheckpoint bounds the details that a killed recorder leaves of programs that were loaded
// meanwhile, in bytes: they are written with each round.
const maxCheckpoint = 1 << 20

// checkpointInterval is how often they are written at most.
const checkpointInterval = time.Second

// openBPF opens the watch of BPF programs. They are read whatever the target is:
// a task may run anybody's. It is not for users without privilege, who do without.
func (r *Recorder) openBPF() error {
	if r.opts.NoBPFEvent {
		return nil
	}
	// The BPF program is worth its time to load where the machine is recorded.
	t := &r.opts.Target
	own := t.tasks() || r.opts.Command != nil && !t.All && len(t.Containers)+len(t.Cgroups) == 0
	w, err := bpfprog.OpenWatcher(bpfprog.WatchOptions{FS: r.fs, NoCopy: own})
	if errors.Is(err, perfevent.ErrPermission) || errors.Is(err, perfevent.ErrUnsupported) ||
		errors.Is(err, perfevent.ErrLockedMemory) {
		if !own {
			r.notes = append(r.notes, fmt.Sprintf("BPF programs are not read: %v", err))
		}
		return nil
	}
	if err != nil {
		return err
	}
	r.files = append(r.files, w)
	if err := w.Refused(); err != nil {
		r.notes = append(r.notes, fmt.Sprintf("BPF programs that live less than a millisecond may be missed: %v", err))
	}
	r.bpf = &bpfWatch{watcher: w, programs: w.Table()}
	return nil
}

// begin reads the programs that run, before the file is begun: its features
// tell of them also if the recorder is killed.
func (b *bpfWatch) begin(bootOffset uint64) error {
	if b == nil {
		return nil
	}
	if err := b.watcher.Start(bootOffset); err != nil {
		return err
	}
	// Without the right to, those that are loaded from now on may still be read.
	if err := b.watcher.ReadAll(); err != nil {
		b.programs.Note(err.Error())
	}
	return nil
}

// start watches in the background until wait is called.
func (b *bpfWatch) start() {
	if b == nil {
		return
	}
	var ctx context.Context
	ctx, b.cancel = context.WithCancel(context.Background())
	b.done = make(chan error, 1)
	go func() { b.done <- b.watcher.Run(ctx) }()
}

// wait ends the watch.
func (b *bpfWatch) wait() error {
	if b == nil || b.done == nil {
		return nil
	}
	b.cancel()
	return <-b.done
}

// features fills in what the file says of programs.
func (b *bpfWatch) features(f *perfdata.Features) {
	if b != nil {
		b.checkpointed, _ = b.programs.Taken() // before they are encoded: none is taken for shown that is not
		if b.encoded != b.checkpointed+1 {
			b.info, b.btf = b.programs.Sections()
			b.encoded = b.checkpointed + 1
		}
		f.BPFProgInfo, f.BPFBTF = b.info, b.btf
	}
}

// checkpoint has the file show the details that are known by now if the recorder is
// killed: at most once a second, for all of them are written each time. Once they
// are too many, those stay that were shown last.
func (b *bpfWatch) checkpoint(out Sink) {
	if b == nil {
		return
	}
	n, size := b.programs.Taken()
	now := time.Now()
	if n == b.checkpointed || size > maxCheckpoint || now.Before(b.nextCheckpoint) {
		return
	}
	info, btf := b.programs.Sections()
	sections := map[perfdata.FeatureID][]byte{perfdata.FeatureBPFProgInfo: info}
	if btf != nil {
		sections[perfdata.FeatureBPFBTF] = btf
	}
	b.checkpointed, b.nextCheckpoint = n, now.Add(checkpointInterval)
	out.CheckpointFeatures(sections)
}

// programList are the programs' for gantry's section.
func (b *bpfWatch) programList() []perfdata.BPFProgramLife {
	if b == nil {
		return nil
	}
	return b.programs.List()
}

// sumUp says what of programs is not in the file.
func (b *bpfWatch) sumUp(res *Result) {
	if b == nil {
		return
	}
	t := b.programs.Tally()
	res.BPF = BPFPrograms{Loaded: t.Loads, Missed: t.Missed, Lost: t.Lost}
	for _, n := range t.Notes {
		res.note("BPF programs: %s", n)
	}
	if n := t.Lost + t.Forgot; n > 0 {
		res.note("%d records of BPF programs were lost", n)
	}
	if t.Missed > 0 {
		res.note("%d BPF programs have no details, as lines of source: 'gantry bpf log -i' says why", t.Missed)
	}
}

// status reports the programs that are there, as the kernel does new ones, by the
// clock of the recording.
func (b *bpfWatch) status(write func(perf.Record) error) error {
	if b == nil {
		return nil
	}
	// The sideband is enabled by now: what was loaded since begin is reported.
	_ = b.watcher.ReadAll() // begin has noted why not
	now, err := sys.ClockMonotonic.Now()
	if err != nil {
		return err
	}
	var list []*bpfprog.Details
	b.programs.Programs(func(p *bpfprog.Program) {
		if p.Details != nil && p.Unloaded == 0 {
			list = append(list, p.Details)
		}
	})
	for _, d := range list {
		for _, rec := range d.Symbols() {
			switch rec := rec.(type) {
			case *perf.Ksymbol:
				rec.Misc = perf.MiscStatusOnly
			case *perf.BPFEvent:
				rec.Misc = perf.MiscStatusOnly
			}
			perf.SampleIDOf(rec).Time = uint64(now)
			if err := write(rec); err != nil {
				return err
			}
		}
	}
	return nil
}

// addToSection adds the programs to gantry's section.
func (b *bpfWatch) addToSection(section []byte) ([]byte, error) {
	lives := b.programList()
	if len(lives) == 0 {
		return section, nil
	}
	return addParts(section, map[string]any{"bpf": lives})
}

// addParts adds fields to a JSON object.
func addParts(object []byte, parts map[string]any) ([]byte, error) {
	section := make(map[string]json.RawMessage)
	if err := json.Unmarshal(object, &section); err != nil {
		return nil, err
	}
	for name, v := range parts {
		b, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		section[name] = b
	}
	return json.Marshal(section)
}
