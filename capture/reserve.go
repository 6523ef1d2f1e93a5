// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import "github.com/gantry-tools/gantry/capture/filter"

// reserve is what processes have mapped that are not chosen. Their binaries are
// not copied, unless a sample of them is recorded: they may be chosen later.
type reserve struct {
	filter *filter.Filter
	keep   *keeper
	// wanted is what the filter said of a process; files is in the order in
	// which they were mapped.
	wanted map[int32]bool
	files  map[int32][]reserved
	count  int
}

// reserved is a file and where it was seen.
type reserved struct {
	key binaryKey
	at  seen
}

// maxReserved bounds the mappings in reserve. Those above it are offered.
const maxReserved = 1 << 17

func newReserve(f *filter.Filter, k *keeper) *reserve {
	return &reserve{filter: f, keep: k, wanted: make(map[int32]bool), files: make(map[int32][]reserved)}
}

// mapped takes a mapping of a process.
func (r *reserve) mapped(key *binaryKey, at seen) {
	pid := int32(at.pid)
	wanted, known := r.wanted[pid]
	if !known {
		wanted = r.filter.Wanted(pid)
		r.wanted[pid] = wanted
	}
	if wanted || r.count >= maxReserved {
		r.keep.offer(key, at)
		return
	}
	r.files[pid] = append(r.files[pid], reserved{*key, at})
	r.count++
}

// sampled offers what a process has mapped of which a sample is recorded.
func (r *reserve) sampled(pid int32) {
	if r == nil || len(r.files[pid]) == 0 {
		return
	}
	list := r.files[pid]
	r.forget(pid)
	r.wanted[pid] = true
	for i := range list {
		r.keep.offer(&list[i].key, list[i].at)
	}
}

// forget is for a process that has ended.
func (r *reserve) forget(pid int32) {
	if r != nil {
		r.count -= len(r.files[pid])
		delete(r.files, pid)
		delete(r.wanted, pid)
	}
}
