// SPDX-License-Identifier: Apache-2.0

// Package ctf writes user events as a trace in the Common Trace Format 1.8, which
// babeltrace2 and Trace Compass read: a directory with the file metadata, that says what
// is in the events, and one with the events.
//
// Start with Create; then Write records in order of time, and Close. The format is that of
// https://diamon.org/ctf/v1.8.3/.
package ctf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gantry-tools/gantry/tracens/events"
)

// magic begins a packet.
const magic = 0xC1FC1FC1

// Sizes of a packet, in bytes: of its header and context, and after how much it is
// written.
const (
	packetHeader = 8 + 5*8
	packetSize   = 256 << 10
)

// preamble is what all traces say of themselves, with the time at which their clock was 0.
// Everything is aligned to bytes.
const preamble = `/* CTF 1.8 */

typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 16; align = 8; signed = false; } := uint16_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
typealias integer { size = 8; align = 8; signed = true; } := int8_t;
typealias integer { size = 16; align = 8; signed = true; } := int16_t;
typealias integer { size = 32; align = 8; signed = true; } := int32_t;
typealias integer { size = 64; align = 8; signed = true; } := int64_t;
typealias integer { size = 8; align = 8; signed = false; encoding = UTF8; } := text_t;

trace {
	major = 1;
	minor = 8;
	byte_order = le;
	packet.header := struct {
		uint32_t magic;
		uint32_t stream_id;
	};
};

clock {
	name = monotonic;
	freq = 1000000000;
	offset = %d;
	absolute = true;
};

env {
	domain = "ust";
	tracer_name = "gantry";
	tracer_major = 1;
	tracer_minor = 0;
};

typealias integer { size = 64; align = 8; signed = false; map = clock.monotonic.value; } := time_t;

stream {
	id = 0;
	packet.context := struct {
		time_t timestamp_begin;
		time_t timestamp_end;
		uint64_t content_size;
		uint64_t packet_size;
		uint64_t events_discarded;
	};
	event.header := struct {
		uint32_t id;
		time_t timestamp;
	};
	event.context := struct {
		int32_t _vtid;
	};
};
`

// Writer writes one trace.
type Writer struct {
	metadata, stream *os.File
	known            map[*events.Event]uint32
	packet           []byte
	first, last      uint64 // times of the packet's events
	lost             uint64
}

// Create makes a trace in a directory, which must not be there. epoch is when the clock of
// the records (CLOCK_MONOTONIC) was 0. The caller calls Close.
func Create(dir string, epoch time.Time) (*Writer, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	w := &Writer{known: make(map[*events.Event]uint32)}
	var err error
	if w.metadata, err = os.Create(filepath.Join(dir, "metadata")); err != nil {
		return nil, err
	}
	if w.stream, err = os.Create(filepath.Join(dir, "events")); err == nil {
		_, err = fmt.Fprintf(w.metadata, preamble, epoch.UnixNano())
	}
	if err != nil {
		return nil, errors.Join(err, w.metadata.Close(), w.stream.Close())
	}
	return w, nil
}

// Lost says how many events were lost so far.
func (w *Writer) Lost(n uint64) { w.lost = n }

// order is the trace's.
var order = binary.LittleEndian

// Write adds a record of an event of a namespace.
func (w *Writer) Write(namespace string, r *events.Record) error {
	id, ok := w.known[r.Event]
	if !ok {
		id = uint32(len(w.known))
		if err := w.describe(id, namespace, r.Event); err != nil {
			return err
		}
		w.known[r.Event] = id
	}
	now := r.Time
	if len(w.packet) == 0 {
		w.packet = append(w.packet, make([]byte, packetHeader)...)
		w.first = now
	}
	w.last = max(w.last, now) // readers refuse time that goes back
	w.packet = order.AppendUint32(w.packet, id)
	w.packet = order.AppendUint64(w.packet, w.last)
	w.packet = order.AppendUint32(w.packet, uint32(r.TID))
	for i := range r.Event.Fields {
		w.packet = appendField(w.packet, &r.Event.Fields[i], r.Data)
	}
	if len(w.packet) >= packetSize {
		return w.Flush()
	}
	return nil
}

// Flush writes what there is.
func (w *Writer) Flush() error {
	if len(w.packet) == 0 {
		return nil
	}
	b := w.packet
	order.PutUint32(b[0:], magic)
	order.PutUint64(b[8:], min(w.first, w.last))
	order.PutUint64(b[16:], w.last)
	bits := uint64(len(b)) * 8
	order.PutUint64(b[24:], bits)
	order.PutUint64(b[32:], bits)
	order.PutUint64(b[40:], w.lost)
	w.packet = b[:0]
	if _, err := w.stream.Write(b); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	return nil
}

// Close writes the rest.
func (w *Writer) Close() error {
	return errors.Join(w.Flush(), w.metadata.Close(), w.stream.Close())
}

// describe adds an event to the metadata.
func (w *Writer) describe(id uint32, namespace string, e *events.Event) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\nevent {\n\tname = %s;\n\tid = %d;\n\tstream_id = 0;\n\tfields := struct {\n",
		quote(e.System+"."+namespace+":"+e.Name), id)
	used := make(map[string]bool)
	for i := range e.Fields {
		f := &e.Fields[i]
		name := fieldName(f.Name, used)
		switch kind, size := kindOf(f); kind {
		case textField:
			fmt.Fprintf(&b, "\t\tstring %s;\n", name)
		case bytesField:
			fmt.Fprintf(&b, "\t\tuint16_t _%s_length;\n\t\tuint8_t %s[_%s_length];\n", name, name, name)
		case arrayField:
			fmt.Fprintf(&b, "\t\ttext_t %s[%d];\n", name, size)
		case blobField:
			fmt.Fprintf(&b, "\t\tuint8_t %s[%d];\n", name, size)
		default:
			sign := "u"
			if f.Signed {
				sign = ""
			}
			fmt.Fprintf(&b, "\t\t%sint%d_t %s;\n", sign, 8*size, name)
		}
	}
	b.WriteString("\t};\n};\n")
	if _, err := w.metadata.WriteString(b.String()); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	return nil
}

// fieldName is a name that no other field of the event has. A leading _ keeps it from
// being a word of the language; readers drop it.
func fieldName(name string, used map[string]bool) string {
	name = "_" + strings.Map(func(c rune) rune {
		if c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return '_'
		}
		return c
	}, name)
	for used[name] {
		name += "_"
	}
	// The second is the length of data whose size is not fixed.
	used[name], used["_"+name+"_length"] = true, true
	return name
}

// quote is a text of the metadata. Names have no character that needs more.
func quote(text string) string { return strconv.QuoteToASCII(text) }

// A kind is how a field is written.
type kind int

const (
	numberField kind = iota
	textField        // of any length
	bytesField       // the same, that is no text
	arrayField       // characters
	blobField        // bytes
)

func kindOf(f *events.Field) (kind, int) {
	dynamic := strings.HasPrefix(f.Type, "__rel_loc ") || strings.HasPrefix(f.Type, "__data_loc ")
	text := strings.Contains(f.Type, "char") && !strings.Contains(f.Type, "unsigned")
	switch {
	case dynamic && text:
		return textField, 0
	case dynamic:
		return bytesField, 0
	case strings.Contains(f.Type, "[") && text:
		return arrayField, f.Size
	case strings.Contains(f.Type, "["), strings.HasPrefix(f.Type, "struct "):
		return blobField, f.Size
	}
	return numberField, f.Size
}

// appendField adds a field of a record's data.
func appendField(b []byte, f *events.Field, data []byte) []byte {
	switch k, _ := kindOf(f); k {
	case textField:
		text := f.Bytes(data)
		for i, c := range text {
			if c == 0 {
				text = text[:i]
				break
			}
		}
		return append(append(b, text...), 0)
	case bytesField:
		raw := f.Bytes(data)
		return append(order.AppendUint16(b, uint16(len(raw))), raw...)
	}
	return append(b, f.Bytes(data)...)
}
