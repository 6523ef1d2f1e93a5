// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// FS is a directory that holds proc and sys as the file system's root does.
// The zero value is the root itself.
type FS struct {
	root string
}

// New is the FS below root; "" means "/".
func New(root string) FS {
	if root == "/" {
		root = ""
	}
	return FS{root: strings.TrimSuffix(root, "/")}
}

// Root is the directory that paths are below: "/" or what New was given.
func (f FS) Root() string {
	if f.root == "" {
		return "/"
	}
	return f.root
}

// Path is elem joined below the root.
func (f FS) Path(elem ...string) string {
	return f.root + "/" + filepath.Join(elem...)
}

// Gone reports whether err says that the process or thread has ended.
func Gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

const (
	// smallFile bounds files of which a few hundred bytes are expected.
	smallFile = 1 << 20
	// maxLine bounds a line of any file: a mount's options fill a page,
	// escaped characters take four bytes each.
	maxLine = 1 << 18
)

// readSmall reads a file of at most smallFile bytes.
func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f)
}

func readAll(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, smallFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > smallFile {
		return nil, fmt.Errorf("more than %d bytes", smallFile)
	}
	return b, nil
}

// parseFile opens path and hands it to parse, whose error gets the path.
func parseFile[T any](path string, parse func(io.Reader) (T, error)) (T, error) {
	var zero T
	f, err := os.Open(path)
	if err != nil {
		return zero, err
	}
	defer f.Close()
	v, err := parse(f)
	if err != nil {
		return zero, fmt.Errorf("parse %s: %w", path, err)
	}
	return v, nil
}

// lines is a line scanner with a bound that all files share.
func lines(r io.Reader) *bufio.Scanner {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	s.Split(splitLines)
	return s
}

// parseLines parses each line. Its error says which line is wrong; then there is
// no value.
func parseLines[T any](r io.Reader, parse func(string) (T, error)) ([]T, error) {
	var out []T
	sc := lines(r)
	for n := 1; sc.Scan(); n++ {
		v, err := parse(sc.Text())
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		out = append(out, v)
	}
	if err := sc.Err(); err != nil {
		return nil, err
	}
	return out, nil
}

// splitLines is bufio.ScanLines, but leaves a carriage return at a line's end
// alone: a file or cgroup may be called so.
func splitLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// PIDs lists the processes (thread group leaders) in the order of readdir,
// which is ascending.
func (f FS) PIDs() ([]int, error) {
	return numbers(f.Path("proc"))
}

// numbers lists the entries of a directory that are decimal numbers.
func numbers(dir string) ([]int, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	out := make([]int, 0, len(names))
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		if n, err := strconv.ParseInt(name, 10, 32); err == nil {
			out = append(out, int(n))
		}
	}
	return out, nil
}

// Sysctl reads a value below /proc/sys; name is spelled with dots or slashes,
// such as "kernel.perf_event_paranoid".
func (f FS) Sysctl(name string) (string, error) {
	b, err := readSmall(f.Path("proc/sys", strings.ReplaceAll(name, ".", "/")))
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(b)), nil
}

// SysctlInt reads a numeric value below /proc/sys.
func (f FS) SysctlInt(name string) (int64, error) {
	s, err := f.Sysctl(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parse sysctl %s: %w", name, err)
	}
	return n, nil
}
