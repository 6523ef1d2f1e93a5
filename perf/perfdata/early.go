// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"fmt"
	"maps"
	"slices"
)

// earlyFeatures are the features of a file that are written before its data, so
// that it has them if its writer is killed: perf refuses a file of tracepoints
// without their formats. The table of sections has to follow the data. It is
// written there after each round, and overwritten by the next; meanwhile the
// header says that there are no features.
type earlyFeatures struct {
	ids      []FeatureID
	sections map[FeatureID]section
	content  map[FeatureID]string // as encoded
	shown    bool                 // the header tells of them
	late     map[FeatureID][]byte // see ShowFeatures
}

// CheckpointFeatures gives sections, as they are in a file, that a file has as well if its
// writer is killed, in place of those of the options. They count from the next
// round on until the next call, and are not changed meanwhile. They are written
// behind the data with each round: let them be small. A stream has no use for them, nor
// a file without features in its options.
func (w *Writer) CheckpointFeatures(sections map[FeatureID][]byte) {
	if w.early != nil {
		w.early.late = sections
	}
}

// earlySections appends the features.
func (w *Writer) earlySections(b []byte, f *Features) ([]byte, error) {
	e := &earlyFeatures{sections: make(map[FeatureID]section), content: make(map[FeatureID]string)}
	for _, id := range f.IDs() {
		start := len(b)
		var err error
		if b, err = f.encode(b, id, w.order); err != nil {
			return nil, fmt.Errorf("write feature %s: %w", id, err)
		}
		e.ids = append(e.ids, id)
		e.sections[id] = section{uint64(start), uint64(len(b) - start)}
		e.content[id] = string(b[start:])
		b = append(b, make([]byte, -len(b)&7)...)
	}
	w.early = e
	return b, nil
}

// find is where a section with this content has been written early.
func (e *earlyFeatures) find(id FeatureID, content []byte) (section, bool) {
	if e == nil {
		return section{}, false
	}
	text, ok := e.content[id]
	return e.sections[id], ok && text == string(content)
}

// showEarly writes the table behind the data, the sections of ShowFeatures, and the header.
func (w *Writer) showEarly() error {
	e := w.early
	ids := slices.Concat(e.ids, slices.Collect(maps.Keys(e.late)))
	slices.Sort(ids)
	ids = slices.Compact(ids)
	table := make([]byte, 0, sectionSize*len(ids))
	var late []byte
	w.header.features = [featureBits / 64]uint64{}
	for _, id := range ids {
		s := e.sections[id]
		if content, ok := e.late[id]; ok {
			s = section{uint64(w.whole) + uint64(cap(table)+len(late)), uint64(len(content))}
			late = append(late, content...)
		}
		table = w.order.AppendUint64(w.order.AppendUint64(table, s.off), s.size)
		w.header.set(id)
	}
	if _, err := w.file.WriteAt(append(table, late...), w.whole); err != nil {
		w.err = fmt.Errorf("write features: %w", err)
		return w.err
	}
	e.shown = true
	return w.patchHeader()
}

// hideEarly is called before the table is overwritten.
func (w *Writer) hideEarly() error {
	if w.early == nil || !w.early.shown {
		return nil
	}
	w.early.shown = false
	w.header.features = [featureBits / 64]uint64{}
	return w.patchHeader()
}

// patchHeader writes the size of the data and the features, in one piece.
func (w *Writer) patchHeader() error {
	if _, err := w.file.WriteAt(w.header.append(nil)[dataSizeAt:], dataSizeAt); err != nil {
		w.err = fmt.Errorf("write header: %w", err)
	}
	return w.err
}
