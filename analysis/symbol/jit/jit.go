// SPDX-License-Identifier: Apache-2.0

// Package jit reads where compilers that run with a program put the functions
// that they generate: perf maps, the text files /tmp/perf-PID.map, and jitdump,
// the binary files jit-PID.dump.
//
// Files come from containers and may hold anything. Lines and records that make
// no sense are counted and left out.
package jit

import (
	"cmp"
	"container/heap"
	"io"
	"math"
	"slices"
)

// Limits of what is read of a file.
const (
	maxFunctions = 1 << 22
	maxNames     = 1 << 28 // bytes
	maxName      = 1 << 12 // longer ones are cut
	maxBytes     = 1 << 30 // of a file
)

// Function is generated code from Start up to, but not including, End.
type Function struct {
	Name       string
	Start, End uint64
}

// Code is the generated code of a process.
type Code struct {
	list  []Function // in the order in which it came
	names int        // bytes
	// Bad counts what could not be understood, Cut what was beyond a limit.
	Bad, Cut int
}

// Len is the number of functions, those that were replaced included.
func (c *Code) Len() int { return len(c.list) }

// add adds a function.
func (c *Code) add(name []byte, start, size uint64) {
	switch {
	case size == 0 || start+size < start || len(name) == 0:
		c.Bad++
	default:
		c.append(Function{string(name[:min(len(name), maxName)]), start, start + size})
	}
}

// append adds f unless that is beyond a limit.
func (c *Code) append(f Function) {
	if len(c.list) == maxFunctions || c.names+len(f.Name) > maxNames {
		c.Cut++
		return
	}
	c.names += len(f.Name)
	c.list = append(c.list, f)
}

// bounded is a file as far as it is read.
func bounded(r io.Reader) *io.LimitedReader { return &io.LimitedReader{R: r, N: maxBytes} }

// end counts what the file has behind what was read of it.
func (c *Code) end(r *io.LimitedReader) {
	if r.N > 0 {
		return
	}
	if n, _ := r.R.Read(make([]byte, 1)); n > 0 {
		c.Cut++
	}
}

// Append adds the functions of d behind those of c.
func (c *Code) Append(d *Code) {
	for _, f := range d.list {
		c.append(f)
	}
	c.Bad += d.Bad
	c.Cut += d.Cut
}

// Functions are the functions by address. They do not overlap: where several
// were at a place, it is what came last, as memory is used again. One that was
// replaced in part has a piece on either side.
func (c *Code) Functions() []Function {
	order := make([]int, len(c.list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.list[a].Start, c.list[b].Start) })
	s := sweep{list: c.list}
	for _, i := range order {
		s.to(c.list[i].Start)
		heap.Push(&s.open, i)
	}
	s.to(math.MaxUint64)
	return s.out
}

// sweep goes through the addresses from below.
type sweep struct {
	list []Function
	open newest // functions that begin before at and may go on
	at   uint64
	out  []Function
}

// to gives the addresses up to end to the newest functions there.
func (s *sweep) to(end uint64) {
	for len(s.open) > 0 && s.at < end {
		f := &s.list[s.open[0]]
		if f.End <= s.at {
			heap.Pop(&s.open)
			continue
		}
		stop := min(f.End, end)
		s.emit(f, max(s.at, f.Start), stop)
		s.at = stop
	}
	s.at = max(s.at, end)
}

func (s *sweep) emit(f *Function, start, end uint64) {
	if n := len(s.out) - 1; n >= 0 && s.out[n].End == start && s.out[n].Name == f.Name && start > f.Start {
		s.out[n].End = end // a piece of the same function
		return
	}
	if start < end {
		s.out = append(s.out, Function{f.Name, start, end})
	}
}

// newest is a heap of numbers, the highest first.
type newest []int

func (h newest) Len() int           { return len(h) }
func (h newest) Less(i, j int) bool { return h[i] > h[j] }
func (h newest) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *newest) Push(x any)        { *h = append(*h, x.(int)) }
func (h *newest) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
