// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nsfs

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/tracens"
	"github.com/gantry-tools/gantry/tracens/events"
	"github.com/gantry-tools/gantry/tracens/ring"
)

// ringSystem is the trace system of rings: memory of programs from which their events are
// read. The events are those that they registered.
type ringSystem struct{ fs *FS }

// rings are those of a namespace.
type rings struct {
	fs  *FS
	ns  *tracens.Namespace
	set *events.Set

	mu      sync.Mutex
	size    int // of a new one, in bytes
	most    int // at a time; 0 is no limit
	list    map[uint64]*openRing
	reading bool            // by a goroutine
	wake    chan struct{}   // has room for one word: there are others
	records []events.Record // of a round; its memory is used again
	lost    uint64

	listener *net.UnixListener // of ring.socket; nil: there is none
	conns    map[*net.UnixConn]bool
	closed   bool
}

// Limits of a namespace whose options say nothing.
const (
	defaultRingSize = 2 << 20
	defaultRings    = 64
)

func (*ringSystem) Name() string { return "ring" }

func (s *ringSystem) of(ns *tracens.Namespace) *rings {
	r, _ := ns.Value(s).(*rings)
	return r
}

func (s *ringSystem) Create(ns *tracens.Namespace) error {
	ns.SetValue(s, &rings{fs: s.fs, ns: ns, set: s.fs.events.Of(ns), size: defaultRingSize, most: defaultRings,
		list: make(map[uint64]*openRing), wake: make(chan struct{}, 1), conns: make(map[*net.UnixConn]bool)})
	return nil
}

func (s *ringSystem) Remove(ns *tracens.Namespace) error {
	s.hangUp(ns)
	return nil
}

// hangUp ends the socket of a namespace, with its connections.
func (s *ringSystem) hangUp(ns *tracens.Namespace) {
	r := s.of(ns)
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.listener != nil {
		_ = r.listener.Close() // a socket of ours
	}
	for conn := range r.conns {
		_ = conn.Close() // the same
	}
}

func (s *ringSystem) IsBusy(ns *tracens.Namespace) bool {
	r := s.of(ns)
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.list) > 0
}

// Parse reads ring.size BYTES, a power of two, and ring.max-rings N.
func (s *ringSystem) Parse(ns *tracens.Namespace, command string) error {
	rest, mine := strings.CutPrefix(command, "ring.")
	if !mine {
		return tracens.ErrNotMine
	}
	word, value, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 31)
	if err != nil {
		return fmt.Errorf("%q is no number: %w", value, syscall.EINVAL)
	}
	r := s.of(ns)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case word == "max-rings":
		r.most = int(n)
	case word == "size" && ring.ValidSize(n):
		r.size = int(n)
	case word == "size":
		return fmt.Errorf("%d: a ring has a power of two of bytes, %d to %d: %w", n, ring.MinData, ring.MaxData,
			syscall.EINVAL)
	default:
		return fmt.Errorf("%q: ring.size or ring.max-rings: %w", command, syscall.EINVAL)
	}
	return nil
}

func (s *ringSystem) Show(ns *tracens.Namespace) (string, error) {
	r := s.of(ns)
	r.mu.Lock()
	defer r.mu.Unlock()
	text := fmt.Sprintf("ring.size %d\nring.max-rings %d\n# ring: %d rings, %d records lost\n", r.size, r.most,
		len(r.list), r.lost)
	if why := s.fs.noPassthrough; why != nil {
		text += fmt.Sprintf("# ring: by root/%s, not by root/%s: %v\n", ringSocket, ringFile, why)
	}
	return text, nil
}

// openRing is a ring that a program has opened.
type openRing struct {
	id     uint64
	opener uint64 // the owner of the memory
	pid    int    // of the opener
	fd     *sys.FD
	mem    *sys.Mapping
	reader *ring.Reader
	file   *events.File // whose events are in it; nil until the program has said
	tids   map[uint32]int
	lost   uint64 // that was counted
	since  uint64 // CLOCK_MONOTONIC
	// kept is the file of the memory, "" if it is not kept. restored: it is of the server
	// before.
	kept     string
	restored bool
}

// lastRing is the number of the ring that was made last. They are inodes too.
var lastRing atomic.Uint64

const firstRing = 1 << 32

func newRing() uint64 { return firstRing + lastRing.Add(1) }

// open makes a ring for a process.
func (r *rings) open(id uint64, tid int) (*openRing, error) {
	st, err := procfs.New("").Proc(tid).Status()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", syscall.ESRCH, err)
	}
	p := findProcess(st.TGID)
	if p == nil {
		return nil, syscall.ESRCH
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.most > 0 && len(r.list) >= r.most {
		return nil, fmt.Errorf("%d rings: %w", len(r.list), syscall.EMFILE)
	}
	o := &openRing{id: id, opener: p.owner, pid: st.TGID, since: monotonic()}
	if len(st.NSTGID) > 1 {
		o.tids = make(map[uint32]int)
	}
	size := ring.Header + r.size
	if o.fd, o.kept, err = r.newMemory(id, size); err != nil {
		return nil, err
	}
	if o.mem, err = sys.Mmap(o.fd, size, true); err == nil {
		err = ring.Format(o.mem.Bytes(), r.fs.clock.Kind())
	}
	if err == nil {
		o.reader, err = ring.NewReader(o.mem.Bytes())
	}
	if err != nil {
		o.unkeep()
		return nil, errors.Join(err, o.close())
	}
	r.list[o.id] = o
	return o, nil
}

func (o *openRing) close() error { return errors.Join(o.mem.Close(), o.fd.Close()) }

// drop ends a ring that is no file's.
func (r *rings) drop(o *openRing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.file == nil && r.list[o.id] == o {
		delete(r.list, o.id)
		o.unkeep()
		_ = o.close() // memory of ours
	}
}

// remove reads what is left in a ring, and ends it.
func (r *rings) remove(o *openRing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.list[o.id] != o {
		return
	}
	r.set.PublishAll(r.read(nil, o, true))
	delete(r.list, o.id)
	o.unkeep()
	_ = o.close() // memory of ours
	r.poke()
}

// attach gives a file's events a ring, which its process opened.
func (r *rings) attach(id, owner uint64, file *events.File) (*openRing, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.list[id]
	switch {
	case o == nil || o.opener != owner:
		return nil, fmt.Errorf("ring %d: %w", id, syscall.ENOENT)
	case o.file != nil:
		return nil, fmt.Errorf("ring %d: %w", id, syscall.EBUSY)
	}
	o.file = file
	r.begin()
	return o, r.keep(o)
}

// begin has the rings read from now on; the caller holds mu.
func (r *rings) begin() {
	r.poke()
	if !r.reading {
		r.reading = true
		r.fs.readers.Go(r.readAll)
	}
}

// poke has the rings looked at now; the caller holds mu.
func (r *rings) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// How often rings are read while events are enabled: as a rule, and where much comes.
const (
	readPeriod = 10 * time.Millisecond
	busyPeriod = time.Millisecond
	// readBusy is the part of a ring that is much.
	readBusy = 8
)

// readAll reads the rings of a namespace while there are any.
func (r *rings) readAll() {
	timer := time.NewTimer(readPeriod)
	defer timer.Stop()
	for {
		var tick <-chan time.Time
		if r.set.Active() {
			tick = timer.C
		}
		select {
		case <-tick:
		case <-r.wake:
		case <-r.set.Enabled():
		case <-r.fs.ended:
			return
		}
		again, ok := r.round()
		if !ok {
			return
		}
		timer.Reset(again)
	}
}

// round reads all rings once and returns when to read them again; ok is false if there
// are none.
func (r *rings) round() (again time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) == 0 {
		r.reading = false
		return 0, false
	}
	again = readPeriod
	list := r.records[:0]
	for _, o := range r.list {
		before := len(list)
		if o.restored {
			if list = r.readOn(list, o); r.list[o.id] == nil {
				continue
			}
		} else {
			list = r.read(list, o, false)
		}
		if (len(list)-before)*ring.RecordHeader > r.size/readBusy {
			again = busyPeriod
		}
	}
	r.records = list
	if len(list) > 0 {
		byTime := func(a, b events.Record) int { return cmp.Compare(a.Time, b.Time) }
		if !slices.IsSortedFunc(list, byTime) {
			slices.SortStableFunc(list, byTime)
		}
		r.set.PublishAll(list)
		clear(list) // whose data are others' now
	}
	return again, true
}

// readOn is read of a ring of the server before: what is in it waits for somebody who
// listens, and nobody tells when its program ends.
func (r *rings) readOn(list []events.Record, o *openRing) []events.Record {
	if !r.set.Active() {
		return list
	}
	ended := r.ended(o)
	list = r.read(list, o, ended)
	if ended {
		r.end(o)
	}
	return list
}

// slab is how much memory the data of records share, in bytes.
const slab = 64 << 10

// read adds the records of a ring to a list; the caller holds mu. With last, nobody writes
// to it any more.
func (r *rings) read(list []events.Record, o *openRing, last bool) []events.Record {
	if o.file == nil {
		return list
	}
	r.fs.clock.Update(monotonic)
	now := monotonic()
	var room []byte
	bad := uint64(0)
	// A program that has the file itself may have cut it off.
	err := sys.OnFault(func() {
		o.reader.Read(last, func(rec *ring.Record) {
			if len(rec.Data) > cap(room)-len(room) {
				room = make([]byte, 0, max(slab, len(rec.Data)))
			}
			from := len(room)
			room = append(room, rec.Data...)
			at := r.fs.clock.Time(rec.Time)
			who := events.Writer{PID: o.pid, TID: r.thread(o, rec.TID), Time: min(max(at, o.since), now)}
			taken, err := o.file.Record(who, int(rec.Index), room[from:len(room):len(room)])
			switch {
			case err == nil:
				list = append(list, taken)
			case !errors.Is(err, events.ErrDisabled):
				bad++
			}
		})
	})
	if err != nil {
		o.file = nil // there is nothing more to be had of it
		bad++
	}
	if lost := o.reader.Lost() + bad - o.lost; lost > 0 {
		o.lost += lost - bad
		r.lost += lost
		r.set.Lose(lost)
	}
	return list
}

// thread is a thread as the host numbers it, the process itself if it is not found.
func (r *rings) thread(o *openRing, tid uint32) int {
	switch {
	case tid == 0:
		return o.pid
	case o.tids == nil:
		return int(tid)
	}
	if host, ok := o.tids[tid]; ok {
		return host
	}
	if len(o.tids) < maxThreads {
		r.findThreads(o)
		if _, ok := o.tids[tid]; !ok {
			o.tids[tid] = o.pid
		}
		return o.tids[tid]
	}
	return o.pid
}

// maxThreads bounds the threads of a ring's program whose numbers are translated.
const maxThreads = 4096

// findThreads notes the threads of a ring's process.
func (r *rings) findThreads(o *openRing) {
	p := procfs.New("").Proc(o.pid)
	tids, err := p.Tasks()
	if err != nil {
		return
	}
	for _, tid := range tids {
		if st, err := p.Task(tid).Status(); err == nil && len(st.NSPID) > 0 && len(o.tids) < maxThreads {
			o.tids[uint32(st.NSPID[len(st.NSPID)-1])] = tid
		}
	}
}

// Names in root/.
const (
	ringFile   = "ring"
	ringSocket = "ring.socket"
)

// ringNode is root/ring. Each lookup finds another one, as the kernel knows one memory for
// a file.
type ringNode struct {
	files
	opened atomic.Bool
}

// ringHandle is an open ring.
type ringHandle struct {
	of
	ring *openRing
}

var (
	_ fs.NodeOpener          = (*ringNode)(nil)
	_ fs.FilePassthroughFder = (*ringHandle)(nil)
	_ fs.FileReleaser        = (*ringHandle)(nil)
)

func (n *ringNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	tid, err := caller(ctx)
	switch {
	case err != nil:
		return nil, 0, errno(err)
	case n.fs.noPassthrough != nil:
		return nil, 0, syscall.EOPNOTSUPP
	case flags&syscall.O_ACCMODE != syscall.O_RDWR:
		return nil, 0, syscall.EINVAL
	case n.opened.Swap(true):
		return nil, 0, syscall.EBUSY
	}
	if err := n.fs.registry.Hold(n.ns); err != nil {
		return nil, 0, errno(err)
	}
	r, err := n.fs.rings.of(n.ns).open(n.StableAttr().Ino, tid)
	if err != nil {
		n.fs.registry.Release(n.ns)
		return nil, 0, errno(err)
	}
	// Reads and writes have no use; only memory of it is passed through.
	return &ringHandle{n.of, r}, fuse.FOPEN_DIRECT_IO, 0
}

// PassthroughFd has the kernel map the ring itself.
func (h *ringHandle) PassthroughFd() (int, bool) { return h.ring.fd.Int(), true }

// Release ends a ring that is no file's. Another one may be mapped still.
func (h *ringHandle) Release(context.Context) syscall.Errno {
	h.fs.rings.of(h.ns).drop(h.ring)
	h.fs.registry.Release(h.ns)
	return 0
}

// attachRing carries out ring.Command.
func (h *dataHandle) attachRing(m *memory, in []byte) error {
	if len(in) != 8 {
		return syscall.EINVAL
	}
	owner, err := h.owner(m)
	if err != nil {
		return err
	}
	h.ringMu.Lock()
	defer h.ringMu.Unlock()
	if h.ring != nil {
		return syscall.EBUSY
	}
	h.ring, err = h.fs.rings.of(h.ns).attach(binary.NativeEndian.Uint64(in), owner, h.file)
	return err
}
