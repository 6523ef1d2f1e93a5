// SPDX-License-Identifier: Apache-2.0

package script

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/perf"
)

// Field is a set of columns.
type Field uint64

// The columns, in the order in which they are printed.
const (
	Comm Field = 1 << iota
	PID
	TID
	CPU
	Misc
	Time
	Period
	Event
	Container
	Pod
	Namespace
	Image
	Cgroup
	Trace
	Addr
	Weight
	IP
	Sym
	SymOff
	DSO
	PhysAddr
	DataPageSize
	CodePageSize
	Srcline

	// frame are the columns of a frame, address those that it has by default.
	frame   = address | Srcline
	address = IP | Sym | SymOff | DSO
	// head are those of records that are not samples.
	head = Comm | PID | TID | CPU | Misc | Time
	// definition is the column of the first definition in Columns, those of
	// the others follow.
	definition     Field = 1 << 32
	maxDefinitions       = 32
	// labels are those of the container.
	labels = Container | Pod | Namespace | Image | Cgroup | ^(definition - 1)
)

// fieldNames are the columns in their order.
func fieldNames() []string {
	return []string{"comm", "pid", "tid", "cpu", "misc", "time", "period", "event",
		"container", "pod", "namespace", "image", "cgroup", "trace", "addr", "weight", "ip", "sym", "symoff", "dso",
		"phys_addr",
		"data_page_size", "code_page_size", "srcline"}
}

// FieldNames lists the columns that ParseFields knows.
func FieldNames(defs container.Definitions) []string {
	list := fieldNames()
	for _, name := range defs.Names() {
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

func fieldOf(name string) (Field, bool) {
	for i, n := range fieldNames() {
		if n == name {
			return 1 << i, true
		}
	}
	return 0, false
}

func (f Field) String() string {
	var names []string
	for i, n := range fieldNames() {
		if f&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return strings.Join(names, ",")
}

// class is a kind of event, which has its own columns.
type class uint8

const (
	hardware class = iota
	software
	tracepoint
	other // raw, breakpoints, and the PMUs of /sys
	classes
)

// classNames are the prefixes of -F.
func classNames() [classes]string { return [classes]string{"hw", "sw", "trace", "raw"} }

func classOf(t perf.EventType) class {
	switch t {
	case perf.TypeHardware, perf.TypeHWCache:
		return hardware
	case perf.TypeSoftware:
		return software
	case perf.TypeTracepoint:
		return tracepoint
	}
	return other
}

// defaults are perf's columns for an event.
func defaults(a *perf.Attr) Field {
	f := Comm | TID | CPU | Time | Event
	chain := a.SampleType&perf.SampleCallchain != 0
	if classOf(a.Type) == tracepoint {
		f |= Trace
	} else {
		f |= Period | address
	}
	if chain {
		f |= address
	}
	return f
}

// Columns are the columns that a user chose. The zero value is perf's choice.
type Columns struct {
	set         [classes]bool
	chosen      [classes]Field
	plus, minus [classes]Field
	// defs are the definitions that have a column.
	defs []string
}

// ParseFields reads columns as perf's -F takes them: "comm,ip" for all events,
// "sw:comm,ip" for a class of them, "+addr,-cpu" to change perf's choice. A
// later list overrides an earlier one. A column may also be the name of a
// definition, of which defs has those that are known; with open, there may be
// others.
func ParseFields(lists []string, defs container.Definitions, open bool) (Columns, error) {
	var c Columns
	for _, list := range lists {
		if err := c.parse(list, defs, open); err != nil {
			return Columns{}, err
		}
	}
	empty := true
	for k := range classes {
		empty = empty && c.set[k] && c.chosen[k] == 0
	}
	if empty {
		return Columns{}, fmt.Errorf("no fields are left for any event")
	}
	return c, nil
}

func (c *Columns) parse(list string, defs container.Definitions, open bool) error {
	from, to := class(0), classes
	only := false
	if prefix, rest, found := strings.Cut(list, ":"); found {
		k, ok := classNamed(prefix)
		if !ok {
			return fmt.Errorf("fields of %q: events are %s", prefix, strings.Join(names(classNames()), ", "))
		}
		from, to, list, only = k, k+1, rest, true
	}
	var chosen, plus, minus Field
	words := 0
	for word := range strings.SplitSeq(list, ",") {
		if word == "" {
			continue
		}
		words++
		into := &chosen
		switch word[0] {
		case '+':
			into, word = &plus, word[1:]
		case '-':
			into, word = &minus, word[1:]
		}
		f, err := c.field(word, defs, open)
		if err != nil {
			return err
		}
		*into |= f
	}
	if chosen != 0 && plus|minus != 0 {
		return fmt.Errorf("fields %q: either all with + or -, or none", list)
	}
	switch {
	case only && from != tracepoint && (chosen|plus)&Trace != 0:
		return fmt.Errorf("trace is a field of tracepoints only")
	case chosen&SymOff != 0 && chosen&Sym == 0:
		return fmt.Errorf("symoff needs sym")
	case chosen&Srcline != 0 && chosen&IP == 0:
		return fmt.Errorf("srcline needs ip")
	}
	for k := from; k < to; k++ {
		if plus|minus != 0 {
			c.plus[k] = c.plus[k]&^minus | plus
			c.minus[k] = c.minus[k]&^plus | minus
			continue
		}
		c.set[k], c.chosen[k], c.plus[k], c.minus[k] = true, chosen, 0, 0
	}
	return nil
}

// field is the column of that name.
func (c *Columns) field(name string, defs container.Definitions, open bool) (Field, error) {
	if f, ok := fieldOf(name); ok {
		return f, nil
	}
	if defs.Find(name) == nil && !(open && container.CheckName(name) == nil) {
		return 0, fmt.Errorf("no field is called %q; there are %s", name, strings.Join(FieldNames(defs), ","))
	}
	i := slices.Index(c.defs, name)
	if i < 0 {
		if i = len(c.defs); i == maxDefinitions {
			return 0, fmt.Errorf("field %q: more than %d definitions", name, maxDefinitions)
		}
		c.defs = append(c.defs, name)
	}
	return definition << i, nil
}

func names(list [classes]string) []string { return list[:] }

func classNamed(s string) (class, bool) {
	for i, n := range classNames() {
		if n == s {
			return class(i), true
		}
	}
	return 0, false
}

// of gives the columns of an event, and those that the user named.
func (c *Columns) of(a *perf.Attr) (f, named Field) {
	k := classOf(a.Type)
	f = defaults(a)
	if c.set[k] {
		f = c.chosen[k]
		named = f
	}
	f = f&^c.minus[k] | c.plus[k]
	named |= c.plus[k]
	if k != tracepoint {
		f &^= Trace
		named &^= Trace
	}
	return f, named
}

// needs is the field of a sample that a column shows.
func needs(f Field) perf.SampleType {
	switch f {
	case Comm, PID, TID:
		return perf.SampleTID
	case CPU:
		return perf.SampleCPU
	case Time:
		return perf.SampleTime
	case Trace:
		return perf.SampleRaw
	case Addr:
		return perf.SampleAddr
	case IP:
		return perf.SampleIP
	case PhysAddr:
		return perf.SamplePhysAddr
	case DataPageSize:
		return perf.SampleDataPageSize
	case CodePageSize:
		return perf.SampleCodePageSize
	case Cgroup:
		return perf.SampleCgroup
	case Weight:
		return perf.SampleWeight | perf.SampleWeightStruct
	}
	return 0
}

// available takes from f the columns of which samples with these fields have
// nothing to show.
func available(f Field, st perf.SampleType) Field {
	for b := Field(1); b <= Srcline; b <<= 1 {
		if n := needs(b); f&b != 0 && n != 0 && st&n == 0 {
			f &^= b
		}
	}
	return f
}
