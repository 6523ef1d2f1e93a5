// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/gantry-tools/gantry/analysis/symbol/jit"
)

// PerfMapOpener is an Opener that may have what a compiler that runs with a program
// wrote about the code that it generated.
type PerfMapOpener interface {
	Opener
	// OpenPerfMap opens the perf map of process ref.PID, or what was kept under the
	// id of ref. Its errors are those of Open.
	OpenPerfMap(ref Ref) (f File, size int64, err error)
}

// JIT returns the functions that the process of ref generated, by their
// addresses in memory, from its perf map and from the jitdump files that it
// wrote. An error is remembered, and in Failures.
func (r *Resolver) JIT(ref Ref, dumps []Ref) (*Object, error) {
	res := &result{ref: ref}
	o, code := &Object{}, &jit.Code{}
	res.err = fs.ErrNotExist
	add := func(ref Ref, dump bool) {
		c, from, place, err := r.readJIT(ref, dump)
		if err == nil {
			code.Append(c)
			o.source, o.Place, res.err = from, place, nil
		} else if o.source == fromSymtab && !errors.Is(err, fs.ErrNotExist) {
			res.err = err
		}
	}
	add(ref, false)
	for _, d := range dumps {
		add(d, true)
	}
	if res.err != nil {
		res.err = fmt.Errorf("generated code of process %d: %w", ref.PID,
			&openError{reason: classify(res.err), err: res.err})
		r.mu.Lock()
		r.order = append(r.order, res)
		r.mu.Unlock()
		return nil, res.err
	}
	o.Lost = code.Bad + code.Cut
	o.setCode(code.Functions())
	return o, nil
}

// readJIT reads what the openers have for ref: a perf map, or a jitdump. Other
// than a path, their content tells which.
func (r *Resolver) readJIT(ref Ref, dump bool) (c *jit.Code, from uint16, place string, err error) {
	err = fs.ErrNotExist
	for _, o := range r.openers {
		var f File
		var size int64
		e := error(fs.ErrNotExist)
		if o, ok := o.(PerfMapOpener); ok {
			f, size, e = o.OpenPerfMap(ref)
		}
		if dump && e != nil {
			f, size, e = o.Open(ref)
		}
		if e == nil {
			c, from, e = parseCode(f, size)
			f.Close()
		}
		if e == nil {
			return c, from, sourceName(o), nil
		}
		if !errors.Is(e, fs.ErrNotExist) {
			err = e
		}
	}
	return nil, 0, "", err
}

func parseCode(r io.ReaderAt, size int64) (*jit.Code, uint16, error) {
	c, err := jit.ReadDump(io.NewSectionReader(r, 0, size))
	if !errors.Is(err, jit.ErrNotDump) {
		return c, fromDump, err
	}
	c, err = jit.ReadMap(io.NewSectionReader(r, 0, size))
	if err == nil && c.Len() == 0 {
		err = fmt.Errorf("perf map without functions: %w", fs.ErrNotExist)
	}
	return c, fromMap, err
}

// IsCode reports whether a file is a perf map or a jitdump, with code in it.
func IsCode(r io.ReaderAt, size int64) bool {
	c, _, err := parseCode(r, size)
	return err == nil && c.Len() > 0 && c.Bad <= c.Len()
}

// IsDump reports whether a file is a jitdump.
func IsDump(r io.ReaderAt, size int64) bool {
	_, err := jit.ReadDump(io.NewSectionReader(r, 0, size))
	return err == nil
}

// setCode makes o an object of functions in memory.
func (o *Object) setCode(list []jit.Function) {
	var names []byte
	entries := make([]entry, 0, len(list))
	for i := range list {
		f := &list[i]
		if len(names)+len(f.Name)+1 > maxStrings {
			o.Lost += len(list) - i
			break
		}
		entries = append(entries,
			entry{start: f.Start, end: f.End, name: uint32(len(names)), bind: bindGlobal, kind: o.source})
		names = append(append(names, f.Name...), 0)
	}
	o.setTable(names, entries)
}
