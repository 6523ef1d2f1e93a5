// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nsfs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/tracens/events"
	"github.com/gantry-tools/gantry/tracens/ring"
)

// A ring outlives the server: its memory is a file of the state, beside which stands whose
// it is and what is in it. The next server reads it on, and the program notices nothing.

// keptRing is what is written of a ring.
type keptRing struct {
	Owner  uint64
	PID    int
	Since  uint64
	Reader string // hash of what the program is, see program
	Events []events.Kept
	Bits   []events.KeptBit
}

// program is a hash of a process's identity: after an exec it is another one.
func program(pid int) string {
	id, ok := identify(pid, nil)
	if !ok {
		return ""
	}
	sum := sha256.Sum256(append([]byte(id.auxv), id.random[:]...))
	return hex.EncodeToString(sum[:])
}

// ringState is where the rings of a namespace are kept, "" if nowhere.
func (r *rings) ringState() string {
	if r.fs.state == "" {
		return ""
	}
	return filepath.Join(r.fs.state, r.ns.Name, "rings")
}

// newMemory makes the memory of a ring: a file that stays where rings are kept and files
// are in memory, else one that goes with us. name is the file's, "" for none.
func (r *rings) newMemory(id uint64, size int) (fd *sys.FD, name string, err error) {
	dir := r.ringState()
	if dir == "" || os.MkdirAll(dir, 0o700) != nil || !sys.InMemory(dir) {
		fd, err = sys.SharedMemory("gantry-ring", size)
		return fd, "", err
	}
	name = filepath.Join(dir, strconv.FormatUint(id, 10))
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, stateMode)
	if err != nil {
		return nil, "", err
	}
	defer file.Close()
	err = file.Truncate(int64(size))
	if err == nil {
		fd, err = sys.DupFile(file)
	}
	if err != nil {
		return nil, "", errors.Join(err, os.Remove(name))
	}
	return fd, name, nil
}

// keep writes what a ring has in it now.
func (r *rings) keep(o *openRing) error {
	if o == nil || o.kept == "" || o.file == nil {
		return nil
	}
	list, bits := o.file.Keep()
	text, err := json.Marshal(&keptRing{Owner: o.opener, PID: o.pid, Since: o.since, Reader: program(o.pid),
		Events: list, Bits: bits})
	if err != nil {
		return err
	}
	return replaceFile(o.kept+".json", string(text))
}

// unkeep removes the files of a ring.
func (o *openRing) unkeep() {
	if o.kept != "" {
		_, _ = os.Remove(o.kept), os.Remove(o.kept+".json") // or the next server does
		_ = os.Remove(filepath.Dir(o.kept))
	}
}

// restoreRings opens the rings that the server before had.
func (r *rings) restoreRings() error {
	dir := r.ringState()
	if dir == "" {
		return nil
	}
	list, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var failed []error
	for _, entry := range list {
		number, ok := strings.CutSuffix(entry.Name(), ".json")
		id, err := strconv.ParseUint(number, 10, 64)
		if !ok || err != nil {
			continue
		}
		if err := r.restoreRing(id, filepath.Join(dir, number)); err != nil {
			failed = append(failed, fmt.Errorf("ring %d: %w", id, err))
		}
	}
	// What was never said whose it is.
	for _, entry := range list {
		name := filepath.Join(dir, entry.Name())
		if _, err := os.Stat(name + ".json"); err != nil && !strings.HasSuffix(name, ".json") {
			_ = os.Remove(name)
		}
	}
	return errors.Join(append(failed, err)...)
}

// restoreRing opens one.
func (r *rings) restoreRing(id uint64, name string) error {
	text, err := os.ReadFile(name + ".json")
	if err != nil {
		return err
	}
	var k keptRing
	if err := json.Unmarshal(text, &k); err != nil {
		return err
	}
	o := &openRing{id: id, opener: k.Owner, pid: k.PID, since: k.Since, kept: name, restored: true}
	if o.fd, err = sys.Open(name, syscall.O_RDWR); err != nil {
		return err
	}
	st, err := o.fd.Stat()
	if err == nil {
		o.mem, err = sys.Mmap(o.fd, int(min(st.Size, ring.Header+ring.MaxData)), true)
	}
	if err == nil {
		err = sys.OnFault(func() { o.reader, err = ring.NewReader(o.mem.Bytes()) })
	}
	if o.reader == nil || err != nil {
		o.unkeep()
		return errors.Join(err, o.close())
	}
	raise(&lastRing, id-firstRing)
	if st, err := procfs.New("").Proc(o.pid).Status(); err == nil && len(st.NSTGID) > 1 {
		o.tids = make(map[uint32]int)
	}
	o.file = r.set.Open()
	err = o.file.Restore(k.Events, k.Bits, func(b *events.KeptBit) (events.Bit, error) { return r.restoreBit(&k, b) })
	if err != nil {
		r.fs.log.Printf("namespace %s: process %d: %v", r.ns.Name, k.PID, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list[o.id] = o
	r.begin()
	return nil
}

// restoreBit opens a bit of a program that runs still.
func (r *rings) restoreBit(k *keptRing, b *events.KeptBit) (events.Bit, error) {
	p := findProcess(k.PID)
	if p == nil || p.owner != k.Owner || k.Reader == "" || program(k.PID) != k.Reader {
		return events.Bit{}, syscall.ESRCH
	}
	h, err := r.fs.handles.open(k.PID, k.Owner, b.Addr)
	if err != nil {
		return events.Bit{}, err
	}
	sw := &memoryBit{handle: h, addr: b.Addr, bit: b.Bit, proc: procfs.New("").Proc(k.PID), access: &r.fs.access}
	return events.Bit{Key: events.Key{Owner: k.Owner, Addr: b.Addr, Bit: b.Bit}, At: b.At, Switch: sw}, nil
}

// raise makes a number at least as large as another.
func raise(n *atomic.Uint64, least uint64) {
	for {
		old := n.Load()
		if old >= least || n.CompareAndSwap(old, least) {
			return
		}
	}
}

// discard ends the rings of the server before whose programs have ended, for who removes
// the namespace.
func (r *rings) discard() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.list {
		if o.restored && r.ended(o) {
			r.end(o)
		}
	}
}

// end ends a restored ring; the caller holds mu.
func (r *rings) end(o *openRing) {
	delete(r.list, o.id)
	o.unkeep()
	_ = o.close() // memory of ours
	if o.file != nil {
		o.file.Close()
	}
}

// ended reports whether the program of a restored ring has: nobody tells of it.
func (r *rings) ended(o *openRing) bool {
	p := findProcess(o.pid)
	return p == nil || p.owner != o.opener
}
