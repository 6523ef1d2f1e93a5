// SPDX-License-Identifier: Apache-2.0

package jit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// ReadMap reads a perf map: a line for each function, with its address and its
// size in hexadecimal and its name, which may have spaces. A last line without
// an end is still being written, and left out.
func ReadMap(r io.Reader) (*Code, error) {
	c := &Code{}
	file := bounded(r)
	in := bufio.NewReaderSize(file, 1<<16)
	for {
		line, err := in.ReadSlice('\n')
		long := false
		for errors.Is(err, bufio.ErrBufferFull) { // a line beyond any use
			long = true
			_, err = in.ReadSlice('\n')
		}
		switch {
		case errors.Is(err, io.EOF):
			c.end(file)
			return c, nil
		case err != nil:
			return nil, fmt.Errorf("read perf map: %w", err)
		case long:
			c.Bad++
		default:
			c.line(line[:len(line)-1])
		}
	}
}

func (c *Code) line(line []byte) {
	line = bytes.TrimRight(line, "\r")
	if len(line) == 0 {
		return
	}
	start, rest, ok := hex(line)
	if !ok {
		c.Bad++
		return
	}
	size, name, ok := hex(rest)
	if !ok {
		c.Bad++
		return
	}
	c.add(name, start, size)
}

// hex reads a number, "0x" in front or not, and the spaces behind it.
func hex(b []byte) (v uint64, rest []byte, ok bool) {
	if len(b) > 2 && b[0] == '0' && (b[1] == 'x' || b[1] == 'X') {
		b = b[2:]
	}
	n := 0
	for ; n < len(b); n++ {
		d, ok := digit(b[n])
		if !ok {
			break
		}
		if v>>60 != 0 {
			return 0, nil, false
		}
		v = v<<4 | d
	}
	rest = bytes.TrimLeft(b[n:], " \t")
	return v, rest, n > 0 && len(rest) < len(b)-n
}

func digit(c byte) (uint64, bool) {
	switch {
	case '0' <= c && c <= '9':
		return uint64(c - '0'), true
	case 'a' <= c && c <= 'f':
		return uint64(c-'a') + 10, true
	case 'A' <= c && c <= 'F':
		return uint64(c-'A') + 10, true
	}
	return 0, false
}
