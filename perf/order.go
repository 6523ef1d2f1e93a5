// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"encoding/binary"
	"math/bits"
)

// Order is the byte order of a recording. It is a value, not the interface
// of encoding/binary, so that the hot loops need no dynamic call.
type Order uint8

// The two byte orders.
const (
	LittleEndian Order = iota
	BigEndian
)

func (o Order) String() string {
	if o == BigEndian {
		return "big endian"
	}
	return "little endian"
}

// Uint16 reads the first two bytes of b.
func (o Order) Uint16(b []byte) uint16 {
	v := binary.LittleEndian.Uint16(b)
	if o != LittleEndian {
		v = bits.ReverseBytes16(v)
	}
	return v
}

// Uint32 reads the first four bytes of b.
func (o Order) Uint32(b []byte) uint32 {
	v := binary.LittleEndian.Uint32(b)
	if o != LittleEndian {
		v = bits.ReverseBytes32(v)
	}
	return v
}

// Uint64 reads the first eight bytes of b.
func (o Order) Uint64(b []byte) uint64 {
	v := binary.LittleEndian.Uint64(b)
	if o != LittleEndian {
		v = bits.ReverseBytes64(v)
	}
	return v
}

// PutUint16 writes v to the first two bytes of b.
func (o Order) PutUint16(b []byte, v uint16) {
	if o != LittleEndian {
		v = bits.ReverseBytes16(v)
	}
	binary.LittleEndian.PutUint16(b, v)
}

// PutUint32 writes v to the first four bytes of b.
func (o Order) PutUint32(b []byte, v uint32) {
	if o != LittleEndian {
		v = bits.ReverseBytes32(v)
	}
	binary.LittleEndian.PutUint32(b, v)
}

// PutUint64 writes v to the first eight bytes of b.
func (o Order) PutUint64(b []byte, v uint64) {
	if o != LittleEndian {
		v = bits.ReverseBytes64(v)
	}
	binary.LittleEndian.PutUint64(b, v)
}

// AppendUint16 appends v to dst.
func (o Order) AppendUint16(dst []byte, v uint16) []byte {
	if o != LittleEndian {
		v = bits.ReverseBytes16(v)
	}
	return binary.LittleEndian.AppendUint16(dst, v)
}

// AppendUint32 appends v to dst.
func (o Order) AppendUint32(dst []byte, v uint32) []byte {
	if o != LittleEndian {
		v = bits.ReverseBytes32(v)
	}
	return binary.LittleEndian.AppendUint32(dst, v)
}

// AppendUint64 appends v to dst.
func (o Order) AppendUint64(dst []byte, v uint64) []byte {
	if o != LittleEndian {
		v = bits.ReverseBytes64(v)
	}
	return binary.LittleEndian.AppendUint64(dst, v)
}
