// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"bytes"
	"reflect"
	"testing"
)

// rawEvent is an event whose records are laid out as a recorder's.
func rawEvent() *Event {
	return NewEvent(Attr{SampleType: RawSampleType, Flags: AttrSampleIDAll}, "x", 7)
}

// rawEventWithIDs is the same for a reader: MMAP2 records may have build-ids.
func rawEventWithIDs() *Event {
	return NewEvent(Attr{SampleType: RawSampleType, Flags: AttrSampleIDAll | AttrBuildID}, "x", 7)
}

func rawOf(t testing.TB, rec Record) Raw {
	t.Helper()
	*SampleIDOf(rec) = SampleIDInfo{PID: 5, TID: 6, Time: 12345, CPU: 1, ID: 7}
	raw, err := Append(nil, rec, NativeOrder, rawEvent())
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func rawMmap2(t testing.TB, misc Misc) Raw {
	raw := rawOf(t, &Mmap2{PID: 1, TID: 2, Addr: 3, Len: 4, PgOff: 5, Maj: 254, Min: 1, Ino: 77, InoGen: 8, Prot: 5, Flags: 2, Filename: "/bin/x"})
	raw.SetMisc(misc)
	return raw
}

func TestRawSetBuildID(t *testing.T) {
	for _, misc := range []Misc{MiscUser, MiscUser | MiscMmapBuildID} {
		raw := rawMmap2(t, misc)
		id := []byte("0123456789abcdef")
		raw.SetBuildID(id)
		rec, err := Decode(raw, NativeOrder, rawEventWithIDs())
		if err != nil {
			t.Fatal(err)
		}
		m := rec.(*Mmap2)
		if !bytes.Equal(m.BuildID, id) || m.Prot != 5 || m.Filename != "/bin/x" || m.PgOff != 5 || m.Ino != 0 {
			t.Errorf("%+v", m)
		}
	}
}

// A bit that the kernel left from another recording goes.
func TestRawWithoutBuildID(t *testing.T) {
	for _, id := range [][]byte{nil, make([]byte, MaxRawBuildID+1)} {
		raw := rawMmap2(t, MiscUser|MiscMmapBuildID)
		raw.SetBuildID(id)
		raw.SetInodeGen(9)
		rec, err := Decode(raw, NativeOrder, rawEventWithIDs())
		if err != nil {
			t.Fatal(err)
		}
		if m := rec.(*Mmap2); m.Ino != 77 || m.Maj != 254 || m.Misc != MiscUser || m.BuildID != nil || m.InoGen != 9 {
			t.Errorf("%+v", m)
		}
	}
	Raw(make([]byte, 40)).SetBuildID([]byte("x")) // a record that is none
	Raw(make([]byte, 40)).SetInodeGen(1)
}

// The kernel makes records of BPF programs too long where there are several
// recordings, and leaves at their end what was in the ring before.
func TestRawRepairTrailer(t *testing.T) {
	for _, rec := range []Record{
		&Ksymbol{Addr: 0xffffffffc0000000, Len: 44, KsymType: 1, Name: "bpf_prog_2a71da1e"}, // padded
		&Ksymbol{Addr: 0xffffffffc0000000, Len: 44, KsymType: 1, Name: "bpf_prog_2a71da"},   // just fits
		&BPFEvent{EventType: 1, ID: 255, Tag: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}},
	} {
		plain := rawOf(t, rec)
		want, err := Decode(plain, NativeOrder, rawEvent())
		if err != nil {
			t.Fatal(err)
		}
		for others := range 3 {
			raw := Raw(append(bytes.Clone(plain), bytes.Repeat([]byte{0xee}, others*RawTrailerSize)...))
			raw.SetSize()
			raw.RepairTrailer()
			got, err := Decode(raw, NativeOrder, rawEvent())
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%d other recordings: %+v, %v, want %+v", others, got, err, want)
			}
		}
	}
	raw := rawMmap2(t, MiscUser)
	want := bytes.Clone(raw)
	if raw.RepairTrailer(); !bytes.Equal(raw, want) {
		t.Error("another record was changed")
	}
}

// What is read in place is what the decoder reads, and nothing behind the end of
// a record is.
func FuzzRaw(f *testing.F) {
	ev := rawEvent()
	links := make([]NSLink, NSCgroup+1)
	links[NSMnt].Ino = 4
	for _, rec := range []Record{
		&Mmap2{PID: 1, TID: 2, Addr: 3, Len: 4, Maj: 254, Ino: 77, InoGen: 8, Filename: "/bin/x"}, &Fork{Task: Task{PID: 1, PPID: 2, TID: 3, PTID: 4, Time: 5}},
		&Exit{Task: Task{PID: 1, PPID: 2, TID: 3, PTID: 4, Time: 5}}, &Comm{PID: 1, TID: 2, Comm: "x"}, &Namespaces{PID: 1, TID: 2, Links: links},
		&Cgroup{ID: 7, Path: "/a"}, &Lost{ID: 1, N: 2}, &BPFEvent{EventType: 1, ID: 2, Tag: [8]byte{3}}, &Ksymbol{Addr: 1, Name: "f"},
	} {
		f.Add([]byte(rawOf(f, rec)))
	}
	for typ := range RecordType(30) {
		f.Add(Header{Type: typ, Size: HeaderSize}.Append(nil, NativeOrder))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < HeaderSize || len(b) > 1<<16-8 {
			return
		}
		raw := Raw(bytes.Clone(b[:len(b)&^7]))
		raw.SetSize()
		rec, err := Decode(raw, NativeOrder, ev)
		if err != nil {
			rec = nil
		}
		checkRaw(t, raw, rec)
		raw.SetBuildID([]byte("0123"))
		raw.SetInodeGen(1)
		raw.RepairTrailer()
		raw.TrailerTime()
		raw.BPFEventTrailer()
	})
}

// checkRaw compares the fields of a record with those of the decoded one, nil if it
// could not be decoded.
func checkRaw(t *testing.T, raw Raw, rec Record) {
	switch rec := rec.(type) {
	case *Fork:
		if task, ok := raw.Task(); !ok || task != rec.Task {
			t.Errorf("%+v, want %+v", task, rec.Task)
		}
	case *Exit:
		if task, ok := raw.Task(); !ok || task != rec.Task {
			t.Errorf("%+v, want %+v", task, rec.Task)
		}
	case *Comm:
		if pid, tid, ok := raw.Comm(); !ok || pid != rec.PID || tid != rec.TID || raw.TrailerTime() != rec.SampleID.Time {
			t.Errorf("%d/%d at %d, want %+v", pid, tid, raw.TrailerTime(), rec)
		}
	case *Namespaces:
		n, ok := raw.Namespaces()
		if !ok || n.PID != rec.PID || n.TID != rec.TID || n.Len() != len(rec.Links) || n.Inode(n.Len()) != 0 {
			t.Errorf("%+v, want %+v", n, rec)
			return
		}
		for i := range rec.Links {
			if n.Inode(i) != rec.Links[i].Ino {
				t.Errorf("namespace %d: %d, want %d", i, n.Inode(i), rec.Links[i].Ino)
			}
		}
	case *Cgroup:
		if id, path, ok := raw.Cgroup(); ok && (id != rec.ID || !bytes.HasPrefix(path, []byte(rec.Path))) {
			t.Errorf("%d %q, want %+v", id, path, rec)
		}
	case *Lost:
		if n, ok := raw.Lost(); !ok || n != rec.N {
			t.Errorf("%d, want %d", n, rec.N)
		}
	case *BPFEvent:
		if kind, id, tag, ok := raw.BPFEvent(); !ok || kind != rec.EventType || id != rec.ID || tag != rec.Tag {
			t.Errorf("%d %d %x, want %+v", kind, id, tag, rec)
		}
	case *Mmap2:
		m, ok := raw.Mmap2()
		if ok && (m.PID != rec.PID || m.Addr != rec.Addr || m.Len != rec.Len || m.Major != rec.Maj || m.Minor != rec.Min ||
			m.Inode != rec.Ino || m.InodeGen != rec.InoGen || !bytes.HasPrefix(m.Path, []byte(rec.Filename))) {
			t.Errorf("%+v, want %+v", m, rec)
		}
	case nil: // cut off, perhaps: nothing is read behind the end
		raw.Task()
		raw.Comm()
		raw.Namespaces()
		raw.Cgroup()
		raw.Lost()
		raw.BPFEvent()
		raw.Mmap2()
	}
}

// Wherever a ring wraps, the same is read of it.
func TestRingData(t *testing.T) {
	sample := make([]byte, RawSampleMin+8)
	copy(sample, Header{Type: RecordSample, Size: uint16(len(sample))}.Append(nil, NativeOrder))
	NativeOrder.PutUint64(sample[32:], 77)
	NativeOrder.PutUint64(sample[len(sample)-8:], 88)
	lost := rawOf(t, &Lost{ID: 1, N: 42})
	b := append(bytes.Clone(sample), lost...)
	for at := 0; at <= len(b); at += 8 {
		d := RingData{b[:at], b[at:]}
		typ, size, ok := d.Header(0)
		if typ != RecordSample || size != len(sample) || !ok || d.SampleTime(0) != 77 || d.LastWord(0, size) != 88 {
			t.Errorf("split at %d: sample %v %d %v", at, typ, size, ok)
		}
		typ, size, ok = d.Header(len(sample))
		if typ != RecordLost || size != len(lost) || !ok || d.Lost(len(sample), size) != 42 || d.LostSamples(len(sample), size) != 1 {
			t.Errorf("split at %d: lost %v %d %v", at, typ, size, ok)
		}
	}
	d := RingData{A: b[:len(b)-8]}
	if _, _, ok := d.Header(len(sample)); ok {
		t.Error("a record that is cut off is whole")
	}
	if d.Lost(0, 8) != 0 || d.LostSamples(0, 8) != 0 {
		t.Error("something is lost by records without a body")
	}
}
