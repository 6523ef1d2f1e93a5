// SPDX-License-Identifier: Apache-2.0

//go:build linux

package binaries

import (
	"bytes"
	"errors"
	"io"
	"math/bits"
	"os"
	"strconv"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/perf"
)

// errNotJIT is a file without names of functions in the place of one with them.
var errNotJIT = errors.New("not a perf map or jitdump")

// add copies what a compiler has written so far into the store: no more than
// there is now, for it may grow for ever. Of an empty file the id is zero.
func (c *jitCollector) add(op *procroot.Op, f *os.File, dump bool) (buildid.ID, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return buildid.ID{}, err
	case info.Size() == 0:
		return buildid.ID{}, nil
	case info.Size() > maxJITFile:
		return buildid.ID{}, errTooLarge
	case info.Size() > c.left.Load():
		return buildid.ID{}, errTooMuch
	}
	op.Extend(copyTime(info.Size()))
	head := make([]byte, min(info.Size(), jitHead))
	if n, err := f.ReadAt(head, 0); n < len(head) && !errors.Is(err, io.EOF) {
		return buildid.ID{}, err
	}
	if dump && !looksLikeJitdump(head) || !dump && !looksLikeMap(head) {
		return buildid.ID{}, errNotJIT
	}
	id, err := c.store.AddJIT(io.NewSectionReader(f, 0, info.Size()), 0)
	if err == nil {
		c.left.Add(-info.Size())
	}
	return id, err
}

// jitHead is how much of a file is looked at to tell what it is.
const jitHead = 4 << 10

// looksLikeMap reports whether one of the lines in b is of a perf map: start and
// size in hexadecimal digits, and a name (Documentation/jit-interface.txt of
// tools/perf of Linux).
func looksLikeMap(b []byte) bool {
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) < 3 {
			continue
		}
		_, err1 := strconv.ParseUint(string(bytes.TrimPrefix(f[0], []byte("0x"))), 16, 64)
		_, err2 := strconv.ParseUint(string(bytes.TrimPrefix(f[1], []byte("0x"))), 16, 64)
		if err1 == nil && err2 == nil {
			return true
		}
	}
	return false
}

// jitdumpMagic begins a jitdump file, in the order of its writer (struct jitheader
// of tools/perf/Documentation/jitdump-specification.txt of Linux).
const jitdumpMagic = 0x4A695444

func looksLikeJitdump(b []byte) bool {
	if len(b) < 4 {
		return false
	}
	magic := perf.NativeOrder.Uint32(b)
	return magic == jitdumpMagic || bits.ReverseBytes32(magic) == jitdumpMagic
}
