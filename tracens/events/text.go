// SPDX-License-Identifier: Apache-2.0

package events

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// Text is the record's fields as NAME=VALUE.
func (r *Record) Text() string {
	var b strings.Builder
	for i := range r.Event.Fields {
		if i > 0 {
			b.WriteByte(' ')
		}
		f := &r.Event.Fields[i]
		b.WriteString(f.Name + "=" + f.value(r.Data))
	}
	return b.String()
}

// Bytes are a field's bytes in a record's data: those that it points to, if its size is
// not fixed. They are as many as fit; the data were checked when they were taken.
func (f *Field) Bytes(data []byte) []byte {
	at := f.Offset - CommonSize
	if at+f.Size > len(data) {
		return make([]byte, f.Size)
	}
	raw := data[at : at+f.Size]
	if !dynamic(f.Type) {
		return raw
	}
	where := binary.NativeEndian.Uint32(raw)
	from, size := int(where&0xffff), int(where>>16)
	if strings.HasPrefix(f.Type, "__rel_loc ") {
		from += at + f.Size
	} else {
		from -= CommonSize
	}
	if from < 0 || from+size > len(data) {
		return nil
	}
	return data[from : from+size]
}

// value is a field's value in words.
func (f *Field) value(data []byte) string {
	raw := f.Bytes(data)
	if dynamic(f.Type) || strings.Contains(f.Type, "[") || strings.HasPrefix(f.Type, "struct ") {
		return array(f.Type, raw)
	}
	return number(raw, f.Signed)
}

// array is text, or bytes.
func array(typ string, raw []byte) string {
	if strings.Contains(typ, "char") && !strings.Contains(typ, "unsigned") {
		text, _, _ := strings.Cut(string(raw), "\x00")
		return strconv.Quote(text)
	}
	return fmt.Sprintf("%x", raw)
}

func number(raw []byte, signed bool) string {
	var v uint64
	for i, c := range raw {
		v |= uint64(c) << (8 * i)
	}
	if signed {
		shift := 64 - 8*len(raw)
		return strconv.FormatInt(int64(v)<<shift>>shift, 10)
	}
	return strconv.FormatUint(v, 10)
}
