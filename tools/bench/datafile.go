// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// recording is what a perf.data file holds.
type recording struct {
	path    string
	bytes   int64
	samples uint64
	// lost is the larger of what the two kinds of record tell: perf writes
	// at the end the event's own count of what it told before.
	lost uint64
	// mapped are the MMAP2 records of files that gantry's sideband has,
	// withID those with a build-id.
	mapped, withID uint64
}

func (rec *recording) String() string {
	return fmt.Sprintf("%.0f MB, %d samples with stacks", float64(rec.bytes)/1e6, rec.samples)
}

// Record types of include/uapi/linux/perf_event.h.
const (
	recordLost        = 2
	recordSample      = 9
	recordMmap2       = 10
	recordLostSamples = 13

	miscStatus  = 1 << 11 // of gantry: found, not happened
	miscBuildID = 1 << 14
	mmap2PathAt = 72
)

// scan counts samples, lost samples and mappings of a file. It reads little more
// than headers, so that it favours neither of the tools that wrote the file.
func scan(path string) (*recording, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// struct perf_file_header: magic, size, attr_size, attrs, data sections.
	var header [56]byte
	if _, err := io.ReadFull(f, header[:]); err != nil {
		return nil, fmt.Errorf("%s: header: %w", path, err)
	}
	if string(header[:8]) != "PERFILE2" {
		return nil, fmt.Errorf("%s: not a perf.data file", path)
	}
	offset := binary.LittleEndian.Uint64(header[40:])
	size := binary.LittleEndian.Uint64(header[48:])
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	rec := &recording{path: path, bytes: info.Size()}
	data := io.NewSectionReader(f, int64(offset), int64(size))
	if err := rec.count(bufio.NewReaderSize(data, 1<<20)); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rec, nil
}

func (rec *recording) count(r *bufio.Reader) error {
	var noRoom, counted uint64
	defer func() { rec.lost = max(noRoom, counted) }()
	for {
		header, err := r.Peek(8)
		if errors.Is(err, io.EOF) && len(header) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		typ := binary.LittleEndian.Uint32(header)
		size := int(binary.LittleEndian.Uint16(header[6:]))
		if size < 8 {
			return fmt.Errorf("record of %d bytes", size)
		}
		switch typ {
		case recordSample:
			rec.samples++
		case recordMmap2:
			body, err := r.Peek(mmap2PathAt + 2)
			if err != nil {
				return err
			}
			misc := binary.LittleEndian.Uint16(header[4:])
			if path := body[mmap2PathAt:]; path[0] == '/' && path[1] != '/' && misc&miscStatus == 0 {
				rec.mapped++
				rec.withID += uint64(misc & miscBuildID / miscBuildID)
			}
		case recordLost, recordLostSamples:
			// LOST has an id before the number.
			at, into := 8, &counted
			if typ == recordLost {
				at, into = 16, &noRoom
			}
			body, err := r.Peek(at + 8)
			if err != nil {
				return err
			}
			*into += binary.LittleEndian.Uint64(body[at:])
		}
		if _, err := r.Discard(size); err != nil {
			return err
		}
	}
}
