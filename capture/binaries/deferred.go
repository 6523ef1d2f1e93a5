// SPDX-License-Identifier: Apache-2.0

//go:build linux

package binaries

import "github.com/gantry-tools/gantry/capture/proctable"

// Deferred holds back what processes have mapped whose samples are not recorded.
// Their binaries are copied only once a sample of the process is recorded: it may
// be chosen later. The methods of a nil Deferred do nothing.
type Deferred struct {
	collector *Collector
	wanted    func(pid int32) bool
	answers   map[int32]bool             // of wanted
	files     map[int32][]deferredBinary // in the order in which they were mapped
	count     int
}

// deferredBinary is a file and where it was mapped.
type deferredBinary struct {
	key binaryKey
	at  mappedAt
}

// maxDeferred bounds the mappings that are held back. Those above it are
// collected.
const maxDeferred = 1 << 17

var _ proctable.Observer = (*Deferred)(nil)

// NewDeferred returns a Deferred for a Collector. wanted reports whether samples of
// a process may be recorded, where the process is now.
func NewDeferred(k *Collector, wanted func(pid int32) bool) *Deferred {
	return &Deferred{collector: k, wanted: wanted, answers: make(map[int32]bool),
		files: make(map[int32][]deferredBinary)}
}

// add takes a mapping of a process.
func (d *Deferred) add(key *binaryKey, at mappedAt) {
	pid := int32(at.pid)
	wanted, known := d.answers[pid]
	if !known {
		wanted = d.wanted(pid)
		d.answers[pid] = wanted
	}
	if wanted || d.count >= maxDeferred {
		d.collector.enqueue(key, at)
		return
	}
	d.files[pid] = append(d.files[pid], deferredBinary{*key, at})
	d.count++
}

// Release collects what a process has mapped, as a sample of it is recorded.
func (d *Deferred) Release(pid int32) {
	if d == nil || len(d.files[pid]) == 0 {
		return
	}
	list := d.files[pid]
	d.forget(pid)
	d.answers[pid] = true
	for i := range list {
		d.collector.enqueue(&list[i].key, list[i].at)
	}
}

// Observe implements proctable.Observer.
func (d *Deferred) Observe(ev *proctable.Event) {
	if d != nil && ev.Kind == proctable.ProcessForgot {
		d.forget(ev.PID)
	}
}

func (d *Deferred) forget(pid int32) {
	d.count -= len(d.files[pid])
	delete(d.files, pid)
	delete(d.answers, pid)
}
