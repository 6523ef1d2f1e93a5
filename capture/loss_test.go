// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"testing"

	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// overflow is a shell on one CPU that starts dd for each line of its input: the
// ring in which something was lost gets the next record as well, which tells of it.
func overflow(t *testing.T) *testutil.Child {
	t.Helper()
	cpus, err := sys.OnlineCPUs()
	if err != nil {
		t.Fatal(err)
	}
	const script = "echo ready; while read n; do dd if=/dev/zero of=/dev/null bs=1 count=$n 2>/dev/null; echo $?; done"
	return testutil.StartReady(t, exec.Command("taskset", "-c", strconv.Itoa(cpus[0]), "sh", "-c", script))
}

// A ring of eight pages cannot hold what dd's system calls make while nobody
// reads it: what is lost is counted, by CPU and by the container that ran, and the
// sideband is not lost: that of dd, as what others do has no bounds.
func TestLossLedger(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tracefs, testutil.Tool("taskset"))
	shell := overflow(t)
	copies := func(n int) {
		if _, err := fmt.Fprintln(shell.In, n); err != nil {
			t.Error(err)
		}
		if status, err := shell.Out.ReadString('\n'); status != "0\n" {
			t.Errorf("dd: status %q, %v", status, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	passes := 0
	rec, err := runWith(ctx, t, Options{
		RingSize: 8 * sys.PageSize(), Resolver: resolver(t), Groups: groups(t, "raw_syscalls:sys_enter"),
		Target: Target{PIDs: []int{shell.Process.Pid}},
		Progress: func(Progress) { // the recorder reads nothing meanwhile
			switch passes++; passes {
			case 1:
				copies(100000)
			case 2:
				copies(1)
			case 3:
				cancel()
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := read(t, rec.path)
	var reported, counted uint64
	for _, r := range c.records {
		switch l := r.(type) {
		case *perf.Lost:
			reported += l.N
		case *perf.LostSamples:
			counted += l.N
		}
	}
	if reported == 0 {
		t.Fatal("nothing was lost")
	}
	// What was lost last has no LOST record. Readers of the file know it all the same.
	if max(reported, counted) != rec.res.Lost {
		t.Errorf("the file says %d, and %d in the end, and %d samples were lost", reported, counted, rec.res.Lost)
	}
	if rec.res.LostSideband != 0 {
		t.Errorf("%d records of sideband were lost", rec.res.LostSideband)
	}
	var byCPU, byGroup uint64
	for _, n := range c.table.Lost.CPUs {
		byCPU += n.Samples
	}
	for _, n := range c.table.Lost.Cgroups {
		byGroup += n.Samples
	}
	if byCPU != rec.res.Lost || byGroup == 0 || byGroup > reported || reported > rec.res.Lost {
		t.Errorf("lost %d, by cpu %d, by cgroup %d, LOST records tell of %d", rec.res.Lost, byCPU, byGroup, reported)
	}
	if len(rec.res.LostBy) == 0 || rec.res.LostBy[0].Label == "" {
		t.Errorf("lost by container: %+v", rec.res.LostBy)
	}
	// dd makes two system calls a byte: what is not there was counted as lost.
	if all := rec.res.Samples + rec.res.Lost; all < 200000 {
		t.Errorf("%d samples and %d lost are less than dd's 200000 calls", rec.res.Samples, rec.res.Lost)
	}
}

// ringBytes makes the records that a scanner sees.
type ringBytes struct{ b []byte }

func (r *ringBytes) add(typ perf.RecordType, body ...uint64) {
	r.b = perf.Header{Type: typ, Size: uint16(perf.HeaderSize + 8*len(body))}.Append(r.b, perf.NativeOrder)
	for _, w := range body {
		r.b = perf.NativeOrder.AppendUint64(r.b, w)
	}
}

// sample has the fields of perf.RawSampleType and, as its last word, the cgroup.
func (r *ringBytes) sample(time, cgroup uint64) {
	r.add(perf.RecordSample, 1, 2, 3, time, 4, cgroup)
}

func TestScanAtEveryWrap(t *testing.T) {
	var r ringBytes
	r.sample(100, 7)
	r.sample(110, 7)
	r.add(perf.RecordLost, 1, 5)
	r.sample(120, 8)
	r.add(perf.RecordLostSamples, 3)
	r.add(perf.RecordThrottle, 1, 2, 3)
	r.sample(130, 7)
	want := tally{records: 7, samples: 4, first: 100, last: 130, lost: 5, lostSamples: 3}
	for cut := 0; cut <= len(r.b); cut += 8 {
		s := scanner{cgroupLast: true, cgroups: map[uint64]uint64{}, lost: map[uint64]uint64{}}
		var got tally
		if err := s.scan(r.b[:cut], r.b[cut:], &got); err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		s.settle()
		if got != want || s.cgroups[7] != 3 || s.cgroups[8] != 1 || s.lost[8] != 5 || len(s.lost) != 1 {
			t.Fatalf("cut at %d: %+v, samples %v, lost %v", cut, got, s.cgroups, s.lost)
		}
	}
}

func FuzzScan(f *testing.F) {
	var r ringBytes
	r.sample(1, 2)
	r.add(perf.RecordLost, 1, 5)
	r.sample(3, 4)
	f.Add(r.b, 16)
	f.Add(r.b[:20], 0)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		if cut < 0 || cut > len(b) || cut%8 != 0 {
			return
		}
		s := scanner{cgroupLast: true, cgroups: map[uint64]uint64{}, lost: map[uint64]uint64{}}
		var got tally
		err := s.scan(b[:cut], b[cut:], &got)
		s.settle()
		var sum uint64
		for _, n := range s.cgroups {
			sum += n
		}
		if sum != got.samples || got.samples > got.records {
			t.Errorf("%+v, samples by cgroup %d, %v", got, sum, err)
		}
		if err == nil && got.records*perf.HeaderSize > uint64(len(b)) {
			t.Errorf("%d records in %d bytes", got.records, len(b))
		}
	})
}

// TestLostLast: what was lost last, of which no record tells as none found room after
// it, is in the file as perf has it.
func TestLostLast(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tracefs, testutil.Kernel("6.0"), testutil.Tool("taskset"))
	shell := overflow(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rec, err := runWith(ctx, t, Options{
		RingSize: 8 * sys.PageSize(), Resolver: resolver(t), Groups: groups(t, "raw_syscalls:sys_enter"),
		Target: Target{PIDs: []int{shell.Process.Pid}},
		Progress: func(Progress) {
			fmt.Fprintln(shell.In, 100000)
			if status, err := shell.Out.ReadString('\n'); status != "0\n" {
				t.Errorf("dd: status %q, %v", status, err)
			}
			cancel()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := read(t, rec.path)
	var counted uint64
	for _, r := range c.records {
		if l, ok := r.(*perf.LostSamples); ok {
			counted += l.N
		}
	}
	if rec.res.Lost == 0 || counted != rec.res.Lost {
		t.Errorf("%d samples were lost, the file says %d", rec.res.Lost, counted)
	}
}
