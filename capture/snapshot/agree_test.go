// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// sideband collects the records of all mappings on this machine.
type sideband struct {
	t     *testing.T
	event *perf.Event
	rings []*perfevent.Ring
}

func listen(t *testing.T) *sideband {
	t.Helper()
	a := perf.Attr{
		Type: perf.TypeSoftware, Config: perf.SWDummy, SampleCount: 1,
		SampleType: perf.SampleIdentifier | perf.SampleTID | perf.SampleTime,
		Flags:      perf.AttrDisabled | perf.AttrSampleIDAll | perf.AttrMmap | perf.AttrMmap2 | perf.AttrComm | perf.AttrCommExec | perf.AttrTask,
	}
	s := &sideband{t: t, event: perf.NewEvent(a, "dummy")}
	cpus, err := sys.OnlineCPUs()
	if err != nil {
		t.Fatal(err)
	}
	for _, cpu := range cpus {
		ev, err := perfevent.Open(&a, perfevent.Target{PID: perfevent.Any, CPU: cpu}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ev.Close() })
		ring, err := perfevent.NewRing(ev, 1024) // also for all that others start meanwhile
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ring.Close() })
		if err := ev.Enable(); err != nil {
			t.Fatal(err)
		}
		s.rings = append(s.rings, ring)
	}
	return s
}

// mappings are what the processes have mapped since their last exec, in the
// order of time, as the sideband tells.
func (s *sideband) mappings(pids map[string]int) map[int32][]perf.Mmap2 {
	s.t.Helper()
	ours := make(map[int32]bool)
	for _, pid := range pids {
		ours[int32(pid)] = true
	}
	maps := make(map[int32][]perf.Mmap2)
	execs := make(map[int32]uint64)
	var scratch []byte
	for _, ring := range s.rings {
		a, b := ring.Peek()
		for raw, err := range perfevent.Records(a, b, &scratch) {
			if err != nil {
				s.t.Fatal(err)
			}
			if perf.ParseHeader(raw, perf.LittleEndian).Type == perf.RecordLost {
				s.t.Fatal("records were lost")
			}
			rec, err := perf.Decode(raw, perf.LittleEndian, s.event)
			if err != nil {
				s.t.Fatal(err)
			}
			switch rec := rec.(type) {
			case *perf.Comm:
				if rec.Misc&perf.MiscCommExec != 0 {
					execs[rec.PID] = max(execs[rec.PID], rec.SampleID.Time)
				}
			case *perf.Mmap2:
				if ours[rec.PID] {
					maps[rec.PID] = append(maps[rec.PID], *rec)
				}
			}
		}
	}
	for pid, list := range maps {
		var since []perf.Mmap2
		for _, m := range list {
			if m.SampleID.Time > execs[pid] {
				since = append(since, m)
			}
		}
		maps[pid] = since
	}
	return maps
}

// sameAs says what the status record got has otherwise than a record of the
// kernel that covers its beginning; "" if nothing. The file may have lost its
// name since, and areas without a file may have grown together.
func sameAs(got, live *perf.Mmap2) string {
	cut := got.Addr - live.Addr
	anon := live.Filename == "//anon" || strings.HasPrefix(live.Filename, "[")
	switch {
	case got.Filename != live.Filename && got.Filename != live.Filename+" (deleted)":
		return "name"
	case !anon && got.PgOff != live.PgOff+cut:
		return "offset"
	case got.Maj != live.Maj || got.Min != live.Min || got.Ino != live.Ino || got.InoGen != live.InoGen:
		return "file"
	case got.Prot != live.Prot:
		return "protection"
	case got.Flags != live.Flags:
		return "flags"
	}
	return ""
}

// What a status record says of a mapping is what the kernel said when it was
// made: of programs in a chroot or a memory file, of huge and locked pages.
func TestAgreesWithSideband(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tool("gcc"))
	bpf := newBPF(t)
	prog := quietProgram(t)
	s := listen(t)
	pids := startQuiet(t, prog)
	var scope Scope
	for _, pid := range pids {
		scope.PIDs = append(scope.PIDs, pid)
	}
	got := take(t, bpf, scope)
	live := s.mappings(pids)
	for what, pid := range pids {
		pid := int32(pid)
		if len(got.maps[pid]) == 0 {
			t.Errorf("%s: nothing is mapped", what)
		}
		for i := range got.maps[pid] {
			m := &got.maps[pid][i]
			if why := agrees(m, live[pid]); why != "" {
				t.Errorf("%s: %s: %s", what, mapText(m), why)
			}
		}
	}
}

// agrees looks for a record of the kernel that says the same.
func agrees(m *perf.Mmap2, live []perf.Mmap2) string {
	why := "the kernel said nothing of it"
	for i := range live {
		l := &live[i]
		if m.Addr < l.Addr || m.Addr >= l.Addr+l.Len {
			continue
		}
		if why = sameAs(m, l); why == "" {
			return ""
		}
		why += " is other than in " + mapText(l)
	}
	return why
}
