// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import "github.com/gantry-tools/gantry/capture/filter"

// deferredBinaries is what processes have mapped that are not chosen. Their binaries are
// not copied, unless a sample of them is recorded: they may be chosen later.
type deferredBinaries struct {
	filter    *filter.Filter
	collector *collector
	// wanted is what the filter said of a process; files is in the order in
	// which they were mapped.
	wanted map[int32]bool
	files  map[int32][]deferredBinary
	count  int
}

// deferredBinary is a file and where it was seen.
type deferredBinary struct {
	key binaryKey
	at  mappedAt
}

// maxDeferred bounds the mappings in reserve. Those above it are offered.
const maxDeferred = 1 << 17

func newDeferredBinaries(f *filter.Filter, k *collector) *deferredBinaries {
	return &deferredBinaries{filter: f, collector: k, wanted: make(map[int32]bool), files: make(map[int32][]deferredBinary)}
}

// add takes a mapping of a process.
func (r *deferredBinaries) add(key *binaryKey, at mappedAt) {
	pid := int32(at.pid)
	wanted, known := r.wanted[pid]
	if !known {
		wanted = r.filter.Wanted(pid)
		r.wanted[pid] = wanted
	}
	if wanted || r.count >= maxDeferred {
		r.collector.enqueue(key, at)
		return
	}
	r.files[pid] = append(r.files[pid], deferredBinary{*key, at})
	r.count++
}

// release offers what a process has mapped of which a sample is recorded.
func (r *deferredBinaries) release(pid int32) {
	if r == nil || len(r.files[pid]) == 0 {
		return
	}
	list := r.files[pid]
	r.forget(pid)
	r.wanted[pid] = true
	for i := range list {
		r.collector.enqueue(&list[i].key, list[i].at)
	}
}

// forget is for a process that has ended.
func (r *deferredBinaries) forget(pid int32) {
	if r != nil {
		r.count -= len(r.files[pid])
		delete(r.files, pid)
		delete(r.wanted, pid)
	}
}
