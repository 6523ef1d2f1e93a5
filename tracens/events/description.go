// SPDX-License-Identifier: Apache-2.0

// Package events keeps the user events of one tracing namespace: what they are called and
// have in them, which programs have registered them, and who listens. It knows neither
// files nor processes; package nsfs shows it as the files of the kernel's user_events
// (Documentation/trace/user_events.rst of Linux), whose errors it gives.
//
// Start with NewSet. A program's open file is a File, by which it registers events and
// writes them; a listener is a Reader.
package events

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Limits of the kernel, in bytes.
const (
	// MaxDescription bounds the text that an event is registered with, its end included.
	MaxDescription = 512
	// maxArray bounds an array, and maxStruct a struct.
	maxArray  = 1024
	maxStruct = 1<<31 - 1
)

// Field is a part of an event's data.
type Field struct {
	// Type is in C's words, "char[8]" for an array.
	Type, Name string
	// Offset and Size are bytes, of the data with the eight bytes that every event of the
	// kernel begins with.
	Offset, Size int
	Signed       bool
}

// Description is what an event is called and what it has in it.
type Description struct {
	Name   string
	Fields []Field
	// MinSize is how many bytes of data the fields have at least.
	MinSize int
}

// CommonSize is the size of the fields that every event of the kernel begins with.
const CommonSize = 8

// commonFields are those fields, as the kernel's formats have them.
const commonFields = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n" +
	"\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n" +
	"\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n" +
	"\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n"

// sizes are the types that have one.
var sizes = map[string]int{
	"s8": 1, "u8": 1, "s16": 2, "u16": 2, "s32": 4, "u32": 4, "s64": 8, "u64": 8,
	"char": 1, "unsigned char": 1, "short": 2, "unsigned short": 2, "int": 4, "unsigned int": 4,
}

// bad is an error in a description.
func bad(format string, args ...any) error {
	return fmt.Errorf("event: "+format+": %w", append(args, syscall.EINVAL)...)
}

// Parse reads a description: NAME [TYPE FIELD[;TYPE FIELD]...], as strictly as Linux 6.12
// does. Every error is EINVAL.
func Parse(text string) (*Description, error) {
	if len(text) >= MaxDescription {
		return nil, bad("a description of %d bytes, fewer than %d are allowed", len(text), MaxDescription)
	}
	name, fields, _ := strings.Cut(text, " ")
	d := &Description{Name: name}
	if !validName(name) {
		return nil, bad("%q is no name", name)
	}
	for part := range strings.SplitSeq(fields, ";") {
		if part = strings.TrimLeft(part, " "); part == "" {
			continue
		}
		if err := d.add(part); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// validName reports whether a text can be the name of an event: it becomes that of a
// directory. The kernel takes others too, and has no directory for them.
func validName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c != '_' && c != '-' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return name != "" && name != "." && name != ".."
}

// validWord reports whether a text can be the name of a field, or its type: it is printed
// as it is.
func validWord(word string) bool {
	for i := range len(word) {
		if c := word[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return word != ""
}

// Words that a type of two or three begins with.
var prefixes = []string{
	"__data_loc unsigned ", "__data_loc ", "__rel_loc unsigned ", "__rel_loc ", "unsigned ", "struct ",
}

// add reads one field: a type, one space, a name, and for a struct one more and its size.
func (d *Description) add(text string) error {
	prefix := ""
	for _, p := range prefixes {
		if strings.HasPrefix(text, p) {
			prefix = p
			break
		}
	}
	parts := strings.Split(text[len(prefix):], " ")
	if len(parts) < 2 {
		return bad("%q is not TYPE NAME", text)
	}
	f := Field{Type: prefix + parts[0], Name: parts[1], Offset: CommonSize + d.MinSize}
	var err error
	switch {
	case !validWord(parts[0]), !validWord(f.Name):
		return bad("%q is not TYPE NAME, with one space", text)
	case prefix == "struct " && len(parts) == 3:
		f.Size, err = parseSize(parts[2], maxStruct)
	case len(parts) != 2, prefix == "struct ":
		return bad("%q: a struct has a size, and nothing else", text)
	default:
		f.Size, err = sizeOf(f.Type)
	}
	if err != nil {
		return err
	}
	f.Signed = f.Type[0] != 'u'
	d.Fields = append(d.Fields, f)
	d.MinSize += f.Size
	return nil
}

// parseSize reads a decimal number of 1 to most.
func parseSize(text string, most uint64) (int, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 0 || n > most {
		return 0, bad("%q is no size", text)
	}
	return int(n), nil
}

// sizeOf is the size of a type that is not a struct.
func sizeOf(typ string) (int, error) {
	if dynamic(typ) {
		return 4, nil // where the data are
	}
	if n, ok := sizes[typ]; ok {
		return n, nil
	}
	base, rest, ok := strings.Cut(typ, "[")
	number, closed := strings.CutSuffix(rest, "]")
	if !ok || !closed || base != "char" && base != "unsigned char" {
		return 0, bad("no type %q", typ)
	}
	if hex, ok := strings.CutPrefix(number, "0x"); ok {
		if n, err := strconv.ParseUint(hex, 16, 32); err == nil {
			number = strconv.FormatUint(n, 10)
		}
	}
	return parseSize(number, maxArray)
}

// dynamic reports whether a type says where its data are.
func dynamic(typ string) bool {
	return strings.HasPrefix(typ, "__rel_loc ") || strings.HasPrefix(typ, "__data_loc ")
}

// Same reports whether two descriptions are of one event.
func (d *Description) Same(o *Description) bool {
	return d.Name == o.Name && slices.Equal(d.Fields, o.Fields)
}

// Text is the description as Parse reads it.
func (d *Description) Text() string {
	var b strings.Builder
	b.WriteString(d.Name)
	for i, f := range d.Fields {
		if i == 0 {
			b.WriteByte(' ')
		} else {
			b.WriteString("; ")
		}
		b.WriteString(f.Type + " " + f.Name)
		if strings.HasPrefix(f.Type, "struct ") {
			b.WriteString(" " + strconv.Itoa(f.Size))
		}
	}
	return b.String()
}

// Format is the event's format file, as tracefs has it; id is its number.
func (d *Description) Format(id int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nID: %d\nformat:\n%s\n", d.Name, id, commonFields)
	for _, f := range d.Fields {
		declared := f.Type + " " + f.Name
		if base, size, ok := strings.Cut(f.Type, "["); ok && !strings.HasPrefix(f.Type, "__") {
			declared = base + " " + f.Name + "[" + size
		}
		signed := 0
		if f.Signed {
			signed = 1
		}
		fmt.Fprintf(&b, "\tfield:%s;\toffset:%d;\tsize:%d;\tsigned:%d;\n", declared, f.Offset, f.Size, signed)
	}
	b.WriteString("\nprint fmt: " + d.printFormat() + "\n")
	return b.String()
}

// printFormat prints each field by its name.
func (d *Description) printFormat() string {
	var form, args strings.Builder
	for i, f := range d.Fields {
		if i > 0 {
			form.WriteByte(' ')
		}
		verb, arg := verbOf(&f)
		form.WriteString(f.Name + "=" + verb)
		args.WriteString(", " + arg)
	}
	return `"` + form.String() + `"` + args.String()
}

// verbOf is how a field is printed.
func verbOf(f *Field) (verb, arg string) {
	arg = "REC->" + f.Name
	switch {
	case strings.HasPrefix(f.Type, "__data_loc ") && strings.Contains(f.Type, "char["):
		return "%s", "__get_str(" + f.Name + ")"
	case strings.HasPrefix(f.Type, "__rel_loc ") && strings.Contains(f.Type, "char["):
		return "%s", "__get_rel_str(" + f.Name + ")"
	case strings.HasPrefix(f.Type, "char["), strings.HasPrefix(f.Type, "unsigned char["):
		return "%s", arg
	}
	switch f.Type {
	case "s64":
		return "%lld", arg
	case "u8", "u16", "u32", "unsigned int", "unsigned short", "unsigned char":
		return "%u", arg
	case "s8", "s16", "s32", "int", "short", "char":
		return "%d", arg
	}
	return "%llu", arg // u64, where data are, or a struct's first bytes
}
