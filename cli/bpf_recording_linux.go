// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/gantry-tools/gantry/capture/bpfprog"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// recordedBPF is a program of a recording.
type recordedBPF struct {
	bpfProgram
	details *bpfprog.Details // nil if there are none
}

// bpfRecording is what a recording says of programs.
type bpfRecording struct {
	programs []recordedBPF
}

// readBPFRecording reads a recording, of gantry or of perf.
func readBPFRecording(e *env, path string) (*bpfRecording, error) {
	r, err := openRecording(path, e.stdin)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	// A stream, or a file that was not finished, has it among the records.
	ft := r.Features()
	var events bpfEvents
	if whole := len(ft.Gantry) > 0 && ft.Has(perfdata.FeatureSampleTime); !whole {
		if err := events.read(r); err != nil {
			return nil, err
		}
	}
	for _, w := range r.Warnings() {
		fmt.Fprintf(e.stderr, "gantry: %s: %s\n", container.Printable(path), container.Printable(w.String()))
	}
	lives, err := perfdata.DecodeGantryBPF(ft.Gantry)
	if err != nil {
		return nil, err
	}
	lives = events.add(lives)
	if err := events.nameLoaders(r, lives); err != nil {
		return nil, err
	}
	details, err := bpfDetails(ft, r)
	if err != nil {
		fmt.Fprintf(e.stderr, "gantry: some BPF programs cannot be read: %v\n", err)
	}
	table := new(container.Table)
	if len(ft.Gantry) > 0 {
		if err := json.Unmarshal(ft.Gantry, table); err != nil {
			return nil, fmt.Errorf("read containers: %w", err)
		}
	}
	wall := func(ns uint64) time.Time { return time.Unix(0, int64(ns)) }
	if c := ft.ClockData; c != nil {
		wall = func(ns uint64) time.Time { return time.Unix(0, int64(c.WallNS+ns-c.ClockNS)) }
	}
	names := newBPFNames(table)
	rec := new(bpfRecording)
	for i := range lives {
		d := details[lives[i].ID]
		delete(details, lives[i].ID)
		rec.programs = append(rec.programs, recordedBPF{names.entry(&lives[i], d, wall), d})
	}
	for _, d := range details { // perf tells no lives
		p := recordedBPF{details: d}
		p.fill(d)
		p.Before = true
		rec.programs = append(rec.programs, p)
	}
	slices.SortStableFunc(rec.programs, func(a, b recordedBPF) int { return cmp.Compare(a.ID, b.ID) })
	return rec, nil
}

// bpfDetails reads the details of all programs. With an error it has what could
// be read.
func bpfDetails(f *perfdata.Features, r *perfdata.Reader) (map[uint32]*bpfprog.Details, error) {
	programs, err := perfdata.DecodeBPFPrograms(f.BPFProgInfo, r.Order())
	types, btfErr := perfdata.DecodeBPFBTF(f.BPFBTF, r.Order())
	btf := make(map[uint32][]byte)
	for _, t := range types {
		btf[t.ID] = t.Data
	}
	list := make(map[uint32]*bpfprog.Details)
	for _, p := range programs {
		list[p.ID] = &bpfprog.Details{BPFProgram: p, BTF: btf[p.BTFID]}
	}
	return list, errors.Join(err, btfErr)
}

// find is the program with an id, or an error that lists what there is.
func (r *bpfRecording) find(id uint32) (*recordedBPF, error) {
	for i := range r.programs {
		if r.programs[i].ID == id {
			return &r.programs[i], nil
		}
	}
	var ids []string
	for _, p := range r.programs {
		ids = append(ids, strconv.Itoa(int(p.ID)))
	}
	return nil, hint.Wrap(fmt.Errorf("BPF program %d: %w", id, os.ErrNotExist),
		"the recording has "+cmp.Or(someOf(ids), "none"))
}

// bpfEvents are the programs that the kernel's records tell of: all there is in a
// file of perf, or of a recorder that was killed.
type bpfEvents struct {
	lives map[uint32]*perfdata.BPFProgramLife
	names map[string]string // of programs, by tag
	comms map[int32][]bpfComm
}

// bpfComm is the name of a process from a time on, in nanoseconds of the recording.
type bpfComm struct {
	time uint64
	comm string
}

// read reads the records to their end.
func (b *bpfEvents) read(r *perfdata.Reader) error {
	b.lives, b.names = make(map[uint32]*perfdata.BPFProgramLife), make(map[string]string)
	b.comms = make(map[int32][]bpfComm)
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if rec.Type != perf.RecordBPFEvent && rec.Type != perf.RecordKsymbol && rec.Type != perf.RecordComm {
			continue
		}
		decoded, err := perf.Decode(rec.Raw, r.Order(), rec.Event)
		if err != nil {
			continue
		}
		switch x := decoded.(type) {
		case *perf.BPFEvent:
			b.event(x, rec)
		case *perf.Ksymbol:
			b.symbol(x.Name)
		case *perf.Comm:
			if x.PID == x.TID {
				b.comms[x.PID] = append(b.comms[x.PID], bpfComm{rec.Time, x.Comm})
			}
		}
	}
}

// lacksLoaderName reports whether a program was loaded by a process whose name is not
// known.
func lacksLoaderName(l perfdata.BPFProgramLife) bool {
	return l.Loader != nil && l.Loader.Comm == "" && l.Loaded != 0
}

// nameLoaders gives loaders without a name, which were gone before /proc was read, the
// one that their process had then. The records are read for it, unless they were.
func (b *bpfEvents) nameLoaders(r *perfdata.Reader, lives []perfdata.BPFProgramLife) error {
	if !slices.ContainsFunc(lives, lacksLoaderName) {
		return nil
	}
	if b.comms == nil {
		if err := b.read(r); err != nil {
			return err
		}
	}
	for _, list := range b.comms {
		slices.SortStableFunc(list, func(a, b bpfComm) int { return cmp.Compare(a.time, b.time) })
	}
	for _, l := range lives {
		if !lacksLoaderName(l) {
			continue
		}
		list := b.comms[l.Loader.PID]
		if i := sort.Search(len(list), func(i int) bool { return list[i].time > l.Loaded }); i > 0 {
			l.Loader.Comm = list[i-1].comm
		}
	}
	return nil
}

// symbol keeps the name in bpf_prog_TAG_NAME.
func (b *bpfEvents) symbol(symbol string) {
	rest, ok := strings.CutPrefix(symbol, "bpf_prog_")
	if tag, name, _ := strings.Cut(rest, "_"); ok && name != "" {
		b.names[tag] = name
	}
}

func (b *bpfEvents) event(x *perf.BPFEvent, rec *perfdata.Record) {
	if x.EventType != perf.BPFEventProgLoad && x.EventType != perf.BPFEventProgUnload {
		return
	}
	l := b.lives[x.ID]
	if l == nil {
		l = &perfdata.BPFProgramLife{ID: x.ID}
		b.lives[x.ID] = l
	}
	if x.Tag != [8]byte{} {
		l.Tag = hex.EncodeToString(x.Tag[:])
	}
	synthesized := !rec.HasTime || rec.Time == 0 || x.Misc&perf.MiscStatusOnly != 0 // of what was there
	switch {
	case x.EventType == perf.BPFEventProgUnload:
		l.Unloaded = rec.Time
	case !synthesized:
		l.Loaded, l.Before = rec.Time, false
	case l.Loaded == 0:
		l.Before = true
	}
}

// add puts what the records tell to what is known.
func (b *bpfEvents) add(known []perfdata.BPFProgramLife) []perfdata.BPFProgramLife {
	for i := range known {
		l := &known[i]
		if x := b.lives[l.ID]; x != nil {
			l.Unloaded = cmp.Or(l.Unloaded, x.Unloaded)
			delete(b.lives, l.ID)
		}
	}
	for _, l := range b.lives {
		l.Name = b.names[l.Tag]
		known = append(known, *l)
	}
	return known
}
