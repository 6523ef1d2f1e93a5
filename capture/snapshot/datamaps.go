// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"github.com/gantry-tools/gantry/capture/binaries"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/perf"
)

// dataMaps reports memory that shows programs and libraries but is not
// executable. perf finds their call frame information by it, and so cannot
// unwind the stacks of a process without.
type dataMaps struct {
	fs      procfs.FS
	scanner *procfs.MapsScanner
	list    []procfs.Mapping
	access  procroot.Access
	last    int32 // the process that was told of last
}

// of gives the mappings of the process that rec, the first of its mappings,
// is of; none for the mappings that follow.
func (d *dataMaps) of(rec *perf.Mmap2) []procfs.Mapping {
	if rec.PID == d.last {
		return nil
	}
	d.last = rec.PID
	l := &dataLister{scanner: d.scanner, list: d.list[:0], code: make(map[string]bool)}
	proc := d.fs.Proc(int(rec.PID))
	err := d.access.DoWithin(proc, firstHeldUp, func(*procroot.Op) { l.err = proc.Maps(l.scanner, l.add) })
	if err != nil { // it holds them locked: what the worker uses is its own
		d.scanner, d.list = procfs.NewMapsScanner(), nil
		return nil
	}
	if d.list = l.list; l.err != nil {
		return nil // it has ended
	}
	n := 0
	for _, m := range d.list {
		if l.code[m.Path] {
			d.list[n] = m
			n++
		}
	}
	return d.list[:n]
}

// dataLister lists the mappings of one process.
type dataLister struct {
	scanner *procfs.MapsScanner
	list    []procfs.Mapping
	code    map[string]bool // paths that are mapped executable
	err     error
}

func (l *dataLister) add(m *procfs.Mapping) error {
	switch {
	case m.Inode == 0 || !binaries.IsFile(m.Path):
	case m.Prot&procfs.ProtExec != 0:
		l.code[m.Path] = true
	case m.Prot&procfs.ProtRead != 0 && m.Prot&procfs.ProtWrite == 0:
		l.list = append(l.list, *m)
	}
	return nil
}

// write writes the records of the process that rec is of.
func (d *dataMaps) write(rec *perf.Mmap2, write func(perf.Record) error) error {
	for _, m := range d.of(rec) {
		data := perf.Mmap2{
			Trailer: rec.Trailer, PID: rec.PID, TID: rec.TID,
			Addr: m.Start, Len: m.End - m.Start, PgOff: m.Offset,
			Maj: m.DevMajor, Min: m.DevMinor, Ino: m.Inode, Prot: uint32(m.Prot), Flags: shareFlags(false),
			Filename: m.Path,
		}
		data.Misc = rec.Misc&^perf.MiscMmapBuildID | perf.MiscMmapData
		if err := write(&data); err != nil {
			return err
		}
	}
	return nil
}
