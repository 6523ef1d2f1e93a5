// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tasks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// The records, as tasks.bpf.c writes them: the kinds and the fixed sizes.
const (
	kindTask    = 1
	kindFile    = 2
	kindMapping = 3

	taskSize    = 96
	fileSize    = 32
	mappingSize = 48
)

// Flags of a file record.
const (
	fileDeleted  = 1
	fileNameless = 2
	fileCut      = 4
	fileSpecial  = 8
)

// Numbers of the namespaces of a Task. All but the last are those of a
// NAMESPACES record of perf.
const (
	NSNet = iota
	NSUTS
	NSIPC
	NSPID
	NSUser
	NSMnt
	NSCgroup
	NSTime
	NSCount
)

// Task is one thread.
type Task struct {
	// PID is the process's id, TID the thread's, PPID that of the process's
	// parent, 0 if that is in another pid namespace; all as this process
	// sees them.
	PID, TID, PPID uint32
	// Flags are PF_* of linux/sched.h.
	Flags uint32
	// Zombie: it has exited and waits for its parent.
	Zombie bool
	// Now is the time before the task was read, in CLOCK_MONOTONIC.
	Now uint64
	// Start is when it was made, in nanoseconds of CLOCK_BOOTTIME.
	Start uint64
	// Cgroup is the id of its cgroup in the v2 hierarchy.
	Cgroup uint64
	// Namespaces are inodes, 0 where the kernel has none.
	Namespaces [NSCount]uint32
	// Comm is its name, valid until the next record.
	Comm []byte
}

// pfKthread is PF_KTHREAD of linux/sched.h.
const pfKthread = 0x200000

// KernelThread: it has no memory of its own.
func (t *Task) KernelThread() bool { return t.Flags&pfKthread != 0 }

// File is what a mapping shows. There is one File for all mappings of it by
// tasks of one root directory.
type File struct {
	// Path is as PERF_RECORD_MMAP2 has it: seen from the root of the tasks,
	// with " (deleted)" behind it if the file has no name any more.
	// Mappings without a file are called "//anon", "[heap]", "[stack]", or
	// what the kernel calls them.
	Path string
	// Major, Minor and Inode are those of the file as it was opened: of the
	// overlay, not of the layer below it. 0: no file.
	Major, Minor uint32
	Inode        uint64
	// ID counts the files that were reported, from 1; 0: no file.
	ID uint32
	// Generation tells files apart that had the inode one after the other,
	// on file systems that count.
	Generation uint32
	// Magic is the kind of file system (linux/magic.h).
	Magic uint32
}

// Mapping is executable memory of a process.
type Mapping struct {
	PID uint32
	// Now is a time before it was read at which the process had the same
	// memory, in CLOCK_MONOTONIC.
	Now        uint64
	Start, End uint64
	Offset     uint64 // in the file, in bytes
	// Flags are VM_* of linux/mm.h, the lower half.
	Flags uint32
	File  *File
}

// ErrRecord is the error of bytes that are no record.
var ErrRecord = errors.New("malformed record")

// parser parses what the iterators write. Tasks and mappings are reused.
type parser struct {
	task    func(*Task) error
	mapping func(*Mapping) error

	pageSize uint64
	files    []*File // by id
	areas    [4]*File
	t        Task
	m        Mapping
}

func newParser() *parser {
	area := func(name string) *File { return &File{Path: name} }
	return &parser{
		pageSize: uint64(os.Getpagesize()),
		files:    []*File{nil},
		areas:    [4]*File{1: area("//anon"), 2: area("[heap]"), 3: area("[stack]")},
	}
}

// parse parses the records in b and returns how many bytes they have: what
// is left is the beginning of a record.
func (p *parser) parse(b []byte) (int, error) {
	at := 0
	for at < len(b) {
		n, err := p.record(b[at:])
		if err != nil {
			return at, fmt.Errorf("byte %d of the iterator: %w", at, err)
		}
		if n == 0 {
			break
		}
		at += n
	}
	return at, nil
}

// record parses one record and returns its size, 0 if b ends before it does.
func (p *parser) record(b []byte) (int, error) {
	switch {
	case b[0] == kindTask && len(b) >= taskSize:
		p.readTask(b)
		return taskSize, p.task(&p.t)
	case b[0] == kindMapping && len(b) >= mappingSize:
		if err := p.readMapping(b); err != nil {
			return 0, err
		}
		return mappingSize, p.mapping(&p.m)
	case b[0] == kindFile && len(b) >= fileSize:
		size := fileSize + int(binary.LittleEndian.Uint16(b[2:]))
		if size > len(b) {
			return 0, nil
		}
		return size, p.readFile(b[:size])
	case b[0] < kindTask || b[0] > kindMapping:
		return 0, fmt.Errorf("%w of kind %d", ErrRecord, b[0])
	}
	return 0, nil
}

func (p *parser) readTask(b []byte) {
	le := binary.LittleEndian
	t := &p.t
	t.Zombie, t.Flags = b[1] != 0, le.Uint32(b[4:])
	t.Now, t.Start, t.Cgroup = le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:])
	t.PID, t.TID, t.PPID = le.Uint32(b[32:]), le.Uint32(b[36:]), le.Uint32(b[40:])
	for i := range t.Namespaces {
		t.Namespaces[i] = le.Uint32(b[44+4*i:])
	}
	t.Comm, _, _ = bytes.Cut(b[76:92], []byte{0})
}

func (p *parser) readMapping(b []byte) error {
	le := binary.LittleEndian
	m := &p.m
	m.PID, m.Now = le.Uint32(b[4:]), le.Uint64(b[8:])
	m.Start, m.End, m.Offset = le.Uint64(b[16:]), le.Uint64(b[24:]), le.Uint64(b[32:])*p.pageSize
	m.Flags = le.Uint32(b[40:])
	if m.Start >= m.End {
		return fmt.Errorf("%w: mapping from %#x to %#x", ErrRecord, m.Start, m.End)
	}
	if name := b[1]; name != 0 {
		if int(name) >= len(p.areas) {
			return fmt.Errorf("%w: mapping of kind %d", ErrRecord, name)
		}
		m.File = p.areas[name]
		return nil
	}
	id := le.Uint32(b[44:])
	if id == 0 || int64(id) >= int64(len(p.files)) {
		return fmt.Errorf("%w: mapping of file %d, and %d are known", ErrRecord, id, len(p.files)-1)
	}
	m.File = p.files[id]
	return nil
}

// readFile takes the next file: they are numbered from 1.
func (p *parser) readFile(b []byte) error {
	le := binary.LittleEndian
	id, dev := le.Uint32(b[4:]), le.Uint32(b[16:])
	if int64(id) != int64(len(p.files)) {
		return fmt.Errorf("%w: file %d after file %d", ErrRecord, id, len(p.files)-1)
	}
	f := &File{ID: id, Major: dev >> 20, Minor: dev & 0xfffff, Inode: le.Uint64(b[8:]), Magic: le.Uint32(b[20:]),
		Generation: le.Uint32(b[24:])}
	f.Path = f.name(b[1], b[fileSize:])
	p.files = append(p.files, f)
	return nil
}

// Kinds of file systems whose files have no path (linux/magic.h).
const (
	magicAnonInode = 0x09041934
	magicSocket    = 0x534f434b
	magicPipe      = 0x50495045
)

// name is the path as d_path of the kernel makes it of the names.
func (f *File) name(flags byte, names []byte) string {
	list := strings.Split(strings.TrimSuffix(string(names), "\x00"), "\x00")
	switch {
	case flags&fileSpecial != 0:
		return list[0]
	case flags&fileCut != 0:
		return "//toolong"
	case flags&fileNameless == 0:
	case f.Magic == magicAnonInode:
		return "anon_inode:" + list[0]
	case f.Magic == magicSocket:
		return fmt.Sprintf("socket:[%d]", f.Inode)
	case f.Magic == magicPipe:
		return fmt.Sprintf("pipe:[%d]", f.Inode)
	default:
		return "/" + list[0] + " (deleted)" // simple_dname
	}
	slices.Reverse(list)
	path := "/" + strings.Join(list, "/")
	if flags&fileDeleted != 0 {
		path += " (deleted)"
	}
	return path
}
