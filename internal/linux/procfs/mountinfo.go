// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Mount is a line of /proc/PID/mountinfo (proc_pid_mountinfo(5)), unescaped.
type Mount struct {
	ID, Parent   int
	Major, Minor uint32
	Root         string // of the mount within its file system
	Point        string // relative to the process's root
	Options      []string
	Type         string // file system
	Source       string
	SuperOptions []string
}

// Has reports whether the super block has the option.
func (m *Mount) Has(option string) bool { return slices.Contains(m.SuperOptions, option) }

var errMount = errors.New("malformed mount")

// ParseMountinfo parses a mountinfo file.
func ParseMountinfo(r io.Reader) ([]Mount, error) {
	return parseLines(r, parseMount)
}

// parseMount parses
// "id parent major:minor root point options [tag...] - type source super".
func parseMount(line string) (Mount, error) {
	f := strings.Split(line, " ")
	dash := -1
	if len(f) > 6 {
		dash = slices.Index(f[6:], "-")
	}
	if dash < 0 || len(f) < 6+dash+4 {
		return Mount{}, fmt.Errorf("%d fields: %w", len(f), errMount)
	}
	tail := f[6+dash+1:]
	m := Mount{
		Root: unescapeOctal(f[3]), Point: unescapeOctal(f[4]), Options: strings.Split(f[5], ","),
		Type: unescapeOctal(tail[0]), Source: unescapeOctal(tail[1]),
		SuperOptions: strings.Split(unescapeOctal(tail[2]), ","),
	}
	return m, m.ids(f)
}

func (m *Mount) ids(f []string) error {
	major, minor, _ := strings.Cut(f[2], ":")
	id, err1 := strconv.ParseUint(f[0], 10, 31)
	parent, err2 := strconv.ParseUint(f[1], 10, 31)
	maj, err3 := strconv.ParseUint(major, 10, 32)
	mnr, err4 := strconv.ParseUint(minor, 10, 32)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		*m = Mount{}
		return fmt.Errorf("%w: %w", errMount, err)
	}
	m.ID, m.Parent, m.Major, m.Minor = int(id), int(parent), uint32(maj), uint32(mnr)
	return nil
}

// unescapeOctal undoes the kernel's \ooo of space, tab, newline, backslash
// and hash; anything else with a backslash is left alone.
func unescapeOctal(s string) string {
	i := strings.IndexByte(s, '\\')
	if i < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for ; i >= 0; i = strings.IndexByte(s, '\\') {
		b.WriteString(s[:i])
		c, ok := octal(s[i+1:])
		if !ok {
			b.WriteByte('\\')
			s = s[i+1:]
			continue
		}
		b.WriteByte(c)
		s = s[i+4:]
	}
	b.WriteString(s)
	return b.String()
}

func octal(s string) (byte, bool) {
	if len(s) < 3 || s[0] > '3' {
		return 0, false
	}
	var v byte
	for _, c := range []byte(s[:3]) {
		if c < '0' || c > '7' {
			return 0, false
		}
		v = v<<3 | (c - '0')
	}
	return v, true
}
