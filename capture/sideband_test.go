// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"bytes"
	"testing"

	"github.com/gantry-tools/gantry/capture/binaries"
	"github.com/gantry-tools/gantry/capture/proctable"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/perf"
)

// sidebandEvent is an event whose records are laid out as the recorder's.
func sidebandEvent() *perf.Event { return perf.NewEvent(sidebandAttr(false), "dummy:u", 7) }

// encode makes the record that the kernel would write.
func encode(t testing.TB, rec perf.Record) perf.Raw {
	t.Helper()
	*perf.SampleIDOf(rec) = perf.SampleIDInfo{PID: 5, TID: 6, Time: 12345, CPU: 1, ID: 7}
	raw, err := perf.Append(nil, rec, perf.NativeOrder, sidebandEvent())
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// newSidebandReader returns a reader of the records of no ring.
func newSidebandReader(t *testing.T) *sidebandReader {
	t.Helper()
	k := binaries.New(new(binaries.Options), procfs.FS{})
	t.Cleanup(k.Close)
	w := &sidebandReader{table: proctable.New(procfs.FS{}, 0)}
	w.mappings = binaries.NewMappings(procfs.FS{}, w.table, k)
	t.Cleanup(w.mappings.Close)
	return w
}

// What a ring holds reaches the process table, and its losses are counted.
func TestSidebandReader(t *testing.T) {
	w := newSidebandReader(t)
	var r ring
	const pid = 1 << 30 // of no process
	see := func(rec perf.Record) {
		t.Helper()
		raw := encode(t, rec)
		if err := w.learn(&r, raw); err != nil {
			t.Fatal(err)
		}
		if err := w.read(&r, raw); err != nil {
			t.Fatal(err)
		}
	}
	links := make([]perf.NSLink, perf.NSCgroup+1)
	links[perf.NSMnt] = perf.NSLink{Dev: 4, Ino: 4026531841}
	see(&perf.Namespaces{PID: pid, TID: pid, Links: links})
	if w.table.MountNS(pid) != (proctable.MountNS{Ino: 4026531841}) {
		t.Errorf("mount namespace is %v", w.table.MountNS(pid))
	}
	see(&perf.Lost{N: 42})
	if r.tally.lost != 42 || r.tally.records != 2 {
		t.Errorf("%+v", r.tally)
	}
	see(&perf.Exit{Task: perf.Task{PID: pid, PPID: 1, TID: pid, PTID: 1}})
	for range 2 {
		w.round()
	}
	if w.table.MountNS(pid) != (proctable.MountNS{}) {
		t.Error("a process is not forgotten after its end")
	}
	for typ := range perf.RecordType(30) { // cut off: nothing is read behind the end
		raw := perf.Header{Type: typ, Size: perf.HeaderSize}.Append(nil, perf.NativeOrder)
		w.record(&r, raw[:8:8])
	}
	if err := w.read(&r, make([]byte, 4)); err == nil {
		t.Error("no error for a record that is cut off")
	}
}

// The mapping of data, which dumped stacks come with, is left as it is: its
// file is no program to identify or keep.
func TestDataMappings(t *testing.T) {
	rec := &perf.Mmap2{PID: 5, TID: 5, Addr: 0x1000, Len: 0x1000, Maj: 8, Ino: 3, Filename: "/var/db"}
	rec.Misc = perf.MiscMmapData
	raw := encode(t, rec)
	want := bytes.Clone(raw)
	// The kernel leaves the bit of another recording's record.
	raw.SetMisc(perf.MiscMmapData | perf.MiscMmapBuildID)
	w := newSidebandReader(t)
	w.record(new(ring), raw)
	if !bytes.Equal(raw, want) || w.mappings.Lookups() != 0 {
		t.Errorf("%x; want %x", raw, want)
	}
}
