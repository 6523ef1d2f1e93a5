// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proctable

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/perf"
)

// at gives a record its time.
func at(time uint64, rec perf.Record) perf.Record {
	perf.SampleIDOf(rec).Time = time
	return rec
}

func forked(time uint64, pid, tid, ppid, ptid int32) perf.Record {
	return at(time, &perf.Fork{Task: perf.Task{PID: pid, TID: tid, PPID: ppid, PTID: ptid, Time: time}})
}

func exited(time uint64, pid, tid int32) perf.Record {
	return at(time, &perf.Exit{Task: perf.Task{PID: pid, TID: tid, Time: time}})
}

func named(time uint64, pid, tid int32, name string, misc perf.Misc) perf.Record {
	rec := &perf.Comm{PID: pid, TID: tid, Comm: name}
	rec.Misc = misc
	return at(time, rec)
}

func mapped(time uint64, pid int32, from, to uint64, file string, misc perf.Misc) perf.Record {
	rec := &perf.Mmap2{PID: pid, TID: pid, Addr: from, Len: to - from, PgOff: 0x1000, Prot: 5, Filename: file}
	rec.Misc = misc
	return at(time, rec)
}

// told is what a status says.
func told(t *testing.T, s *Status) (list []string) {
	t.Helper()
	ev := perf.NewEvent(perf.Attr{SampleType: perf.RawSampleType, Flags: perf.AttrSampleIDAll}, "dummy", 7)
	err := s.Records(777, func(raw perf.Raw) error {
		rec, err := perf.Decode(raw, perf.NativeOrder, ev)
		if err != nil {
			return err
		}
		id := perf.SampleIDOf(rec)
		if id.Time != 777 || raw.Misc()&perf.MiscStatusOnly == 0 {
			t.Errorf("%T at %d, misc %#x", rec, id.Time, raw.Misc())
		}
		text := ""
		switch r := rec.(type) {
		case *perf.Fork:
			text = fmt.Sprintf("fork %d/%d of %d", r.PID, r.TID, r.PPID)
			if r.Time != 777 || r.Misc&perf.MiscForkExec == 0 || id.ID != 7 {
				t.Errorf("%+v", r)
			}
		case *perf.Comm:
			text = fmt.Sprintf("comm %d/%d %s", r.PID, r.TID, r.Comm)
			if r.Misc&perf.MiscCommExec != 0 {
				t.Errorf("%s executes a program", r.Comm)
			}
		case *perf.Mmap2:
			text = fmt.Sprintf("mmap %d %x-%x+%x %s", r.PID, r.Addr, r.Addr+r.Len, r.PgOff, r.Filename)
		case *perf.Namespaces:
			text = fmt.Sprintf("ns %d/%d %d", r.PID, r.TID, r.Links[perf.NSMnt].Ino)
		case *perf.Cgroup:
			text = fmt.Sprintf("cgroup %d %s", r.ID, r.Path)
		case *perf.Ksymbol:
			text = "symbol " + r.Name
		case *perf.BPFEvent:
			text = fmt.Sprintf("program %d", r.ID)
		default:
			return errors.New("another record")
		}
		list = append(list, text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestStatus(t *testing.T) {
	const status, exec = perf.MiscStatusOnly, perf.MiscCommExec
	ns := func(time uint64, pid, tid int32, ino uint64) perf.Record {
		rec := &perf.Namespaces{PID: pid, TID: tid, Links: make([]perf.NSLink, NumNS)}
		rec.Links[perf.NSMnt].Ino = ino
		return at(time, rec)
	}
	symbol := func(time uint64, addr uint64, flags uint16) perf.Record {
		return at(time, &perf.Ksymbol{Addr: addr, Len: 8, Flags: flags, Name: fmt.Sprintf("s%x", addr)})
	}
	program := func(time uint64, id uint32, kind uint16) perf.Record {
		return at(time, &perf.BPFEvent{ID: id, EventType: kind})
	}
	begin := []perf.Record{named(1, 5, 5, "sh", status), ns(1, 5, 5, 9), mapped(1, 5, 0x10, 0x20, "/sh", status)}
	for _, tt := range []struct {
		name    string
		records []perf.Record // as they are read
		want    string        // beside what process 5 says, with commas
	}{
		{"a child has all of its parent, and its own later", []perf.Record{forked(2, 6, 6, 5, 5),
			mapped(3, 6, 0x30, 0x40, "/lib", 0), ns(3, 6, 6, 10)},
			"fork 6/6 of 5, ns 6/6 10, comm 6/6 sh, mmap 6 10-20+1000 /sh, mmap 6 30-40+1000 /lib"},
		{"another program", []perf.Record{forked(2, 6, 6, 5, 5), named(3, 6, 6, "ls", exec),
			mapped(4, 6, 0x50, 0x60, "/ls", 0)},
			"fork 6/6 of 5, ns 6/6 9, comm 6/6 ls, mmap 6 50-60+1000 /ls"},
		{"read out of order", []perf.Record{mapped(4, 6, 0x50, 0x60, "/ls", 0), named(3, 6, 6, "ls", exec),
			forked(2, 6, 6, 5, 5)},
			"fork 6/6 of 5, ns 6/6 9, comm 6/6 ls, mmap 6 50-60+1000 /ls"},
		{"a mapping in the middle of another", []perf.Record{forked(2, 6, 6, 5, 5), mapped(3, 6, 0x14, 0x18, "/in", 0)},
			"fork 6/6 of 5, ns 6/6 9, comm 6/6 sh, mmap 6 10-14+1000 /sh, mmap 6 14-18+1000 /in, " +
				"mmap 6 18-20+1008 /sh"},
		{"the snapshot is late", []perf.Record{mapped(2, 6, 0x14, 0x18, "/in", 0), named(3, 6, 6, "late", status),
			mapped(3, 6, 0x10, 0x20, "/sh", status), mapped(3, 6, 0x14, 0x18, "/old", status)},
			"fork 6/6 of 0, comm 6/6 late, mmap 6 10-14+1000 /sh, mmap 6 14-18+1000 /in, mmap 6 18-20+1008 /sh"},
		{"threads", []perf.Record{forked(2, 6, 6, 5, 5), forked(3, 6, 7, 6, 6), named(4, 6, 7, "worker", 0)},
			"fork 6/6 of 5, ns 6/6 9, comm 6/6 sh, fork 6/7 of 6, ns 6/7 9, comm 6/7 worker, mmap 6 10-20+1000 /sh"},
		{"a thread executes a program, with the number of the first one", []perf.Record{forked(2, 6, 6, 5, 5),
			forked(3, 6, 7, 6, 6), exited(4, 6, 6), named(5, 6, 6, "new", exec), named(3_000_000_000, 5, 5, "sh", 0)},
			"fork 6/6 of 5, ns 6/6 9, comm 6/6 new"},
		{"an exit is remembered for a moment", []perf.Record{forked(2, 6, 6, 5, 5), exited(3, 6, 6)},
			"fork 6/6 of 5, ns 6/6 9, comm 6/6 sh, mmap 6 10-20+1000 /sh"},
		{"and then forgotten", []perf.Record{forked(2, 6, 6, 5, 5), exited(3, 6, 6),
			named(3_000_000_000, 5, 5, "sh", 0)}, ""},
		{"the number is another's", []perf.Record{forked(2, 6, 6, 5, 5), mapped(3, 6, 0x30, 0x40, "/lib", 0),
			exited(4, 6, 6),
			forked(5, 6, 6, 5, 5)}, "fork 6/6 of 5, ns 6/6 9, comm 6/6 sh, mmap 6 10-20+1000 /sh"},
		{"what the kernel has", []perf.Record{symbol(2, 0x100, 0), symbol(3, 0x200, 0),
			symbol(4, 0x100, perf.KsymbolUnregister),
			program(2, 1, perf.BPFEventProgLoad), program(2, 2, perf.BPFEventProgLoad),
			program(3, 1, perf.BPFEventProgUnload),
			at(2, &perf.Cgroup{ID: 3, Path: "/c"}), at(2, &perf.Cgroup{ID: 4, Path: "/gone"})},
			"symbol s200, program 2, cgroup 3 /c"},
		{"not yet", []perf.Record{forked(5_000_000_000, 6, 6, 5, 5)}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := NewStatus(7)
			for _, rec := range append(slices.Clone(begin), tt.records...) {
				s.Add(raw(t, rec))
				if len(tt.records) > 5 {
					s.Advance(1) // in steps
				}
			}
			s.Advance(4_000_000_000)
			s.KeepCgroups(map[uint64]bool{3: true})
			ofBegin := []string{"fork 5/5 of 0", "ns 5/5 9", "comm 5/5 sh", "mmap 5 10-20+1000 /sh"}
			var got []string
			for _, line := range told(t, s) {
				if !slices.Contains(ofBegin, line) {
					got = append(got, line)
				}
			}
			if text := strings.Join(got, ", "); text != tt.want {
				t.Errorf("got  %s\nwant %s", text, tt.want)
			}
			n := 0
			if err := s.Recent(func(perf.Raw) error { n++; return nil }); err != nil || n != b2n(tt.name == "not yet") {
				t.Errorf("%d records wait, %v", n, err)
			}
		})
	}
}

func b2n(b bool) int {
	if b {
		return 1
	}
	return 0
}
