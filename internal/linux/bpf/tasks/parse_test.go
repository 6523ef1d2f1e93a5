// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tasks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

var le = binary.LittleEndian

func taskBytes(pid, tid uint32, comm string) []byte {
	b := make([]byte, taskSize)
	b[0] = kindTask
	le.PutUint64(b[8:], 77)
	le.PutUint32(b[32:], pid)
	le.PutUint32(b[36:], tid)
	le.PutUint32(b[44+4*NSMnt:], 4026531832)
	copy(b[76:92], comm)
	return b
}

func fileBytes(id uint32, flags byte, magic uint32, names ...string) []byte {
	path := strings.Join(names, "\x00") + "\x00"
	b := make([]byte, fileSize, fileSize+len(path))
	b[0], b[1] = kindFile, flags
	le.PutUint16(b[2:], uint16(len(path)))
	le.PutUint32(b[4:], id)
	le.PutUint64(b[8:], 4711)
	le.PutUint32(b[16:], 8<<20|0x12345)
	le.PutUint32(b[20:], magic)
	le.PutUint32(b[24:], 99)
	return append(b, path...)
}

func mappingBytes(name byte, file uint32, start, end uint64) []byte {
	b := make([]byte, mappingSize)
	b[0], b[1] = kindMapping, name
	le.PutUint32(b[4:], 42)
	le.PutUint64(b[16:], start)
	le.PutUint64(b[24:], end)
	le.PutUint64(b[32:], 3)
	le.PutUint32(b[44:], file)
	return b
}

// parsed is what a parser made of bytes that came in pieces.
func parsed(pieces ...[]byte) (list []string, err error) {
	p := newParser()
	p.pageSize = 4096
	p.task = func(t *Task) error {
		list = append(list, fmt.Sprintf("task %d/%d %q at %d mnt %d", t.PID, t.TID, t.Comm, t.Now, t.Namespaces[NSMnt]))
		return nil
	}
	p.mapping = func(m *Mapping) error {
		f := m.File
		list = append(list, fmt.Sprintf("mapping of %d %x-%x offset %x: %s %d:%d %d/%d", m.PID, m.Start, m.End,
			m.Offset, f.Path, f.Major, f.Minor, f.Inode, f.Generation))
		return nil
	}
	var left []byte
	for _, b := range pieces {
		b = append(left, b...)
		n, err := p.parse(b)
		if err != nil {
			return list, err
		}
		left = slices.Clone(b[n:])
	}
	if len(left) > 0 {
		return list, ErrRecord
	}
	return list, nil
}

func TestParse(t *testing.T) {
	got, err := parsed(slices.Concat(
		taskBytes(42, 43, "a name"),
		fileBytes(1, 0, 0, "prog", "bin", "usr"), mappingBytes(0, 1, 0x1000, 0x2000),
		mappingBytes(1, 0, 0x3000, 0x4000), mappingBytes(2, 0, 0x5000, 0x6000), mappingBytes(3, 0, 0x6000, 0x7000),
		fileBytes(2, fileDeleted, 0, "gone", "tmp"), mappingBytes(0, 2, 0x7000, 0x8000),
		mappingBytes(0, 1, 0x8000, 0x9000),
	))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`task 42/43 "a name" at 77 mnt 4026531832`,
		"mapping of 42 1000-2000 offset 3000: /usr/bin/prog 8:74565 4711/99",
		"mapping of 42 3000-4000 offset 3000: //anon 0:0 0/0",
		"mapping of 42 5000-6000 offset 3000: [heap] 0:0 0/0",
		"mapping of 42 6000-7000 offset 3000: [stack] 0:0 0/0",
		"mapping of 42 7000-8000 offset 3000: /tmp/gone (deleted) 8:74565 4711/99",
		"mapping of 42 8000-9000 offset 3000: /usr/bin/prog 8:74565 4711/99",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestNames(t *testing.T) {
	for want, f := range map[string]struct {
		flags byte
		magic uint32
		names []string
	}{
		"/":                         {0, 0, nil},
		"/a":                        {0, 0, []string{"a"}},
		"//toolong":                 {fileCut, 0, []string{"z", "y"}},
		"/memfd:code (deleted)":     {fileNameless | fileDeleted, 0x01021994, []string{"memfd:code"}},
		"anon_inode:[perf_event]":   {fileNameless, magicAnonInode, []string{"[perf_event]"}},
		"socket:[4711]":             {fileNameless, magicSocket, []string{"TCP"}},
		"pipe:[4711]":               {fileNameless, magicPipe, nil},
		"[vdso]":                    {fileSpecial, 0, []string{"[vdso]"}},
		"/with a\nnewline and \xff": {0, 0, []string{"with a\nnewline and \xff"}},
	} {
		got, err := parsed(fileBytes(1, f.flags, f.magic, f.names...), mappingBytes(0, 1, 0, 1))
		if err != nil || len(got) != 1 || !strings.Contains(got[0], ": "+want+" 8:") {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

func TestMalformed(t *testing.T) {
	for name, b := range map[string][]byte{
		"kind 0":              make([]byte, 200),
		"kind 9":              {9},
		"half a task":         taskBytes(1, 1, "x")[:50],
		"half a file":         fileBytes(1, 0, 0, "name")[:fileSize+2],
		"a file too far":      fileBytes(2, 0, 0, "x"),
		"file 0":              fileBytes(0, 0, 0, "x"),
		"an unknown file":     mappingBytes(0, 1, 1, 2),
		"the zeroth file":     mappingBytes(0, 0, 1, 2),
		"a huge file":         mappingBytes(0, 1<<31+5, 1, 2),
		"an unknown area":     mappingBytes(4, 0, 1, 2),
		"an empty mapping":    mappingBytes(1, 0, 2, 2),
		"a mapping backwards": mappingBytes(1, 0, 3, 2),
	} {
		if got, err := parsed(b); !errors.Is(err, ErrRecord) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// FuzzParse: where the bytes are cut does not matter.
func FuzzParse(f *testing.F) {
	f.Add(slices.Concat(taskBytes(42, 43, "name"), fileBytes(1, 0, 0, "a", "b"), mappingBytes(0, 1, 1, 2)), uint(100))
	f.Add(slices.Concat(fileBytes(1, fileNameless, magicSocket), mappingBytes(0, 1, 1, 2), mappingBytes(3, 0, 1, 2)),
		uint(3))
	f.Fuzz(func(t *testing.T, b []byte, cut uint) {
		whole, err := parsed(b)
		at := int(cut % uint(len(b)+1))
		pieces, err2 := parsed(b[:at], b[at:])
		if (err == nil) != (err2 == nil) || err == nil && !slices.Equal(whole, pieces) {
			t.Errorf("whole: %q, %v; cut at %d: %q, %v", whole, err, at, pieces, err2)
		}
	})
}
