// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"errors"
	"fmt"
)

// Reasons why reading fails. All are wrapped in an [Error].
var (
	// ErrMagic says that the input is not perf.data at all.
	ErrMagic = errors.New("not a perf.data file")
	// ErrFormat says that a length, count or offset makes no sense.
	ErrFormat = errors.New("malformed perf.data")
	// ErrTruncated says that the input ends inside a structure.
	ErrTruncated = errors.New("perf.data is cut short")
	// ErrUnsupported says that the input is of a kind gantry does not read.
	ErrUnsupported = errors.New("unsupported perf.data")
	// ErrTooLarge says that a record or section does not fit its length field,
	// or is larger than gantry is ready to hold in memory.
	ErrTooLarge = errors.New("too large")
)

// An Error says where in the input reading failed. Err wraps one of the
// sentinels of this package or the error of the underlying reader.
type Error struct {
	Offset int64  // from the start of the input
	What   string // what was being read, as "read attributes"
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s at offset %d: %v", e.What, e.Offset, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

func errAt(off int64, what string, err error) *Error {
	return &Error{Offset: off, What: what, Err: err}
}

func formatErr(off int64, what, format string, args ...any) *Error {
	return errAt(off, what, fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...)))
}

// A WarningKind says what a [Warning] is about.
type WarningKind uint8

// The kinds of warnings.
const (
	// WarnUnfinished: the recorder did not finish the file.
	WarnUnfinished WarningKind = iota + 1
	// WarnTruncated: the input ends inside a record.
	WarnTruncated
	// WarnFeature: a feature section is damaged and was kept raw or left out.
	WarnFeature
	// WarnUnknownRecord: user records of a type gantry does not know, skipped by size.
	WarnUnknownRecord
	// WarnBadRecord: user records gantry knows, but cannot make sense of.
	WarnBadRecord
	// WarnUnknownID: records with an id that belongs to no event.
	WarnUnknownID
	// WarnOutOfOrder: Ordered delivered records later than their time.
	WarnOutOfOrder
	// WarnMemory: Ordered had to deliver before a round was complete.
	WarnMemory
)

// A Warning is something odd in the input that did not stop reading.
type Warning struct {
	Kind   WarningKind
	Offset int64 // of the first occurrence
	Count  uint64
	Text   string // without offset and count
}

func (w Warning) String() string {
	if w.Count > 1 {
		return fmt.Sprintf("%s (%d times, first at offset %d)", w.Text, w.Count, w.Offset)
	}
	return fmt.Sprintf("%s (at offset %d)", w.Text, w.Offset)
}

type warnKey struct {
	kind WarningKind
	sub  uint32
}

// warnings collects warnings, one per kind and sub key, in order of appearance.
type warnings struct {
	list  []Warning
	index map[warnKey]int
}

// maxWarnings bounds what hostile input can make us remember.
const maxWarnings = 1000

func (w *warnings) add(key warnKey, off int64, text func() string) {
	i, ok := w.index[key]
	if !ok {
		if len(w.list) >= maxWarnings {
			return
		}
		if w.index == nil {
			w.index = make(map[warnKey]int)
		}
		i = len(w.list)
		w.index[key] = i
		w.list = append(w.list, Warning{Kind: key.kind, Offset: off, Text: text()})
	}
	w.list[i].Count++
}
