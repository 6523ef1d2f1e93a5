// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// debugFiles has separate symbols beside its binaries, and counts how often it
// is asked for them.
type debugFiles struct {
	memFiles
	debug  []byte
	wanted int
}

var _ DebugOpener = (*debugFiles)(nil)

func (d *debugFiles) OpenDebug(Ref) (File, int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted++
	if d.debug == nil {
		return nil, 0, fs.ErrNotExist
	}
	d.open++
	return &memFile{bytes.NewReader(d.debug), &d.memFiles}, int64(len(d.debug)), nil
}

// split compiles a program and returns it whole, without its symbols, and its
// symbols alone.
func split(t *testing.T) (whole string, bare, debug []byte) {
	t.Helper()
	whole = buildProgram(t, "c", cProgram, "-O1", "-g")
	only := filepath.Join(t.TempDir(), "debug")
	if text, err := exec.Command("objcopy", "--only-keep-debug", whole, only).CombinedOutput(); err != nil {
		testutil.Lacks(t, "needs objcopy: %v\n%s", err, text)
	}
	var err error
	if bare, err = os.ReadFile(stripped(t, whole)); err != nil {
		t.Fatal(err)
	}
	if debug, err = os.ReadFile(only); err != nil {
		t.Fatal(err)
	}
	return whole, bare, debug
}

func resolve(t *testing.T, openers ...Opener) *Object {
	t.Helper()
	o, err := NewResolver(openers...).Object(Ref{Path: "/app"})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func symbols(o *Object) []Symbol {
	list := make([]Symbol, o.Len())
	for i := range list {
		list[i] = o.Sym(int32(i))
	}
	return list
}

// With its separate symbols a stripped binary has those of the whole one.
func TestDebugFile(t *testing.T) {
	path, bare, debug := split(t)
	want := symbols(mustReadELF(t, path))
	files := &debugFiles{memFiles: memFiles{files: map[string][]byte{"/app": bare}}, debug: debug}
	got := symbols(resolve(t, files))
	if len(got) != len(want) || len(want) < 8 {
		t.Fatalf("%d symbols, the whole program has %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%d: %v, want %v", i, got[i], want[i])
		}
	}
	if files.open != 0 {
		t.Errorf("%d files left open", files.open)
	}

	// A second opener is asked if the first has none.
	first := &debugFiles{memFiles: memFiles{files: map[string][]byte{"/app": bare}}}
	if o := resolve(t, first, &memFiles{}, &debugFiles{debug: debug}); o.Len() != len(want) {
		t.Errorf("from the second opener: %d symbols, want %d", o.Len(), len(want))
	}
}

// Nobody is asked for the symbols of a binary that has them, and only once for
// those of one that has none.
func TestDebugFileAskedOnce(t *testing.T) {
	path, bare, debug := split(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	files := &debugFiles{memFiles: memFiles{files: map[string][]byte{"/app": whole}}, debug: debug}
	resolve(t, files)
	if files.wanted != 0 {
		t.Errorf("asked %d times for what the binary has", files.wanted)
	}
	files = &debugFiles{memFiles: memFiles{files: map[string][]byte{"/app": bare}}}
	r := NewResolver(files)
	o, err := r.Object(Ref{Path: "/app"})
	if err != nil {
		t.Fatal(err)
	}
	for pid := range int32(3) {
		if _, err := r.Object(Ref{Path: "/app", PID: pid}); err != nil {
			t.Fatal(err)
		}
	}
	if files.wanted != 1 || o.Len() == 0 {
		t.Errorf("asked %d times, %d symbols", files.wanted, o.Len())
	}
}

// What does not belong to the binary, or is broken, adds nothing.
func TestDebugFileHostile(t *testing.T) {
	_, bare, debug := split(t)
	other, _ := program(t, "-O2", "-Wl,--build-id=0x0102030405")
	alone := symbols(resolve(t, &memFiles{files: map[string][]byte{"/app": bare}}))
	huge := bytes.Clone(debug)
	binary.LittleEndian.PutUint16(huge[60:], 0xfff0) // section headers
	for name, content := range map[string][]byte{
		"other build-id": other, "without symbols": bare, "empty": {}, "text": []byte("#!/bin/sh\n"),
		"truncated": debug[:len(debug)/2], "headers only": debug[:64], "number of sections": huge,
	} {
		got := symbols(resolve(t, &debugFiles{memFiles: memFiles{files: map[string][]byte{"/app": bare}}, debug: content}))
		if len(got) != len(alone) {
			t.Errorf("%s: %d symbols, want %d", name, len(got), len(alone))
			continue
		}
		for i := range alone {
			if got[i] != alone[i] {
				t.Errorf("%s: %v, want %v", name, got[i], alone[i])
			}
		}
	}
}

func TestDebugFileErrors(t *testing.T) {
	_, bare, debug := split(t)
	f, err := openELF(bytes.NewReader(bare), int64(len(bare)))
	if err != nil {
		t.Fatal(err)
	}
	o, err := ReadELF(bytes.NewReader(bare), int64(len(bare)))
	if err != nil {
		t.Fatal(err)
	}
	other, _ := program(t, "-O2", "-Wl,--build-id=0x0102030405")
	for _, tt := range []struct {
		name    string
		content []byte
		want    error
	}{
		{"right", debug, nil},
		{"other", other, ErrMismatch},
		{"itself", bare, fs.ErrNotExist},
		{"truncated", debug[:len(debug)-8], ErrTruncated},
	} {
		s := &symbolReader{file: f, size: uint64(len(bare))}
		err := s.addDebug(o.BuildID, bytes.NewReader(tt.content), int64(len(tt.content)))
		if !errors.Is(err, tt.want) || (err == nil) != (len(s.entries) > 0) {
			t.Errorf("%s: %v with %d symbols, want %v", tt.name, err, len(s.entries), tt.want)
		}
	}
}
