// SPDX-License-Identifier: Apache-2.0

package timeline

import "github.com/gantry-tools/gantry/perf"

// Life is the time in which a namespace has processes. The kernel gives a new
// namespace the lowest inode number that is free, so that the next container
// mostly has the numbers of the one before.
//
// A pid namespace whose last process has ended takes no more. Others may be kept
// without processes, by a mount or a descriptor; they count as new as well.
type Life struct {
	// Number counts the lives of the inode number in this recording, from 1.
	Number int
	// Born is a time before the first process of the namespace did anything in
	// it: when that process was forked; 0 if it ran before the recording.
	Born uint64

	processes int
}

// kinds is how many kinds of namespaces PERF_RECORD_NAMESPACES has
// (NR_NAMESPACES of linux/perf_event.h).
const kinds = perf.NSCgroup + 1

// namespace is what tells one at a time.
type namespace struct {
	kind int
	ino  uint64
}

// Life is that of the process's namespace with the index ns, nil if it is not
// known.
func (p *Process) Life(ns int) *Life {
	if ns < len(p.lives) {
		return p.lives[ns]
	}
	return nil
}

// live takes the lives of the namespaces that a record tells for p. One that
// nobody is in is new.
func (t *Timeline) live(p *Process, links []perf.NSLink, status bool) {
	for kind := range min(len(links), kinds) {
		key := namespace{kind, links[kind].Ino}
		if key.ino == 0 || p.lives[kind] != nil && p.in[kind] == key.ino {
			continue
		}
		if p.counted {
			p.lives[kind].leave()
		}
		life := t.lives[key]
		if life == nil || life.processes == 0 {
			number := 1
			if life != nil {
				number += life.Number
			}
			life = &Life{Number: number, Born: p.forked}
			if status {
				life.Born = 0
			}
			t.lives[key] = life
		}
		p.lives[kind], p.in[kind] = life, key.ino
		if p.counted {
			life.processes++
		}
	}
}

// leave is for one process less; unknown lives count nothing.
func (l *Life) leave() {
	if l != nil {
		l.processes--
	}
}

// enterLives counts p among the processes of its namespaces, once.
func (p *Process) enterLives() {
	if p.counted {
		return
	}
	p.counted = true
	for _, l := range p.lives {
		if l != nil {
			l.processes++
		}
	}
}

// leaveLives is for a process that has ended.
func (p *Process) leaveLives() {
	if !p.counted {
		return
	}
	p.counted = false
	for _, l := range p.lives {
		l.leave()
	}
}

// inheritLives is for a process that was forked at a time.
func (p *Process) inheritLives(parent *Process, time uint64) {
	counted := p.counted
	p.leaveLives()
	p.lives, p.in, p.forked = parent.lives, parent.in, time
	if counted {
		p.enterLives()
	}
}
