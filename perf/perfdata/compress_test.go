// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/gantry-tools/gantry/perf"
)

// zstdRecords cuts a zstd stream into COMPRESSED records of n bytes.
func zstdRecords(stream []byte, n int, typ perf.RecordType) []byte {
	var out []byte
	for len(stream) > 0 {
		b := stream[:min(n, len(stream))]
		stream = stream[len(b):]
		var body []byte
		if typ == perf.RecordCompressed2 {
			body = perf.LittleEndian.AppendUint64(nil, uint64(len(b)))
			body = append(append(body, b...), make([]byte, -len(b)&7)...)
		} else {
			body = b
		}
		out = append(out, raw(typ, perf.HeaderSize+len(body), body...)...)
	}
	return out
}

// zstdStream compresses the chunks, with a flush behind each; a nil chunk ends
// the frame.
func zstdStream(t *testing.T, chunks [][]byte, opts ...zstd.EOption) []byte {
	t.Helper()
	var out bytes.Buffer
	enc, err := zstd.NewWriter(&out, append(opts, zstd.WithEncoderConcurrency(1))...)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range chunks {
		if c == nil {
			err = enc.Close()
			enc.Reset(&out)
		} else if _, err = enc.Write(c); err == nil {
			err = enc.Flush()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// TestUnpack: streams in all the ways they may be cut.
func TestUnpack(t *testing.T) {
	var data []byte
	var want [][]byte
	for i := range uint64(3000) {
		want = append(want, encode(t, perf.LittleEndian, sample(i+1)))
		data = append(data, want[i]...)
	}
	n := len(data) / 3
	skippable := append([]byte{0x53, 0x2a, 0x4d, 0x18, 5, 0, 0, 0}, "12345"...)
	streams := map[string][]byte{
		"one chunk":    zstdStream(t, [][]byte{data}),
		"three chunks": zstdStream(t, [][]byte{data[:n+5], data[n+5 : 2*n], data[2*n:]}),
		"frames":       zstdStream(t, [][]byte{data[:n+5], nil, data[n+5 : 2*n], nil, data[2*n:], nil}, zstd.WithEncoderCRC(true)),
		"skippable":    append(bytes.Clone(skippable), append(zstdStream(t, [][]byte{data, nil}), skippable...)...),
	}
	for name, stream := range streams {
		for _, size := range []int{1, 7, 100, 4096, 65000} {
			if size == 1 && testing.Short() {
				continue
			}
			for _, typ := range []perf.RecordType{perf.RecordCompressed, perf.RecordCompressed2} {
				r := open(t, file(t, zstdRecords(stream, size, typ)), nil)
				got := raws(mustReadAll(t, r.Next), nil)
				if len(got) != len(want) || !bytes.Equal(bytes.Join(got, nil), data) {
					t.Errorf("%s in pieces of %d: %d records", name, size, len(got))
				}
				noWarnings(t, r)
			}
		}
	}
}

// TestUnpackOrder: a record that goes on in the next COMPRESSED record comes
// with that, behind the records between.
func TestUnpackOrder(t *testing.T) {
	a, b := encode(t, perf.LittleEndian, sample(1)), encode(t, perf.LittleEndian, sample(2))
	one := zstdStream(t, [][]byte{append(bytes.Clone(a), b[:9]...)})
	both := zstdStream(t, [][]byte{append(bytes.Clone(a), b[:9]...), b[9:]})
	round := raw(perf.RecordFinishedRound, 8)
	data := append(zstdRecords(one, 65000, perf.RecordCompressed), round...)
	data = append(data, zstdRecords(both[len(one):], 65000, perf.RecordCompressed)...)
	got := raws(mustReadAll(t, open(t, file(t, data), nil).Next), nil)
	if diff := cmp.Diff([][]byte{a, round, b}, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// TestUnpackBomb: what is small and unpacks to much is read in little memory.
func TestUnpackBomb(t *testing.T) {
	one := raw(perf.RecordComm, 8)
	block := bytes.Repeat(one, maxZstdBlock/8)
	var chunks [][]byte
	for range 800 { // 100 MB
		chunks = append(chunks, block)
	}
	stream := zstdStream(t, chunks)
	r := open(t, file(t, zstdRecords(stream, 65000, perf.RecordCompressed)), nil)
	d, n := r.Ordered(), 0
	for {
		if _, err := d.Next(); err != nil {
			break
		}
		n++
	}
	if n != 800*maxZstdBlock/8 || r.blocks.held > 2<<20 {
		t.Errorf("%d bytes of stream: %d records, %d bytes held", len(stream), n, r.blocks.held)
	}
}

func TestUnpackHostile(t *testing.T) {
	s := encode(t, perf.LittleEndian, sample(1))
	good := zstdStream(t, [][]byte{s})
	crc := zstdStream(t, [][]byte{s, nil}, zstd.WithEncoderCRC(true))
	crc[len(crc)-1] ^= 1
	nested := zstdStream(t, [][]byte{zstdRecords(good, 65000, perf.RecordCompressed)})
	for name, b := range map[string][]byte{
		"no frame":        zstdRecords([]byte("not zstd at all"), 100, perf.RecordCompressed),
		"block type 3":    zstdRecords([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0x48, 6, 0, 0}, 100, perf.RecordCompressed),
		"block too large": zstdRecords([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0x48, 0xfc, 0xff, 0xff}, 100, perf.RecordCompressed),
		"window of 1 TiB": zstdRecords([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 30 << 3, 9, 0, 0, 'x'}, 100, perf.RecordCompressed),
		"dictionary":      zstdRecords([]byte{0x28, 0xb5, 0x2f, 0xfd, 1, 0x48, 7, 9, 0, 0, 'x'}, 100, perf.RecordCompressed),
		"checksum":        zstdRecords(crc, 65000, perf.RecordCompressed),
		"nested":          zstdRecords(nested, 65000, perf.RecordCompressed),
		"size":            raw(perf.RecordCompressed2, 16, 1, 0, 0, 0, 0, 0, 0, 0x80),
		"no size":         raw(perf.RecordCompressed2, 8),
	} {
		r := open(t, file(t, s, b, s), nil)
		got, err := readAll(r.Next)
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, ErrFormat) || len(got) == 0 {
			t.Errorf("%s: %d records, %v", name, len(got), err)
		}
	}
	r := open(t, file(t, zstdRecords(good[:len(good)-1], 65000, perf.RecordCompressed)), nil)
	if got := mustReadAll(t, r.Next); len(got) != 0 || !hasWarning(r, WarnTruncated) {
		t.Errorf("half a block: %d records, warnings %v", len(got), r.Warnings())
	}
}
