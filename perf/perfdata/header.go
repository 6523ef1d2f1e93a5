// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/gantry-tools/gantry/perf"
)

// Sizes and magic of struct perf_file_header (tools/perf/util/header.h).
const (
	magicLE    = "PERFILE2"
	magicBE    = "2ELIFREP"
	headerSize = 104
	// headerSizeOld is the header before features were added in 2.6.31.
	headerSizeOld  = 72
	pipeHeaderSize = 16
	featureMapAt   = 72
	dataSizeAt     = 48 // offset of header.data.size
	sectionSize    = 16
)

// Bounds on what one input can make us hold.
const (
	maxEvents  = 1 << 16
	maxIDs     = 1 << 22
	maxSection = 256 << 20
)

type section struct{ off, size uint64 }

// in reports whether the section lies within size bytes.
func (s section) in(size int64) bool {
	return s.off <= uint64(size) && s.size <= uint64(size)-s.off
}

type fileHeader struct {
	order    perf.Order
	size     uint64
	attrSize uint64
	attrs    section
	data     section
	features [featureBits / 64]uint64
}

func (h *fileHeader) has(id FeatureID) bool {
	return id < featureBits && h.features[id/64]>>(id%64)&1 != 0
}

func (h *fileHeader) set(id FeatureID) { h.features[id/64] |= 1 << (id % 64) }

// magicOrder tells the byte order from the magic.
func magicOrder(b []byte) (perf.Order, error) {
	switch string(b[:min(8, len(b))]) {
	case magicLE:
		return perf.LittleEndian, nil
	case magicBE:
		return perf.BigEndian, nil
	case "PERFFILE":
		return 0, errAt(0, "read header",
			fmt.Errorf("%w: version 1 of the format (before Linux 2.6.31)", ErrUnsupported))
	}
	return 0, errAt(0, "read header", ErrMagic)
}

// parseFileHeader reads a header of 72 or 104 bytes; b is zero beyond.
func parseFileHeader(b *[headerSize]byte, o perf.Order) (*fileHeader, error) {
	at := func(off int) uint64 { return o.Uint64(b[off:]) }
	h := &fileHeader{
		order:    o,
		size:     at(8),
		attrSize: at(16),
		attrs:    section{at(24), at(32)},
		data:     section{at(40), at(dataSizeAt)},
	}
	if h.size != headerSize && h.size != headerSizeOld {
		return nil, errAt(8, "read header", fmt.Errorf("%w: header of %d bytes", ErrUnsupported, h.size))
	}
	if h.size == headerSize {
		h.parseFeatureMap(b[featureMapAt:])
	}
	return h, nil
}

// parseFeatureMap reads the bitmap, which perf writes as an array of unsigned
// long: on a big-endian 32-bit machine the words are swapped. Every perf sets
// HOSTNAME, which tells the two apart.
func (h *fileHeader) parseFeatureMap(b []byte) {
	for i := range h.features {
		h.features[i] = h.order.Uint64(b[8*i:])
	}
	if h.order == perf.LittleEndian || h.has(FeatureHostname) {
		return
	}
	narrow := *h
	for i := range narrow.features {
		lo, hi := h.order.Uint32(b[8*i:]), h.order.Uint32(b[8*i+4:])
		narrow.features[i] = uint64(hi)<<32 | uint64(lo)
	}
	if narrow.has(FeatureHostname) {
		h.features = narrow.features
	}
}

func (h *fileHeader) append(dst []byte) []byte {
	o := h.order
	dst = o.AppendUint64(dst, binary.LittleEndian.Uint64([]byte(magicLE)))
	for _, v := range []uint64{h.size, h.attrSize, h.attrs.off, h.attrs.size, h.data.off, h.data.size, 0, 0} {
		dst = o.AppendUint64(dst, v)
	}
	for _, v := range h.features {
		dst = o.AppendUint64(dst, v)
	}
	return dst
}

// readAt reads exactly len(b) bytes.
func readAt(r io.ReaderAt, b []byte, off int64, what string) error {
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == io.EOF || err == nil {
		err = fmt.Errorf("%w: %d bytes wanted, %d there", ErrTruncated, len(b), n)
	}
	return errAt(off, what, err)
}

// readSection reads a section of which the caller has checked that it lies
// in the file. Memory grows with what is there, not with what is promised.
func readSection(r io.ReaderAt, s section, what string) ([]byte, error) {
	if s.size > maxSection {
		return nil, errAt(int64(s.off), what,
			fmt.Errorf("%w: a section of %d bytes, at most %d are read", ErrTooLarge, s.size, maxSection))
	}
	const step = 1 << 20
	var b []byte
	for size := int(s.size); len(b) < size; {
		n := len(b)
		b = append(b, make([]byte, min(step, size-n))...)
		if err := readAt(r, b[n:], int64(s.off)+int64(n), what); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// readEvents reads the attributes and their ids.
func readEvents(r io.ReaderAt, size int64, h *fileHeader) ([]*perf.Event, error) {
	const what = "read attributes"
	const min, max = perf.AttrSizeVer0 + sectionSize, 4096 + sectionSize
	if h.attrSize < min || h.attrSize > max {
		return nil, formatErr(16, what, "attributes of %d bytes", h.attrSize)
	}
	if !h.attrs.in(size) {
		return nil, errAt(24, what,
			fmt.Errorf("%w: attributes end at %d+%d, the file at %d", ErrTruncated, h.attrs.off, h.attrs.size, size))
	}
	n := h.attrs.size / h.attrSize
	if h.attrs.size%h.attrSize != 0 || n > maxEvents {
		return nil, formatErr(32, what, "%d bytes of attributes, %d each", h.attrs.size, h.attrSize)
	}
	b, err := readSection(r, h.attrs, what)
	if err != nil {
		return nil, err
	}
	list := make([]*perf.Event, 0, n)
	ids := 0
	for i := range int(n) {
		off := int(h.attrSize) * i
		ev, err := h.readEvent(r, size, b[off:off+int(h.attrSize)], int64(h.attrs.off)+int64(off), &ids)
		if err != nil {
			return nil, err
		}
		list = append(list, ev)
	}
	return list, nil
}

// readEvent reads one struct perf_file_attr: attr and section of ids.
func (h *fileHeader) readEvent(r io.ReaderAt, size int64, b []byte, off int64, total *int) (*perf.Event, error) {
	o := h.order
	const what = "read event ids"
	idsAt := len(b) - sectionSize
	a, err := perf.DecodeAttr(b[:idsAt], o)
	if err != nil {
		return nil, errAt(off, "read attribute", fmt.Errorf("%w: %w", ErrFormat, err))
	}
	ids := section{o.Uint64(b[idsAt:]), o.Uint64(b[idsAt+8:])}
	at := off + int64(idsAt)
	if ids.size == 0 {
		return perf.NewEvent(a, ""), nil
	}
	if !ids.in(size) {
		return nil, errAt(at, what,
			fmt.Errorf("%w: ids end at %d+%d, the file at %d", ErrTruncated, ids.off, ids.size, size))
	}
	if *total += int(min(ids.size/8, maxIDs+1)); ids.size%8 != 0 || *total > maxIDs {
		return nil, formatErr(at, what, "%d bytes of ids, %d ids in all", ids.size, *total)
	}
	idBytes, err := readSection(r, ids, what)
	if err != nil {
		return nil, err
	}
	return perf.NewEvent(a, "", decodeIDs(idBytes, o)...), nil
}
