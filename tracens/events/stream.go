// SPDX-License-Identifier: Apache-2.0

package events

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The stream of records that another process of the host reads: messages of a length, a
// kind and a body, little endian.
const (
	streamEvent  = 1 // id, system and description of an event, in front of its records
	streamRecord = 2 // event, time in nanoseconds of CLOCK_MONOTONIC, pid, tid, data
	streamLost   = 3 // how many records were lost so far
	streamListed = 4 // the events that there are have been told

	streamHeader = 8
	recordHeader = 4 + 8 + 4 + 4
	maxMessage   = 1 << 20
)

// Encoder makes a stream of records.
type Encoder struct {
	known map[*Event]uint32
	lost  uint64
}

var wire = binary.LittleEndian

// message adds the header of a message whose body is size bytes.
func message(b []byte, kind uint32, size int) []byte {
	return wire.AppendUint32(wire.AppendUint32(b, uint32(size)), kind)
}

// Describe adds the events that there are to b, the first thing in a stream.
func (e *Encoder) Describe(b []byte, list []*Event) []byte {
	for _, ev := range list {
		b, _ = e.event(b, ev)
	}
	return message(b, streamListed, 0)
}

// event is the number of an event, which is described when it is met first.
func (e *Encoder) event(b []byte, ev *Event) ([]byte, uint32) {
	if id, ok := e.known[ev]; ok {
		return b, id
	}
	if e.known == nil {
		e.known = make(map[*Event]uint32)
	}
	id := uint32(len(e.known))
	e.known[ev] = id
	text := ev.Text()
	b = message(b, streamEvent, 8+len(ev.System)+len(text))
	b = wire.AppendUint32(wire.AppendUint32(b, id), uint32(len(ev.System)))
	return append(append(b, ev.System...), text...), id
}

// Append adds records to b, with the events that they are of, and how many were lost.
func (e *Encoder) Append(b []byte, list []Record, lost uint64) []byte {
	if lost != e.lost {
		e.lost = lost
		b = wire.AppendUint64(message(b, streamLost, 8), lost)
	}
	for i := range list {
		r := &list[i]
		var id uint32
		b, id = e.event(b, r.Event)
		b = message(b, streamRecord, recordHeader+len(r.Data))
		b = wire.AppendUint64(wire.AppendUint32(b, id), r.Time)
		b = wire.AppendUint32(wire.AppendUint32(b, uint32(r.PID)), uint32(r.TID))
		b = append(b, r.Data...)
	}
	return b
}

// Decoder reads a stream of records.
type Decoder struct {
	in     *bufio.Reader
	known  map[uint32]*Event
	lost   uint64
	listed bool
	room   []byte // for the data of records, which share it
}

// decoderRoom is how much memory messages share, in bytes.
const decoderRoom = 64 << 10

// NewDecoder reads from in, what an Encoder wrote.
func NewDecoder(in io.Reader) *Decoder {
	return &Decoder{in: bufio.NewReaderSize(in, 1<<17), known: make(map[uint32]*Event)}
}

// Lost is how many records were lost so far.
func (d *Decoder) Lost() uint64 { return d.lost }

// ErrStream says that a stream is none, or broken.
var ErrStream = errors.New("not a stream of events")

// Next reads the records that have come, one at least. The end is io.EOF; another error
// may come with the records in front of it.
func (d *Decoder) Next() ([]Record, error) {
	var list []Record
	for len(list) == 0 || d.whole() {
		if err := d.message(&list); err != nil {
			return list, err
		}
	}
	return list, nil
}

// whole reports whether the next message is here already, as a whole.
func (d *Decoder) whole() bool {
	if d.in.Buffered() < streamHeader {
		return false
	}
	head, err := d.in.Peek(streamHeader)
	return err == nil && d.in.Buffered()-streamHeader >= int(wire.Uint32(head))
}

// message reads one message, and adds it to the list if it is a record.
func (d *Decoder) message(list *[]Record) error {
	var head [streamHeader]byte
	if _, err := io.ReadFull(d.in, head[:]); err != nil {
		return err
	}
	size := wire.Uint32(head[:])
	if size > maxMessage {
		return fmt.Errorf("%w: a message of %d bytes", ErrStream, size)
	}
	body := d.body(int(size))
	if _, err := io.ReadFull(d.in, body); err != nil {
		return errors.Join(ErrStream, err)
	}
	return d.decode(wire.Uint32(head[4:]), body, list)
}

// body is room for the body of a message.
func (d *Decoder) body(size int) []byte {
	if size > cap(d.room)-len(d.room) {
		d.room = make([]byte, 0, max(decoderRoom, size))
	}
	from, to := len(d.room), len(d.room)+size
	d.room = d.room[:to]
	return d.room[from:to:to]
}

// Decode reads the messages of which all is in b, and returns how much of it they are.
// Their records are added to the list, with data of their own.
func (d *Decoder) Decode(b []byte, list []Record) (n int, _ []Record, err error) {
	for err == nil && len(b)-n >= streamHeader {
		size := wire.Uint32(b[n:])
		if size > maxMessage {
			return n, list, fmt.Errorf("%w: a message of %d bytes", ErrStream, size)
		}
		end := n + streamHeader + int(size)
		if end > len(b) {
			break
		}
		body := d.body(int(size))
		copy(body, b[n+streamHeader:])
		err = d.decode(wire.Uint32(b[n+4:]), body, &list)
		n = end
	}
	return n, list, err
}

// Events are those that were told so far; whole says that all that there were at the
// beginning are among them.
func (d *Decoder) Events() (list []*Event, whole bool) {
	for id := range uint32(len(d.known)) {
		list = append(list, d.known[id])
	}
	return list, d.listed
}

// decode reads the body of a message, which becomes the record's.
func (d *Decoder) decode(kind uint32, body []byte, list *[]Record) error {
	size := len(body)
	switch {
	case kind == streamLost && size == 8:
		d.lost = wire.Uint64(body)
		return nil
	case kind == streamListed:
		d.listed = true
		return nil
	case kind == streamEvent:
		return d.event(body)
	case kind == streamRecord && size >= recordHeader:
		return d.record(body, list)
	default:
		return fmt.Errorf("%w: a message of kind %d with %d bytes", ErrStream, kind, size)
	}
}

func (d *Decoder) event(body []byte) error {
	if len(body) < 8 || int(wire.Uint32(body[4:])) > len(body)-8 {
		return fmt.Errorf("%w: an event of %d bytes", ErrStream, len(body))
	}
	n := int(wire.Uint32(body[4:]))
	desc, err := Parse(string(body[8+n:]))
	if err != nil {
		return errors.Join(ErrStream, err)
	}
	d.known[wire.Uint32(body)] = &Event{Description: *desc, System: string(body[8 : 8+n])}
	return nil
}

func (d *Decoder) record(body []byte, list *[]Record) error {
	e := d.known[wire.Uint32(body)]
	data := body[recordHeader:]
	if e == nil {
		return fmt.Errorf("%w: a record of event %d", ErrStream, wire.Uint32(body))
	}
	if len(data) < e.MinSize {
		return fmt.Errorf("%w: %d bytes of %s", ErrStream, len(data), e.Name)
	}
	who := Writer{Time: wire.Uint64(body[4:]), PID: int(wire.Uint32(body[12:])), TID: int(wire.Uint32(body[16:]))}
	*list = append(*list, Record{Writer: who, Event: e, Data: data})
	return nil
}
