// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Prot is a mapping's access rights, with the values of PROT_* in mmap(2).
type Prot uint8

// Access rights of a mapping.
const (
	ProtRead  Prot = 1
	ProtWrite Prot = 2
	ProtExec  Prot = 4
)

// Mapping is a line of /proc/PID/maps.
type Mapping struct {
	Start, End uint64
	Prot       Prot
	Shared     bool
	Offset     uint64 // bytes into the file
	DevMajor   uint32
	DevMinor   uint32
	Inode      uint64
	// Path is as the kernel writes it, with newlines unescaped: "" for
	// anonymous memory, "[heap]", "[vdso]", "/path (deleted)", "/memfd:x (deleted)".
	Path string
}

const deletedSuffix = " (deleted)"

// Deleted is the path without " (deleted)", and whether that was there.
func (m *Mapping) Deleted() (path string, deleted bool) {
	return strings.CutSuffix(m.Path, deletedSuffix)
}

var errMaps = errors.New("malformed mapping")

// MapsScanner reads maps files. It reuses its memory from one file to the
// next and allocates nothing for a path it has seen lately.
type MapsScanner struct {
	sc    *bufio.Scanner
	buf   []byte
	m     Mapping
	err   error
	line  int
	paths map[string]string
}

const (
	mapsBuffer = 16 << 10
	// maxPaths bounds the memory of interned paths: a machine maps a few
	// thousand different files executably.
	maxPaths = 8192
)

// NewMapsScanner is a scanner that has nothing to read yet: call Reset.
func NewMapsScanner() *MapsScanner {
	return &MapsScanner{buf: make([]byte, mapsBuffer), paths: make(map[string]string)}
}

// Reset starts reading another maps file.
func (s *MapsScanner) Reset(r io.Reader) {
	s.sc = bufio.NewScanner(r)
	s.sc.Buffer(s.buf, maxLine)
	s.sc.Split(splitLines)
	s.err, s.line = nil, 0
}

// Scan goes to the next mapping; it is false at the end and after an error.
func (s *MapsScanner) Scan() bool {
	if s.err != nil || s.sc == nil {
		return false
	}
	s.line++
	if !s.sc.Scan() {
		s.err = s.sc.Err()
		return false
	}
	if err := s.parse(s.sc.Bytes()); err != nil {
		s.err = fmt.Errorf("line %d: %w", s.line, err)
		return false
	}
	return true
}

// Mapping is the current line. It is overwritten by the next Scan; its
// strings may be kept.
func (s *MapsScanner) Mapping() *Mapping { return &s.m }

// Err is what ended the scan early, nil at a proper end.
func (s *MapsScanner) Err() error { return s.err }

// Maps calls fn for each mapping of p; it stops at fn's error and returns it.
func (p Proc) Maps(s *MapsScanner, fn func(*Mapping) error) error {
	f, err := os.Open(p.Path("maps"))
	if err != nil {
		return err
	}
	defer f.Close()
	s.Reset(f)
	for s.Scan() {
		if err := fn(s.Mapping()); err != nil {
			return err
		}
	}
	if s.err != nil {
		return fmt.Errorf("parse %s: %w", f.Name(), s.err)
	}
	return nil
}

// parse takes "start-end perms offset major:minor inode  path" apart.
func (s *MapsScanner) parse(b []byte) error {
	m := &s.m
	var ok [5]bool
	m.Start, b, ok[0] = hex(b, '-', 16)
	m.End, b, ok[1] = hex(b, ' ', 16)
	if !ok[0] || !ok[1] || m.Start > m.End || len(b) < 5 || b[4] != ' ' {
		return fmt.Errorf("address range: %w", errMaps)
	}
	if !m.perms(b[:4]) {
		return fmt.Errorf("permissions: %w", errMaps)
	}
	b = b[5:]
	var major, minor uint64
	m.Offset, b, ok[2] = hex(b, ' ', 16)
	major, b, ok[3] = hex(b, ':', 8)
	minor, b, ok[4] = hex(b, ' ', 8)
	if !ok[2] || !ok[3] || !ok[4] {
		return fmt.Errorf("offset and device: %w", errMaps)
	}
	m.DevMajor, m.DevMinor = uint32(major), uint32(minor)
	var good bool
	if m.Inode, b, good = decimal(b); !good {
		return fmt.Errorf("inode: %w", errMaps)
	}
	m.Path = s.path(bytes.TrimLeft(b, " "))
	return nil
}

func (m *Mapping) perms(b []byte) bool {
	m.Prot = 0
	for i, p := range [3]Prot{ProtRead, ProtWrite, ProtExec} {
		switch b[i] {
		case "rwx"[i]:
			m.Prot |= p
		case '-':
		default:
			return false
		}
	}
	m.Shared = b[3] == 's'
	return m.Shared || b[3] == 'p'
}

// path is b as a string, from the paths seen before if possible.
func (s *MapsScanner) path(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if p, ok := s.paths[string(b)]; ok {
		return p
	}
	if len(s.paths) >= maxPaths {
		clear(s.paths)
	}
	key := string(b)
	p := key
	if strings.Contains(key, `\012`) {
		p = strings.ReplaceAll(key, `\012`, "\n")
	}
	s.paths[key] = p
	return p
}

// hex parses up to max lower-case hex digits that end in sep, and skips sep.
func hex(b []byte, sep byte, max int) (v uint64, rest []byte, ok bool) {
	for i, c := range b {
		switch {
		case c >= '0' && c <= '9':
			v = v<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			v = v<<4 | uint64(c-'a'+10)
		case c == sep && i > 0 && i <= max:
			return v, b[i+1:], true
		default:
			return 0, nil, false
		}
	}
	return 0, nil, false
}

// decimal parses digits that end in a space or the end of the line.
func decimal(b []byte) (v uint64, rest []byte, ok bool) {
	i := 0
	for ; i < len(b) && b[i] != ' '; i++ {
		d := uint64(b[i] - '0')
		if d > 9 || v > (1<<64-1-d)/10 {
			return 0, nil, false
		}
		v = v*10 + d
	}
	return v, b[i:], i > 0
}
