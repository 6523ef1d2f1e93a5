// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"bytes"
	"slices"
)

// KSYMBOL and BPF_EVENT records grow. The kernel (6.18, and before) sends one
// to each event in turn, counts the sample_id of the event in its size, and
// forgets to take it off again (perf_event_ksymbol_output and
// perf_event_bpf_output in kernel/events/core.c): with several recordings at
// the same time, the record of the second has room for two, and so on. The
// sample_id is behind the body, and what is behind that was in the ring before.
// gantry's recorder puts it at the end, where others look for it.

// Where the body ends, but for the name of a KSYMBOL, which is padded to 8.
const (
	ksymbolNameAt = 24
	bpfEventEnd   = 24
)

// grownBody is where the body of a record of a type that grows ends; false for
// another one.
func grownBody(raw []byte, o Order) (int, bool) {
	switch RecordType(o.Uint32(raw)) {
	case RecordBPFEvent:
		return bpfEventEnd, len(raw) >= bpfEventEnd
	case RecordKsymbol:
		if len(raw) <= ksymbolNameAt {
			return 0, false
		}
		n := bytes.IndexByte(raw[ksymbolNameAt:], 0)
		return ksymbolNameAt + (n+8)&^7, n >= 0
	}
	return 0, false
}

// ungrown is the whole record raw of the event, up to the end of its sample_id.
func (e *Event) ungrown(raw []byte, o Order) []byte {
	body, ok := grownBody(raw, o)
	end := body + e.Layout.sidSize
	if !ok || end >= len(raw) {
		return raw
	}
	l := &e.Layout
	idAt := l.sidIdent
	if idAt == 0 {
		idAt = l.sidID
	}
	if idAt > 0 && len(e.IDs) > 0 {
		ok = slices.Contains(e.IDs, o.Uint64(raw[end-idAt:]))
	} else {
		ok = slices.ContainsFunc(raw[body:end], func(b byte) bool { return b != 0 })
	}
	if !ok {
		return raw
	}
	return raw[:end]
}

// ungrown is the whole record raw of one of the events, up to the end of its
// sample_id.
func (e *Events) ungrown(raw []byte, o Order) []byte {
	if t := RecordType(o.Uint32(raw)); t != RecordKsymbol && t != RecordBPFEvent {
		return raw
	}
	shortest := raw // of events with more in a sample_id, old memory may be the id
	for _, ev := range e.list {
		if r := ev.ungrown(raw, o); len(r) < len(shortest) {
			shortest = r
		}
	}
	return shortest
}
