// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/perf"
)

// sidebandEvent is an event whose records are laid out as the recorder's.
func sidebandEvent() *perf.Event { return perf.NewEvent(sidebandAttr(false), "dummy:u", 7) }

// encode makes the record that the kernel would write.
func encode(t testing.TB, rec perf.Record) []byte {
	t.Helper()
	*perf.SampleIDOf(rec) = perf.SampleIDInfo{PID: 5, TID: 6, Time: 12345, CPU: 1, ID: 7}
	raw, err := perf.Append(nil, rec, nativeOrder, sidebandEvent())
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// The kernel makes records of BPF programs too long where there are several
// recordings, and leaves at their end what was in the ring before.
func TestMendTrailer(t *testing.T) {
	for _, rec := range []perf.Record{
		&perf.Ksymbol{Addr: 0xffffffffc0000000, Len: 44, KsymType: 1, Name: "bpf_prog_2a71da1e"}, // padded
		&perf.Ksymbol{Addr: 0xffffffffc0000000, Len: 44, KsymType: 1, Name: "bpf_prog_2a71da"},   // just fits
		&perf.BPFEvent{EventType: 1, ID: 255, Tag: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}},
	} {
		plain := encode(t, rec)
		want, err := perf.Decode(plain, nativeOrder, sidebandEvent())
		if err != nil {
			t.Fatal(err)
		}
		for others := range 3 {
			raw := append(bytes.Clone(plain), bytes.Repeat([]byte{0xee}, others*trailerSize)...)
			nativeOrder.PutUint16(raw[6:], uint16(len(raw)))
			w := sidebandWalker{event: sidebandEvent()}
			if err := w.record(&ring{}, raw); err != nil {
				t.Fatal(err)
			}
			got, err := perf.Decode(raw, nativeOrder, sidebandEvent())
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%d other recordings: %+v, %v, want %+v", others, got, err, want)
			}
		}
	}
}

// What is read in place is what the encoder wrote there.
func TestSidebandInPlace(t *testing.T) {
	w := newSidebandWalker(sidebandEvent(), procfs.FS{}, nil, nil)
	defer w.buildIDs.close()
	var r ring
	const pid = 1 << 30 // of no process
	see := func(rec perf.Record) {
		t.Helper()
		raw := encode(t, rec)
		if err := errors.Join(w.namespacesOf(&r, raw), w.walk(&r, raw)); err != nil {
			t.Fatal(err)
		}
	}
	links := make([]perf.NSLink, perf.NSCgroup+1)
	links[perf.NSMnt] = perf.NSLink{Dev: 4, Ino: 4026531841}
	see(&perf.Namespaces{PID: pid, TID: pid, Links: links})
	see(&perf.Namespaces{PID: pid, TID: pid + 1, Links: links[:1]})
	links[perf.NSMnt].Ino++
	see(&perf.Namespaces{PID: pid, TID: pid + 1, Links: links}) // a thread has its own copy
	see(&perf.Namespaces{PID: pid + 2, TID: pid + 2, Links: links[:perf.NSMnt]})
	if w.newMountNS != 1 || len(w.mounts) != 1 || w.mounts[pid] != (mountNS{ino: 4026531841}) {
		t.Errorf("mount namespaces are %v", w.mounts)
	}
	see(&perf.Lost{N: 42})
	if r.tally.lost != 42 || r.tally.records != 5 {
		t.Errorf("%+v", r.tally)
	}
	see(&perf.Exit{Task: perf.Task{PID: pid, PPID: 1, TID: pid + 1, PTID: 1}})
	w.round()
	w.round()
	if len(w.mounts) != 1 {
		t.Error("a thread's end was taken for its process's")
	}
	see(&perf.Exit{Task: perf.Task{PID: pid, PPID: 1, TID: pid, PTID: 1}})
	w.round()
	if len(w.mounts) != 1 {
		t.Error("forgotten in the round of its end")
	}
	w.round()
	if len(w.mounts) != 0 {
		t.Error("not forgotten")
	}
	for typ := range perf.RecordType(30) { // cut off: nothing is read behind the end
		raw := perf.Header{Type: typ, Size: perf.HeaderSize}.Append(nil, nativeOrder)
		if typ != perf.RecordCgroup {
			if err := errors.Join(w.namespacesOf(&r, raw[:8:8]), w.walk(&r, raw[:8:8])); err != nil {
				t.Error(err)
			}
		}
	}
}

// A process goes on when its first thread has ended: the others do, or one of them
// executes a program and gets the number of the first.
func TestProcessOutlivesItsFirstThread(t *testing.T) {
	w := newSidebandWalker(sidebandEvent(), procfs.FS{}, nil, nil)
	defer w.buildIDs.close()
	self := int32(os.Getpid())
	links := make([]perf.NSLink, perf.NSCgroup+1)
	links[perf.NSMnt].Ino = 4026531841
	for _, rec := range []perf.Record{
		&perf.Namespaces{PID: self, TID: self, Links: links},
		&perf.Exit{Task: perf.Task{PID: self, TID: self}},
	} {
		raw := encode(t, rec)
		if err := errors.Join(w.namespacesOf(new(ring), raw), w.walk(new(ring), raw)); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		w.round()
	}
	if w.mounts[self].ino != 4026531841 {
		t.Error("a process that runs was forgotten")
	}
	if n := len(w.ended) + len(w.older); n != 1 {
		t.Errorf("%d processes wait for their end, want 1", n)
	}
	w.ended, w.older = nil, slices.Repeat([]int32{self}, 2*maxOutlived)
	w.round()
	if n := len(w.older); n != maxOutlived {
		t.Errorf("%d processes are asked for again, want %d at most", n, maxOutlived)
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
	nativeOrder.PutUint16(raw[mmap2MiscAt:], uint16(perf.MiscMmapData|perf.MiscMmapBuildID))
	w := sidebandWalker{event: sidebandEvent()} // and without the means to do either
	if err := w.record(&ring{}, raw); err != nil || !bytes.Equal(raw, want) {
		t.Errorf("%x, %v; want %x", raw, err, want)
	}
}
