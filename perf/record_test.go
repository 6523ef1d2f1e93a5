// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// fullEvent has every field that a record can carry.
func fullEvent() *Event {
	return NewEvent(Attr{
		SampleType: sampleKnown &^ SampleWeightStruct,
		ReadFormat: FormatGroup | FormatID | FormatLost | FormatTotalTimeEnabled | FormatTotalTimeRunning,
		Flags:      AttrSampleIDAll | AttrBuildID, BranchSampleType: BranchHWIndex | BranchCounters,
		SampleRegsUser: 0b1011, SampleRegsIntr: 0b1,
	}, "all", 7)
}

var testTrailer = Trailer{
	RecordMisc: RecordMisc{MiscUser | MiscStatusOnly},
	SampleID:   SampleIDInfo{PID: 11, TID: 12, Time: 13, ID: 7, StreamID: 15, CPU: 16},
}

func testRecords() []Record {
	t := testTrailer
	build := t
	build.Misc |= MiscMmapBuildID
	task := Task{PID: 1, PPID: 2, TID: 3, PTID: 4, Time: 5}
	return []Record{
		&Mmap{Trailer: t, PID: -1, TID: 0, Addr: 1 << 60, Len: 4096, PgOff: 3, Filename: "[kernel.kallsyms]_text"},
		&Lost{Trailer: t, ID: 7, N: 99},
		&Comm{Trailer: t, PID: 5, TID: 6, Comm: "exactly8"},
		&Comm{Trailer: t, PID: 5, TID: 6},
		&Fork{Trailer: t, Task: task},
		&Exit{Trailer: t, Task: task},
		&Throttle{Trailer: t, Time: 1, ID: 2, StreamID: 3},
		&Throttle{Trailer: t, Un: true, Time: 1, ID: 2, StreamID: 3},
		&Read{Trailer: t, PID: 1, TID: 2, format: fullEvent().Attr.ReadFormat,
			Values: ReadValues{TimeEnabled: 5, TimeRunning: 4, Counts: []Count{{1, 2, 3}, {4, 5, 6}}}},
		&Mmap2{Trailer: t, PID: 1, TID: 2, Addr: 3, Len: 4, PgOff: 5, Maj: 6, Min: 7, Ino: 8, InoGen: 9, Prot: 5, Flags: 2, Filename: "/bin/true"},
		&Mmap2{Trailer: build, PID: 1, TID: 2, Addr: 3, Len: 4, PgOff: 5, BuildID: []byte("0123456789"), Prot: 5, Flags: 2, Filename: "/bin/true"},
		&Aux{Trailer: t, Offset: 1, Size: 2, Flags: 3},
		&ItraceStart{Trailer: t, PID: 1, TID: 2},
		&LostSamples{Trailer: t, N: 8},
		&Switch{Trailer: t},
		&SwitchCPUWide{Trailer: t, NextPrevPID: 3, NextPrevTID: 4},
		&Namespaces{Trailer: t, PID: 1, TID: 2, Links: []NSLink{{1, 2}, {3, 4}}},
		&Ksymbol{Trailer: t, Addr: 1 << 63, Len: 64, KsymType: KsymbolBPF, Flags: KsymbolUnregister, Name: "bpf_prog_0123456789abcdef_f"},
		&BPFEvent{Trailer: t, EventType: BPFEventProgLoad, ID: 42, Tag: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}},
		&Cgroup{Trailer: t, ID: 77, Path: "/a/b"},
		&TextPoke{Trailer: t, Addr: 1, Old: []byte{1, 2, 3}, New: []byte{4, 5, 6, 7}},
		&AuxOutputHWID{Trailer: t, HWID: 3},
		&CallchainDeferred{Trailer: t, Cookie: 3, IPs: []uint64{1, 2}},
		fullSample(),

		&FinishedRound{},
		&FinishedInit{},
		&HeaderAttr{Attr: Attr{Type: TypeSoftware, Size: AttrSizeVer8, Flags: AttrFlags(0).WithPreciseIP(2) | AttrMmap2}, IDs: []uint64{1, 2}},
		&TracingData{Size: 12},
		&BuildID{RecordMisc: RecordMisc{MiscUser | MiscBuildIDSize}, PID: -1, ID: []byte("0123456789abcdef"), Filename: "/x"},
		&IDIndex{Entries: []IDIndexEntry{{1, 2, 3, 4}}, Extra: []byte("12345678")},
		&AuxtraceInfo{InfoType: 1, Priv: []byte("12345678")},
		&Auxtrace{Size: 1, Offset: 2, Reference: 3, Idx: 4, TID: 5, CPU: 6},
		&ThreadMap{Threads: []ThreadMapEntry{{1, "init"}, {2, "fifteen chars.."}}},
		&CPUMap{MapType: 1, Data: []byte("123456")},
		&EventUpdate{Kind: EventUpdateName, ID: 3, Text: "cycles"},
		&EventUpdate{Kind: EventUpdateScale, ID: 3, Scale: 0.5},
		&EventUpdate{Kind: EventUpdateCPUs, ID: 3, Data: []byte("12345678")},
		&TimeConv{TimeShift: 1, TimeMult: 2, TimeZero: 3, Short: true},
		&TimeConv{TimeShift: 1, TimeMult: 2, TimeZero: 3, TimeCycles: 4, TimeMask: 5, CapUserTimeZero: 1},
		&HeaderFeature{Feature: 3, Data: []byte("12345678")},
		&Compressed{Data: []byte("odd")},
		&Compressed2{Data: []byte("odd")},
		&Unknown{Type: 4711, Data: []byte("odd")},
	}
}

func fullSample() *Sample {
	return &Sample{
		RecordMisc: RecordMisc{MiscKernel}, ID: 7, IP: 2, PID: 3, TID: 4, Time: 5, Addr: 6, StreamID: 8, CPU: 9, Period: 10,
		Read:      ReadValues{TimeEnabled: 5, TimeRunning: 4, Counts: []Count{{1, 2, 3}}},
		Callchain: []uint64{ContextKernel, 1, ContextUser, 2}, Raw: []byte("sixteen bytes+4."),
		Branches: []Branch{{1, 2, 0x12345}, {3, 4, 1<<33 | 1}}, BranchHW: 3, BranchCtrs: []uint64{5, 6},
		RegsUser: Regs{2, []uint64{1, 2, 3}}, StackUser: []byte("12345678"), StackDyn: 4,
		Weight: 1, DataSrc: 2, Txn: 3, RegsIntr: Regs{ABI: 1, Values: []uint64{9}}, PhysAddr: 4, Cgroup: 5,
		DataPage: 6, CodePage: 7, Aux: []byte("12345678"),
	}
}

func TestRoundTrip(t *testing.T) {
	ev := fullEvent()
	for _, o := range []Order{LittleEndian, BigEndian} {
		for _, rec := range testRecords() {
			t.Run(fmt.Sprintf("%v/%v", rec.RecordType(), o), func(t *testing.T) {
				raw, err := Append(nil, rec, o, ev)
				if err != nil {
					t.Fatal(err)
				}
				got, err := Decode(raw, o, ev)
				if err != nil {
					t.Fatalf("%v\n%s", err, hex.Dump(raw))
				}
				if !reflect.DeepEqual(got, rec) {
					t.Errorf("got  %+v\nwant %+v", got, rec)
				}
				if rec.RecordType().Kernel() && rec.RecordType().Known() {
					if ts, ok := ev.Layout.Time(raw, o); !ok || ts != map[bool]uint64{true: 5, false: 13}[rec.RecordType() == RecordSample] {
						t.Errorf("time %d, %v", ts, ok)
					}
				}
			})
		}
	}
}

// TestForeignBuildIDBit: the kernel leaves the bit that another recording
// asked for in our records. They hold a device and an inode all the same.
func TestForeignBuildIDBit(t *testing.T) {
	plain := NewEvent(Attr{SampleType: SampleIdentifier, Flags: AttrSampleIDAll | AttrMmap2}, "plain", 1)
	want := &Mmap2{PID: 1, TID: 2, Addr: 3, Len: 4, Maj: 254, Min: 1, Ino: 8, InoGen: 9, Filename: "/bin/true"}
	want.SampleID.ID = 1
	raw, err := Append(nil, want, LittleEndian, plain)
	if err != nil {
		t.Fatal(err)
	}
	LittleEndian.PutUint16(raw[4:], uint16(MiscUser|MiscMmapBuildID))
	got, err := Decode(raw, LittleEndian, plain)
	want.Misc = MiscUser
	if err != nil || !reflect.DeepEqual(got, Record(want)) {
		t.Errorf("got %+v, %v", got, err)
	}
	// One event of the recording that asks for build-ids is enough: perf's
	// own records name no event.
	asks := NewEvent(Attr{SampleType: SampleIdentifier, Flags: AttrSampleIDAll | AttrBuildID}, "asks", 2)
	NewEvents(plain, asks)
	if _, err := Decode(raw, LittleEndian, plain); !errors.Is(err, ErrLength) {
		t.Errorf("a build-id of 254 bytes: %v", err)
	}
}

// TestTruncated cuts every record at every byte: an error or, where only
// padding was cut, a value; never a panic.
func TestTruncated(t *testing.T) {
	ev := fullEvent()
	for _, rec := range testRecords() {
		raw, err := Append(nil, rec, LittleEndian, ev)
		if err != nil {
			t.Fatal(err)
		}
		for n := range raw {
			cut := bytes.Clone(raw[:n])
			if n >= HeaderSize {
				LittleEndian.PutUint16(cut[6:], uint16(n))
			}
			got, err := Decode(cut, LittleEndian, ev)
			if (got == nil) == (err == nil) {
				t.Fatalf("%v cut at %d: value %v and error %v", rec.RecordType(), n, got, err)
			}
			if err != nil && !errors.Is(err, ErrShort) && !errors.Is(err, ErrLength) {
				t.Errorf("%v cut at %d: %v", rec.RecordType(), n, err)
			}
		}
	}
}

func TestHostileLengths(t *testing.T) {
	ev := fullEvent()
	for _, rec := range testRecords() {
		raw, err := Append(nil, rec, LittleEndian, ev)
		if err != nil {
			t.Fatal(err)
		}
		for at := HeaderSize; at+8 <= len(raw); at += 4 {
			bad := bytes.Clone(raw)
			LittleEndian.PutUint64(bad[at:], ^uint64(0)>>1)
			allocs := testing.AllocsPerRun(1, func() {
				if got, err := Decode(bad, LittleEndian, ev); (got == nil) == (err == nil) {
					t.Errorf("%v: value %v and error %v", rec.RecordType(), got, err)
				}
			})
			if allocs > 40 {
				t.Errorf("%v with a hostile word at %d: %v allocations", rec.RecordType(), at, allocs)
			}
		}
	}
}

func TestAttrVersions(t *testing.T) {
	full := Attr{
		Type: TypeSoftware, Config: 1, SampleCount: 2, SampleType: 3, ReadFormat: 4, Flags: AttrFreq | AttrBuildID,
		Wakeup: 5, BPType: 6, Config1: 7, Config2: 8, BranchSampleType: 9, SampleRegsUser: 10, SampleStackUser: 11,
		ClockID: -1, SampleRegsIntr: 12, AuxWatermark: 13, SampleMaxStack: 14, AuxSampleSize: 15, AuxAction: 16,
		SigData: 17, Config3: 18, Config4: 19,
	}
	for _, o := range []Order{LittleEndian, BigEndian} {
		for _, size := range []uint32{0, 64, 72, 80, 96, 104, 112, 120, 128, 136, 144, 160} {
			a := full
			a.Size = size
			if size > AttrSize {
				a.Extra = []byte("0123456789abcdef")
			}
			raw := a.Append(nil, o)
			if want := map[uint32]int{0: AttrSize}[size]; len(raw) != max(want, int(size)) {
				t.Fatalf("size %d encodes in %d bytes", size, len(raw))
			}
			got, err := DecodeAttr(append(raw, "what follows"...), o)
			if err != nil {
				t.Fatal(err)
			}
			if again := got.Append(nil, o); !bytes.Equal(again, raw) {
				t.Errorf("size %d, %v: encodes differently the second time", size, o)
			}
			if size == 0 || size >= AttrSize {
				a.Size = uint32(len(raw))
				if !reflect.DeepEqual(got, a) {
					t.Errorf("got  %+v\nwant %+v", got, a)
				}
			}
		}
	}
	for _, size := range []uint32{1, 63, 65, 4104, 1 << 31} {
		raw := make([]byte, 8192)
		LittleEndian.PutUint32(raw[4:], size)
		if _, err := DecodeAttr(raw, LittleEndian); !errors.Is(err, ErrLength) {
			t.Errorf("size %d: %v", size, err)
		}
	}
	if _, err := DecodeAttr(make([]byte, 63), LittleEndian); !errors.Is(err, ErrShort) {
		t.Errorf("63 bytes: %v", err)
	}
}

// TestFlagsBigEndian pins what a big-endian kernel writes: the first
// bit-field, disabled, is the highest bit of the first byte.
func TestFlagsBigEndian(t *testing.T) {
	a := Attr{Flags: AttrDisabled | AttrFreq | AttrFlags(0).WithPreciseIP(2)}
	raw := a.Append(nil, BigEndian)[40:48]
	// disabled is bit 63, freq bit 53, precise_ip bits 48 and 47 with the
	// high one first.
	if want := []byte{0x80, 0x21, 0, 0, 0, 0, 0, 0}; !bytes.Equal(raw, want) {
		t.Errorf("flags are % x, want % x", raw, want)
	}
	if got := flagsFromWire(BigEndian.Uint64(raw), BigEndian); got != a.Flags || got.PreciseIP() != 2 {
		t.Errorf("read back as %#x", uint64(got))
	}
}

func TestEventsOf(t *testing.T) {
	mk := func(id uint64, extra SampleType) *Event {
		return NewEvent(Attr{SampleType: SampleIdentifier | SampleTime | extra, Flags: AttrSampleIDAll}, fmt.Sprint(id), id, id+1000000)
	}
	a, b := mk(100, 0), mk(101, SampleTID|SampleIP)
	evs := NewEvents(a, b)
	for _, ev := range []*Event{a, b} {
		for _, id := range ev.IDs {
			s, _ := Append(nil, &Sample{ID: id, Time: 9}, LittleEndian, ev)
			c, _ := Append(nil, &Comm{Trailer: Trailer{SampleID: SampleIDInfo{ID: id, Time: 10}}}, LittleEndian, ev)
			if evs.Of(s, LittleEndian) != ev || evs.Of(c, LittleEndian) != ev {
				t.Errorf("id %d is given to another event", id)
			}
			st, _ := evs.Time(s, LittleEndian)
			ct, _ := evs.Time(c, LittleEndian)
			if st != 9 || ct != 10 {
				t.Errorf("times %d, %d", st, ct)
			}
		}
	}
	s, _ := Append(nil, &Sample{ID: 5}, LittleEndian, a)
	if ev := evs.Of(s, LittleEndian); ev != nil {
		t.Errorf("unknown id is given to %s", ev.Name)
	}
	c, _ := Append(nil, &Comm{}, LittleEndian, a)
	if ev := evs.Of(c, LittleEndian); ev != a {
		t.Error("id 0 is not the first event's")
	}
	if new(Events).Of(s, LittleEndian) != nil {
		t.Error("an event out of an empty set")
	}
}

func TestRecordTypeNames(t *testing.T) {
	for typ := range RecordType(90) {
		got, ok := RecordTypeOf(typ.String())
		if !ok || got != typ {
			t.Errorf("%v reads back as %v", typ, got)
		}
		if typ.Known() != (recordNamesHave(typ)) {
			t.Errorf("%d: known %v", typ, typ.Known())
		}
	}
	if _, ok := RecordTypeOf("NOPE"); ok {
		t.Error("NOPE is a record")
	}
}

func recordNamesHave(t RecordType) bool { return int(t) < len(recordNames) && recordNames[t] != "" }

func TestAppendTooLarge(t *testing.T) {
	if b, err := Append([]byte("x"), &Cgroup{Path: string(make([]byte, 1<<16))}, LittleEndian, nil); !errors.Is(err, ErrValue) || string(b) != "x" {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// FuzzDecode: a value xor an error; a value encodes, and what it encodes to
// decodes to the same value.
func FuzzDecode(f *testing.F) {
	full := fullEvent()
	for _, rec := range testRecords() {
		for _, o := range []Order{LittleEndian, BigEndian} {
			raw, err := Append(nil, rec, o, full)
			if err != nil {
				f.Fatal(err)
			}
			a := full.Attr
			f.Add(raw, o == BigEndian, uint64(a.SampleType), uint64(a.ReadFormat), uint64(a.BranchSampleType), a.SampleRegsUser, true)
			f.Add(raw, o == BigEndian, uint64(SampleIP|SampleTID|SampleTime), uint64(0), uint64(0), uint64(0), false)
		}
	}
	for _, o := range []Order{LittleEndian, BigEndian} {
		for _, rec := range growing() {
			a := full.Attr
			f.Add(grow(f, rec, o, full, 16), o == BigEndian, uint64(a.SampleType), uint64(a.ReadFormat), uint64(a.BranchSampleType), a.SampleRegsUser, true)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte, big bool, st, rf, bt, regs uint64, idAll bool) {
		o := LittleEndian
		if big {
			o = BigEndian
		}
		a := Attr{SampleType: SampleType(st), ReadFormat: ReadFormat(rf), BranchSampleType: BranchSampleType(bt), SampleRegsUser: regs, SampleRegsIntr: regs >> 1}
		if idAll {
			a.Flags = AttrSampleIDAll | AttrBuildID
		}
		ev := NewEvent(a, "fuzz")
		rec, err := Decode(raw, o, ev)
		if (rec == nil) == (err == nil) {
			t.Fatalf("value %v and error %v", rec, err)
		}
		if err != nil {
			return
		}
		enc, err := Append(nil, rec, o, ev)
		if errors.Is(err, ErrValue) {
			return // padding made it larger than a record
		}
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(enc, o, ev)
		if err != nil {
			t.Fatalf("%v\nof %+v", err, rec)
		}
		if b, err := Append(nil, again, o, ev); err != nil || !bytes.Equal(b, enc) {
			t.Fatalf("encodes differently: %v\n%x\n%x", err, enc, b)
		}
	})
}

func FuzzAttr(f *testing.F) {
	a := Attr{Size: AttrSizeVer5}
	f.Add(a.Append(nil, LittleEndian), false)
	a.Size, a.Extra = 160, []byte("0123456789abcdef")
	f.Add(a.Append(nil, BigEndian), true)
	f.Fuzz(func(t *testing.T, raw []byte, big bool) {
		o := LittleEndian
		if big {
			o = BigEndian
		}
		a, err := DecodeAttr(raw, o)
		if err != nil {
			return
		}
		enc := a.Append(nil, o)
		if a.Size != 0 && !bytes.Equal(enc, raw[:a.Size]) {
			t.Fatalf("re-encodes differently\n%x\n%x", raw[:a.Size], enc)
		}
	})
}

func BenchmarkSampleDecode(b *testing.B) {
	ev := NewEvent(Attr{SampleType: SampleIP | SampleTID | SampleTime | SampleCallchain | SampleCPU | SamplePeriod | SampleIdentifier}, "x")
	raw, err := Append(nil, &Sample{Callchain: make([]uint64, 16)}, LittleEndian, ev)
	if err != nil {
		b.Fatal(err)
	}
	var s Sample
	b.Run("whole", func(b *testing.B) {
		for b.Loop() {
			if err := s.Decode(raw, LittleEndian, &ev.Layout); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("leaf", func(b *testing.B) {
		for b.Loop() {
			if err := s.DecodeLeaf(raw, LittleEndian, &ev.Layout, true); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// What is written for an MMAP2 record is what is read from one.
func TestMmap2Append(t *testing.T) {
	m := Mmap2{PID: -1, TID: 2, Addr: 3 << 40, Len: 4, PgOff: 5, Maj: 6, Min: 7, Ino: 8 << 40, InoGen: 9, Prot: 5, Flags: 2}
	id := bytes.Repeat([]byte{0xee}, 32)
	for _, o := range []Order{LittleEndian, BigEndian} {
		for n := range 25 {
			for _, misc := range []Misc{0, MiscMmapBuildID} {
				m.Misc, m.BuildID, m.Filename = misc, id[:n], strings.Repeat("n", n)
				c := codec{order: o}
				m.code(&c)
				if got := m.append(bytes.Repeat([]byte{0xff}, 256)[:0], o); !bytes.Equal(got, c.b) {
					t.Errorf("%v, %d bytes of name and id, misc %#x:\n% x\n% x", o, n, misc, got, c.b)
				}
			}
		}
	}
}
