// SPDX-License-Identifier: Apache-2.0

package perf

import "slices"

// The records of the kernel, each with the body that enum perf_event_type in
// include/uapi/linux/perf_event.h gives it.

// Mmap is PERF_RECORD_MMAP: an executable mapping (or, with MiscMmapData,
// another one) appeared. PID -1 is the kernel.
type Mmap struct {
	Trailer
	PID, TID         int32
	Addr, Len, PgOff uint64 // bytes
	Filename         string
}

// Lost is PERF_RECORD_LOST: N records of event ID did not fit in the ring.
type Lost struct {
	Trailer
	ID, N uint64
}

// Comm is PERF_RECORD_COMM: a thread got a name; MiscCommExec: by exec.
type Comm struct {
	Trailer
	PID, TID int32
	Comm     string
}

// Task is the body of Fork and Exit. Time is in the event's clock.
type Task struct {
	PID, PPID, TID, PTID int32
	Time                 uint64
}

// Fork is PERF_RECORD_FORK: a new task; PID equals PPID for a thread.
type Fork struct {
	Trailer
	Task
}

// Exit is PERF_RECORD_EXIT.
type Exit struct {
	Trailer
	Task
}

// Throttle is PERF_RECORD_THROTTLE or, with Un, PERF_RECORD_UNTHROTTLE: the
// event was stopped for the rest of a tick because it came too often.
type Throttle struct {
	Trailer
	Un                 bool
	Time, ID, StreamID uint64
}

// Read is PERF_RECORD_READ: the counts of a task that exited (inherit_stat).
type Read struct {
	Trailer
	PID, TID int32
	Values   ReadValues
	format   ReadFormat
}

// Mmap2 is PERF_RECORD_MMAP2. With MiscMmapBuildID the file is named by
// BuildID, otherwise by device and inode.
type Mmap2 struct {
	Trailer
	PID, TID         int32
	Addr, Len, PgOff uint64 // bytes
	Maj, Min         uint32
	Ino, InoGen      uint64
	BuildID          []byte // at most 20 bytes
	Prot, Flags      uint32 // PROT_*, MAP_*
	Filename         string
}

// Aux is PERF_RECORD_AUX: data arrived in the AUX area.
type Aux struct {
	Trailer
	Offset, Size, Flags uint64
}

// ItraceStart is PERF_RECORD_ITRACE_START.
type ItraceStart struct {
	Trailer
	PID, TID int32
}

// LostSamples is PERF_RECORD_LOST_SAMPLES: N samples the hardware dropped.
type LostSamples struct {
	Trailer
	N uint64
}

// Switch is PERF_RECORD_SWITCH: the task of the event came or, with
// MiscSwitchOut, went.
type Switch struct{ Trailer }

// SwitchCPUWide is PERF_RECORD_SWITCH_CPU_WIDE, Switch for a cpu's event:
// the other task of the switch is named.
type SwitchCPUWide struct {
	Trailer
	NextPrevPID, NextPrevTID int32
}

// NSLink is one namespace of a task: device and inode of its nsfs file.
type NSLink struct{ Dev, Ino uint64 }

// Namespaces is PERF_RECORD_NAMESPACES; Links is indexed by NSNet and so on.
type Namespaces struct {
	Trailer
	PID, TID int32
	Links    []NSLink
}

// Ksymbol is PERF_RECORD_KSYMBOL: kernel text that came or, with
// KsymbolUnregister, went: a BPF subprogram, a trampoline.
type Ksymbol struct {
	Trailer
	Addr     uint64
	Len      uint32 // bytes
	KsymType uint16
	Flags    uint16
	Name     string
}

// BPFEvent is PERF_RECORD_BPF_EVENT: a BPF program was loaded or unloaded.
type BPFEvent struct {
	Trailer
	EventType uint16
	Flags     uint16
	ID        uint32
	Tag       [8]byte
}

// Cgroup is PERF_RECORD_CGROUP: the path of a cgroup in its hierarchy.
type Cgroup struct {
	Trailer
	ID   uint64
	Path string
}

// TextPoke is PERF_RECORD_TEXT_POKE: the kernel changed its own code.
type TextPoke struct {
	Trailer
	Addr     uint64
	Old, New []byte
}

// AuxOutputHWID is PERF_RECORD_AUX_OUTPUT_HW_ID.
type AuxOutputHWID struct {
	Trailer
	HWID uint64
}

// CallchainDeferred is PERF_RECORD_CALLCHAIN_DEFERRED (Linux 6.19): the user
// part of the callchains that end with the same cookie.
type CallchainDeferred struct {
	Trailer
	Cookie uint64
	IPs    []uint64
}

// RecordType implements Record.
func (r *Mmap) RecordType() RecordType              { return RecordMmap }
func (r *Lost) RecordType() RecordType              { return RecordLost }
func (r *Comm) RecordType() RecordType              { return RecordComm }
func (r *Fork) RecordType() RecordType              { return RecordFork }
func (r *Exit) RecordType() RecordType              { return RecordExit }
func (r *Read) RecordType() RecordType              { return RecordRead }
func (r *Mmap2) RecordType() RecordType             { return RecordMmap2 }
func (r *Aux) RecordType() RecordType               { return RecordAux }
func (r *ItraceStart) RecordType() RecordType       { return RecordItraceStart }
func (r *LostSamples) RecordType() RecordType       { return RecordLostSamples }
func (r *Switch) RecordType() RecordType            { return RecordSwitch }
func (r *SwitchCPUWide) RecordType() RecordType     { return RecordSwitchCPUWide }
func (r *Namespaces) RecordType() RecordType        { return RecordNamespaces }
func (r *Ksymbol) RecordType() RecordType           { return RecordKsymbol }
func (r *BPFEvent) RecordType() RecordType          { return RecordBPFEvent }
func (r *Cgroup) RecordType() RecordType            { return RecordCgroup }
func (r *TextPoke) RecordType() RecordType          { return RecordTextPoke }
func (r *AuxOutputHWID) RecordType() RecordType     { return RecordAuxOutputHWID }
func (r *CallchainDeferred) RecordType() RecordType { return RecordCallchainDeferred }
func (r *Throttle) RecordType() RecordType {
	if r.Un {
		return RecordUnthrottle
	}
	return RecordThrottle
}

func (r *Mmap) code(c *codec) {
	c.i32(&r.PID)
	c.i32(&r.TID)
	c.u64(&r.Addr)
	c.u64(&r.Len)
	c.u64(&r.PgOff)
	c.str(&r.Filename)
}

func (r *Lost) code(c *codec) {
	c.u64(&r.ID)
	c.u64(&r.N)
}

func (r *Comm) code(c *codec) {
	c.i32(&r.PID)
	c.i32(&r.TID)
	c.str(&r.Comm)
}

func (t *Task) code(c *codec) {
	c.i32(&t.PID)
	c.i32(&t.PPID)
	c.i32(&t.TID)
	c.i32(&t.PTID)
	c.u64(&t.Time)
}

func (r *Throttle) code(c *codec) {
	c.u64(&r.Time)
	c.u64(&r.ID)
	c.u64(&r.StreamID)
}

func (r *Read) code(c *codec) {
	c.i32(&r.PID)
	c.i32(&r.TID)
	if !c.dec {
		c.b = r.Values.append(c.b, r.format, c.order)
		return
	}
	n, err := r.Values.decode(c.b[c.off:], r.format, c.order)
	c.off += n
	if c.err == nil {
		c.err = err
	}
}

func (r *Mmap2) code(c *codec) {
	c.i32(&r.PID)
	c.i32(&r.TID)
	c.u64(&r.Addr)
	c.u64(&r.Len)
	c.u64(&r.PgOff)
	if r.Misc&MiscMmapBuildID != 0 {
		codeBuildID(c, &r.BuildID)
	} else {
		c.u32(&r.Maj)
		c.u32(&r.Min)
		c.u64(&r.Ino)
		c.u64(&r.InoGen)
	}
	c.u32(&r.Prot)
	c.u32(&r.Flags)
	c.str(&r.Filename)
}

// append writes what code does, in a fourth of the time: a snapshot is of hundreds
// of thousands of these.
func (r *Mmap2) append(dst []byte, o Order) []byte {
	const fixed = 64
	at := len(dst)
	size := fixed + (len(r.Filename)/8+1)*8
	dst = slices.Grow(dst, size)[:at+size]
	b := dst[at:]
	o.PutUint32(b[0:], uint32(r.PID))
	o.PutUint32(b[4:], uint32(r.TID))
	o.PutUint64(b[8:], r.Addr)
	o.PutUint64(b[16:], r.Len)
	o.PutUint64(b[24:], r.PgOff)
	if r.Misc&MiscMmapBuildID != 0 {
		id := b[36:56]
		n := copy(id, r.BuildID)
		clear(id[n:])
		o.PutUint32(b[32:], 0)
		b[32] = byte(n)
	} else {
		o.PutUint32(b[32:], r.Maj)
		o.PutUint32(b[36:], r.Min)
		o.PutUint64(b[40:], r.Ino)
		o.PutUint64(b[48:], r.InoGen)
	}
	o.PutUint32(b[56:], r.Prot)
	o.PutUint32(b[60:], r.Flags)
	clear(b[size-8:])
	copy(b[fixed:], r.Filename)
	return dst
}

// codeBuildID is the union member of MMAP2: size, three bytes reserved,
// twenty bytes of id.
func codeBuildID(c *codec, id *[]byte) {
	var b [20]byte
	size := uint8(copy(b[:], *id))
	c.u8(&size)
	c.pad(3)
	c.bytes(b[:])
	if !c.dec || c.err != nil {
		return
	}
	if int(size) > len(b) {
		c.err = ErrLength
		return
	}
	*id = append([]byte(nil), b[:size]...)
}

func (r *Aux) code(c *codec) {
	c.u64(&r.Offset)
	c.u64(&r.Size)
	c.u64(&r.Flags)
}

func (r *ItraceStart) code(c *codec) {
	c.i32(&r.PID)
	c.i32(&r.TID)
}

func (r *LostSamples) code(c *codec) { c.u64(&r.N) }

func (r *Switch) code(*codec) {}

func (r *SwitchCPUWide) code(c *codec) {
	c.i32(&r.NextPrevPID)
	c.i32(&r.NextPrevTID)
}

func (r *Namespaces) code(c *codec) {
	c.i32(&r.PID)
	c.i32(&r.TID)
	n := uint64(len(r.Links))
	c.u64(&n)
	if !c.count(n, 16) {
		return
	}
	if c.dec && n > 0 {
		r.Links = make([]NSLink, n)
	}
	for i := range r.Links {
		c.u64(&r.Links[i].Dev)
		c.u64(&r.Links[i].Ino)
	}
}

func (r *Ksymbol) code(c *codec) {
	c.u64(&r.Addr)
	c.u32(&r.Len)
	c.u16(&r.KsymType)
	c.u16(&r.Flags)
	c.str(&r.Name)
}

func (r *BPFEvent) code(c *codec) {
	c.u16(&r.EventType)
	c.u16(&r.Flags)
	c.u32(&r.ID)
	c.bytes(r.Tag[:])
}

func (r *Cgroup) code(c *codec) {
	c.u64(&r.ID)
	c.str(&r.Path)
}

func (r *TextPoke) code(c *codec) {
	o, n := uint16(len(r.Old)), uint16(len(r.New))
	c.u64(&r.Addr)
	c.u16(&o)
	c.u16(&n)
	if c.dec {
		r.Old, r.New = make([]byte, o), make([]byte, n)
	}
	c.bytes(r.Old)
	c.bytes(r.New)
}

func (r *AuxOutputHWID) code(c *codec) { c.u64(&r.HWID) }

func (r *CallchainDeferred) code(c *codec) {
	n := uint64(len(r.IPs))
	c.u64(&r.Cookie)
	c.u64(&n)
	c.u64s(&r.IPs, n)
}
