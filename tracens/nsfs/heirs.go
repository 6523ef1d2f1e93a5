// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nsfs

import (
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/tracens/events"
)

// A program that forks has its registrations twice: the kernel's user_events tell both
// from then on. Here nobody says that a program forked, so whoever has the memory of
// another is looked for when it matters.

// forkedNoExec is PF_FORKNOEXEC of linux/sched.h: forked, and nothing executed since.
const forkedNoExec = 0x40

// process is what a look for heirs has to know of one.
type process struct {
	procfs.Stat
	owner uint64
}

// pidBits are the bits of an owner's number that the process's has.
const pidBits = 22

// ownerOf numbers the memory of a process that began at a time. The number of a process
// comes back after 32768 others at least, which take some ticks.
func ownerOf(st *procfs.Stat) uint64 { return st.StartTime<<pidBits | uint64(st.PID) }

// findProcess reads the stat of a process, by its number.
func findProcess(pid int) *process {
	if pid <= 0 {
		return nil
	}
	st, err := procfs.New("").Proc(pid).Stat()
	if err != nil {
		return nil
	}
	return &process{st, ownerOf(&st)}
}

// mayInherit reports whether a process has the memory of another one.
func (p *process) mayInherit() bool {
	return p.Flags&forkedNoExec != 0 && !p.KernelThread() && !p.Exiting()
}

// pause is how many times as long as the last look for heirs the next one is put off, at
// the least: who toggles all the time has a tenth of a CPU for it.
const pause = 9

// heirs finds the programs that have the memory of some owners by fork.
func (f *FS) heirs(owners map[uint64]bool) []events.Heir {
	processes := f.looks.look()
	var list []events.Heir
	for _, p := range processes {
		if !p.mayInherit() || owners[p.owner] {
			continue
		}
		if h, ok := f.heir(p, owners, func(pid int) *process { return processes[pid] }); ok {
			list = append(list, h)
		}
	}
	return list
}

// looks are looks at all processes.
type looks struct {
	mu        sync.Mutex
	processes map[int]*process
	begin     time.Time // of the last look
	next      time.Time // before which there is no other
	last      int       // the process that began last
}

// look returns the processes that there are now, or were when nothing had been forked
// since. The result is everybody's.
func (l *looks) look() map[int]*process {
	asked := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begin.After(asked) || l.last != 0 && l.last == lastPID() {
		return l.processes
	}
	time.Sleep(time.Until(l.next))
	l.begin, l.last = time.Now(), lastPID()
	l.processes = make(map[int]*process)
	pids, err := procfs.New("").PIDs()
	if err != nil {
		return nil
	}
	for _, pid := range pids {
		if p := findProcess(pid); p != nil {
			l.processes[pid] = p
		}
	}
	l.next = time.Now().Add(pause * time.Since(l.begin))
	return l.processes
}

// heir finds of which of the owners a process is an heir.
func (f *FS) heir(p *process, owners map[uint64]bool, find func(pid int) *process) (events.Heir, bool) {
	of := ancestor(p, owners, find)
	if of == 0 {
		of = f.handles.same(p, owners, &f.access)
	}
	if of == 0 {
		return events.Heir{}, false
	}
	return events.Heir{Owner: p.owner, Of: of, Born: events.Instant{Ticks: p.StartTime, PID: p.PID},
		Open: func(addr uint64, bit uint8) (events.Switch, error) {
			h, err := f.handles.open(p.PID, p.owner, addr)
			if err != nil {
				return nil, err
			}
			b := &memoryBit{handle: h, addr: addr, bit: bit, proc: procfs.New("").Proc(p.PID), access: &f.access}
			if now := findProcess(p.PID); now == nil || now.owner != p.owner || !now.mayInherit() {
				_ = b.Close() // the number is another's by now, or the program
				return nil, syscall.ESRCH
			}
			return b, nil
		}}, true
}

// ancestor is the nearest owner among the processes that a process is forked from, where
// none between them has executed anything; 0 is none.
func ancestor(p *process, owners map[uint64]bool, find func(pid int) *process) uint64 {
	for p.Flags&forkedNoExec != 0 {
		parent := find(p.PPID)
		if parent == nil || parent.StartTime > p.StartTime {
			return 0
		}
		if owners[parent.owner] {
			return parent.owner
		}
		p = parent
	}
	return 0
}

// lastPID is the number of the process that began last, 0 if that cannot be read.
func lastPID() int {
	text, err := os.ReadFile(procfs.New("").Path("loadavg"))
	if err != nil {
		return 0
	}
	words := strings.Fields(string(text))
	if len(words) < 5 {
		return 0
	}
	n, err := strconv.Atoi(words[4])
	if err != nil {
		return 0
	}
	return n
}

// now is the instant of a registration.
func now() events.Instant {
	t, err := sys.ClockBoottime.Now()
	if err != nil {
		panic(err) // every kernel has it
	}
	return events.Instant{Ticks: uint64(t / procfs.Ticks), PID: lastPID()}
}

// identity is what a program and those that it forks have in common: what the kernel gave
// it at its exec, random bytes among it, and whose it is.
type identity struct {
	auxv   string
	status procfs.Status
	random [16]byte
}

// identify reads a process's identity; with like, as much of it as is the same. ok is
// false if it has none, or another.
func identify(pid int, like *identity) (id identity, ok bool) {
	p := procfs.New("").Proc(pid)
	auxv, err := os.ReadFile(p.Path("auxv"))
	if err != nil || like != nil && like.auxv != string(auxv) {
		return id, false
	}
	id.auxv = string(auxv)
	id.status, err = p.Status()
	if err != nil || like != nil && !sameRights(&like.status, &id.status) {
		return id, false
	}
	const atRandom = 25 // AT_RANDOM of linux/auxvec.h
	for ; len(auxv) >= 16; auxv = auxv[16:] {
		if binary.NativeEndian.Uint64(auxv) == atRandom {
			n, err := sys.ReadMemory(pid, binary.NativeEndian.Uint64(auxv[8:]), id.random[:])
			ok = err == nil && n == len(id.random) && (like == nil || like.random == id.random)
			return id, ok
		}
	}
	return id, false
}

// sameRights reports whether two processes may look into each other's memory anyway.
func sameRights(a, b *procfs.Status) bool {
	return a.UID == b.UID && a.GID == b.GID && a.CapPrm == b.CapPrm && a.CapEff == b.CapEff
}
