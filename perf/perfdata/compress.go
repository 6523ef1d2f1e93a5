// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"bytes"

	"github.com/klauspost/compress/zstd"

	"github.com/gantry-tools/gantry/perf"
)

const (
	// packChunk is what one flush of the zstd stream compresses.
	packChunk = 256 << 10
	// packMmapLen is what perf must be ready to unpack from one record; it is
	// what perf record writes with its default ring of 512 KiB.
	packMmapLen = 512<<10 + 4096
	packWindow  = 512 << 10
)

// A packer compresses records into COMPRESSED records: one zstd stream, flushed
// for every chunk and cut into records.
type packer struct {
	enc     *zstd.Encoder
	raw     []byte
	out     bytes.Buffer
	level   int
	in, got int64 // bytes before and after
}

func newPacker(level int) (*packer, error) {
	p := &packer{level: level}
	var err error
	p.enc, err = zstd.NewWriter(&p.out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(packWindow),
		zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(level)), zstd.WithLowerEncoderMem(true))
	return p, err
}

func (p *packer) close() { p.enc.Close() }

func (p *packer) add(b []byte) { p.raw = append(p.raw, b...) }

func (p *packer) full() bool { return len(p.raw) >= packChunk }

// pack appends COMPRESSED records to dst: for everything, or for whole chunks.
func (p *packer) pack(dst []byte, o perf.Order, all bool) ([]byte, error) {
	done := 0
	for rest := p.raw; len(rest) >= packChunk || all && len(rest) > 0; {
		n := min(packChunk, len(rest))
		if _, err := p.enc.Write(rest[:n]); err != nil {
			return dst, err
		}
		if err := p.enc.Flush(); err != nil {
			return dst, err
		}
		dst = p.records(dst, o)
		rest, done = rest[n:], done+n
	}
	p.raw = p.raw[:copy(p.raw, p.raw[done:])]
	p.in += int64(done)
	return dst, nil
}

func (p *packer) records(dst []byte, o perf.Order) []byte {
	b := p.out.Bytes()
	p.got += int64(len(b))
	for len(b) > 0 {
		n := min(len(b), perf.MaxRecordSize-perf.HeaderSize)
		dst = perf.Header{Type: perf.RecordCompressed, Size: uint16(perf.HeaderSize + n)}.Append(dst, o)
		dst = append(dst, b[:n]...)
		b = b[n:]
	}
	p.out.Reset()
	return dst
}

func (p *packer) describe() *Compression {
	ratio := int64(1)
	if p.got > 0 {
		ratio = max(1, (p.in+p.got/2)/p.got)
	}
	return &Compression{Type: TypeZstd, Level: uint32(p.level), Ratio: uint32(ratio), MmapLen: packMmapLen}
}
