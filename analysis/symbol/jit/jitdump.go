// SPDX-License-Identifier: Apache-2.0

package jit

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrNotDump is returned for a file that is no jitdump.
var ErrNotDump = errors.New("not a jitdump file")

// The format of jitdump, version 1, as tools/perf/Documentation/
// jitdump-specification.txt of Linux describes it: struct jitheader, and behind
// it records, each with a struct jr_prefix.
const (
	dumpMagic   = 0x4A695444 // "JiTD" in the order of the writer
	dumpVersion = 1
	headerSize  = 40
	prefixSize  = 16

	recordLoad  = 0 // JIT_CODE_LOAD
	recordMove  = 1 // JIT_CODE_MOVE
	recordClose = 3 // JIT_CODE_CLOSE

	loadSize = 40 // of struct jr_code_load without its prefix, name and code
	moveSize = 48 // of struct jr_code_move without its prefix
)

// ReadDump reads a jitdump file, of either byte order. Of its records, code that
// was loaded and code that was moved count; source lines and unwinding tables
// are skipped, and what is of other types. A record that the file ends in is
// still being written.
func ReadDump(r io.Reader) (*Code, error) {
	file := bounded(r)
	in := bufio.NewReaderSize(file, 1<<16)
	head := make([]byte, headerSize)
	if _, err := io.ReadFull(in, head); err != nil {
		return nil, endOr(err, ErrNotDump)
	}
	var order binary.ByteOrder = binary.LittleEndian
	if order.Uint32(head) != dumpMagic {
		order = binary.BigEndian
	}
	size := order.Uint32(head[8:])
	if order.Uint32(head) != dumpMagic || order.Uint32(head[4:]) != dumpVersion || size < headerSize {
		return nil, ErrNotDump
	}
	if _, err := in.Discard(int(size) - headerSize); err != nil {
		return nil, endOr(err, ErrNotDump)
	}
	d := &dump{in: in, order: order, code: &Code{}, byIndex: make(map[uint64]int)}
	for {
		more, err := d.record()
		if err != nil {
			return nil, fmt.Errorf("read jitdump: %w", err)
		}
		if !more {
			d.code.end(file)
			return d.code, nil
		}
	}
}

// endOr is what for the end of a file, else the error of reading.
func endOr(err, what error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return what
	}
	return fmt.Errorf("read jitdump: %w", err)
}

type dump struct {
	in      *bufio.Reader
	order   binary.ByteOrder
	code    *Code
	byIndex map[uint64]int // code_index -> function, for moves
	head    [loadSize + moveSize]byte
}

// record reads a record. There are no more after a broken one, as nothing tells
// where the next begins.
func (d *dump) record() (more bool, err error) {
	p := d.head[:prefixSize]
	if _, err := io.ReadFull(d.in, p); err != nil {
		return false, endOr(err, nil)
	}
	kind, size := d.order.Uint32(p), d.order.Uint32(p[4:])
	if size < prefixSize {
		d.code.Bad++
		return false, nil
	}
	left := int(size) - prefixSize
	switch kind {
	case recordClose:
		return false, nil
	case recordLoad:
		left, err = d.load(left)
	case recordMove:
		left, err = d.move(left)
	}
	if err == nil {
		_, err = d.in.Discard(left)
	}
	if err != nil {
		return false, endOr(err, nil)
	}
	return true, nil
}

// load reads code that was loaded, and returns how much of the record is left.
func (d *dump) load(left int) (int, error) {
	if left < loadSize {
		d.code.Bad++
		return left, nil
	}
	b := d.head[:loadSize]
	if _, err := io.ReadFull(d.in, b); err != nil {
		return 0, err
	}
	left -= loadSize
	addr, size, index := d.order.Uint64(b[16:]), d.order.Uint64(b[24:]), d.order.Uint64(b[32:])
	name, err := d.in.Peek(min(left, maxName+1))
	if err != nil {
		return 0, err
	}
	if end := bytes.IndexByte(name, 0); end >= 0 {
		name = name[:end]
	} else if len(name) <= maxName { // it must end in the record
		name = nil
	}
	d.add(name, addr, size, index)
	return left, nil
}

func (d *dump) add(name []byte, addr, size, index uint64) {
	before := len(d.code.list)
	d.code.add(name, addr, size)
	if len(d.code.list) > before {
		d.byIndex[index] = before
	}
}

// move reads where code was moved to.
func (d *dump) move(left int) (int, error) {
	if left < moveSize {
		d.code.Bad++
		return left, nil
	}
	b := d.head[:moveSize]
	if _, err := io.ReadFull(d.in, b); err != nil {
		return 0, err
	}
	addr, size, index := d.order.Uint64(b[24:]), d.order.Uint64(b[32:]), d.order.Uint64(b[40:])
	old, ok := d.byIndex[index]
	if !ok {
		d.code.Bad++
		return left - moveSize, nil
	}
	d.add([]byte(d.code.list[old].Name), addr, size, index)
	return left - moveSize, nil
}
