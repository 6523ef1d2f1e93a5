// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/perf"
)

// An EventFormat is a format file of tracefs: what the raw data of a
// tracepoint's samples holds.
type EventFormat struct {
	System, Name string
	ID           uint64
	Fields       []Field // the common ones first
	Print        string  // how the kernel prints it, as in the file
}

// A Field is a value in the raw data of a tracepoint.
type Field struct {
	Name, Type   string // Type as in C, without the array
	Offset, Size int
	Signed       bool
	Common       bool // every tracepoint has it
	// Array is the number of elements, 0 for a single value. Of a dynamic
	// array, the field holds where in the data it is.
	Array   int
	Dynamic Dynamic
}

// Dynamic says how to find the data of a field of variable size.
type Dynamic uint8

// The kinds of dynamic fields.
const (
	NotDynamic Dynamic = iota
	DataLoc            // __data_loc: offset from the start of the raw data
	RelLoc             // __rel_loc: offset from the end of the field; Linux 5.17
)

// maxFields bounds the fields of a format; the kernel has less than 150.
const maxFields = 1024

// ParseEventFormat reads a format file.
func ParseEventFormat(text []byte) (*EventFormat, error) {
	f := &EventFormat{}
	seenID, common := false, true
	text, line, _ := bytes.Cut(text, []byte("\nprint fmt:"))
	f.Print = string(bytes.TrimSpace(line)) // a string in it may go over several lines
	for line := range bytes.Lines(text) {
		s := strings.TrimRight(string(line), "\n")
		key, value, _ := strings.Cut(strings.TrimSpace(s), ":")
		value = strings.TrimSpace(value)
		switch key {
		case "name":
			f.Name = value
		case "ID":
			id, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("event format: %w: id %q", ErrFormat, value)
			}
			f.ID, seenID = id, true
		case "field":
			field, err := parseField(value)
			if err != nil || len(f.Fields) == maxFields {
				return nil, fmt.Errorf("event format: %w: field %q", ErrFormat, value)
			}
			field.Common = common
			f.Fields = append(f.Fields, field)
		case "": // an empty line ends the common fields
			common = common && len(f.Fields) == 0
		}
	}
	if f.Name == "" || !seenID {
		return nil, fmt.Errorf("event format: %w: name or id is missing", ErrFormat)
	}
	return f, nil
}

// parseField reads "char prev_comm[16];	offset:8;	size:16;	signed:0;".
func parseField(s string) (Field, error) {
	parts := strings.Split(s, ";")
	f := Field{}
	decl := strings.TrimSpace(parts[0])
	switch {
	case strings.HasPrefix(decl, "__data_loc "):
		f.Dynamic = DataLoc
	case strings.HasPrefix(decl, "__rel_loc "):
		f.Dynamic = RelLoc
	}
	if f.Dynamic != NotDynamic {
		_, decl, _ = strings.Cut(decl, " ")
	}
	for _, part := range parts[1:] {
		key, value, ok := strings.Cut(strings.TrimSpace(part), ":")
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(value, 10, 16)
		switch key {
		case "offset":
			f.Offset = int(n)
		case "size":
			f.Size = int(n)
		case "signed":
			f.Signed = n == 1
		}
		if err != nil {
			return Field{}, fmt.Errorf("%w: %s %q", ErrFormat, key, value)
		}
	}
	return f, f.declare(decl)
}

// declare splits a C declaration into type, name and array.
func (f *Field) declare(decl string) error {
	name := strings.LastIndexAny(decl, " *") + 1
	f.Type, f.Name = strings.TrimSpace(decl[:name]), decl[name:]
	if i := strings.IndexByte(f.Name, '['); i >= 0 {
		n, err := strconv.ParseUint(strings.TrimSuffix(f.Name[i+1:], "]"), 0, 16)
		f.Name = f.Name[:i]
		if err != nil || n == 0 { // [], or the name of a constant
			n = uint64(max(1, f.Size))
		}
		f.Array = int(n)
	}
	if strings.HasSuffix(f.Type, "[]") {
		f.Type = strings.TrimSpace(strings.TrimSuffix(f.Type, "[]"))
		f.Array = max(1, f.Array)
	}
	if f.Name == "" || f.Type == "" {
		return fmt.Errorf("%w: declaration %q", ErrFormat, decl)
	}
	return nil
}

// Bytes returns the bytes of the field in the raw data of a sample; false if
// the data is too short. Those of a dynamic field are what it refers to.
func (f *Field) Bytes(raw []byte, o perf.Order) ([]byte, bool) {
	b, ok := slice(raw, f.Offset, f.Size)
	if !ok || f.Dynamic == NotDynamic {
		return b, ok
	}
	if len(b) != 4 {
		return nil, false
	}
	loc := o.Uint32(b)
	at := int(loc & math.MaxUint16)
	if f.Dynamic == RelLoc {
		at += f.Offset + f.Size
	}
	return slice(raw, at, int(loc>>16))
}

func slice(b []byte, off, n int) ([]byte, bool) {
	if off < 0 || n < 0 || off > len(b) || n > len(b)-off {
		return nil, false
	}
	return b[off : off+n : off+n], true
}

// Uint returns the value of an integer field of 1, 2, 4 or 8 bytes, sign
// extended if it is signed.
func (f *Field) Uint(raw []byte, o perf.Order) (uint64, bool) {
	b, ok := slice(raw, f.Offset, f.Size)
	if !ok {
		return 0, false
	}
	return uintOf(b, o, f.Signed)
}

func uintOf(b []byte, o perf.Order, signed bool) (v uint64, ok bool) {
	switch len(b) {
	case 1:
		v = uint64(b[0])
	case 2:
		v = uint64(o.Uint16(b))
	case 4:
		v = uint64(o.Uint32(b))
	case 8:
		v = o.Uint64(b)
	default:
		return 0, false
	}
	if signed {
		shift := 64 - 8*len(b)
		v = uint64(int64(v<<shift) >> shift)
	}
	return v, true
}

// IsString reports whether the field is text.
func (f *Field) IsString() bool {
	return f.Array > 0 && (f.Type == "char" || f.Type == "const char" || f.Type == "__kernel_char")
}

// AppendFields appends the fields of a sample's raw data as text, as
// "prev_comm=bash prev_pid=12": numbers as integers, pointers and arrays of
// bytes in hex. Common fields are left out.
func (f *EventFormat) AppendFields(dst []byte, raw []byte, o perf.Order) []byte {
	sep := ""
	for i := range f.Fields {
		fd := &f.Fields[i]
		if fd.Common {
			continue
		}
		dst = append(append(append(dst, sep...), fd.Name...), '=')
		dst = fd.AppendValue(dst, raw, o)
		sep = " "
	}
	return dst
}

// AppendValue appends the value of the field as text; "?" if it is not there.
func (f *Field) AppendValue(dst []byte, raw []byte, o perf.Order) []byte {
	b, ok := f.Bytes(raw, o)
	switch {
	case !ok:
		return append(dst, '?')
	case f.IsString():
		return append(dst, cstring(b)...)
	case f.Array > 0 || f.Dynamic != NotDynamic:
		return f.appendArray(dst, b, o)
	}
	return f.appendNumber(dst, b, o)
}

func (f *Field) appendNumber(dst, b []byte, o perf.Order) []byte {
	v, ok := uintOf(b, o, f.Signed)
	switch {
	case !ok:
		return fmt.Appendf(dst, "%x", b)
	case strings.HasSuffix(f.Type, "*"):
		return fmt.Appendf(dst, "%#x", v)
	case f.Signed:
		return strconv.AppendInt(dst, int64(v), 10)
	}
	return strconv.AppendUint(dst, v, 10)
}

// appendArray appends [1 2 3]; bytes as hex.
func (f *Field) appendArray(dst, b []byte, o perf.Order) []byte {
	size := f.element()
	if size <= 1 || len(b)%size != 0 {
		return fmt.Appendf(dst, "%x", b)
	}
	dst = append(dst, '[')
	for i := 0; i < len(b); i += size {
		if i > 0 {
			dst = append(dst, ' ')
		}
		dst = f.appendNumber(dst, b[i:i+size], o)
	}
	return append(dst, ']')
}

// element is the size of an array's elements, 0 if it is not known.
func (f *Field) element() int {
	if f.Dynamic == NotDynamic {
		if f.Size%f.Array == 0 {
			return f.Size / f.Array
		}
		return 0
	}
	switch strings.TrimPrefix(f.Type, "unsigned ") {
	case "short", "u16", "s16", "__u16", "__s16":
		return 2
	case "int", "u32", "s32", "__u32", "__s32":
		return 4
	case "long", "long long", "u64", "s64", "__u64", "__s64":
		return 8
	}
	return 1
}
