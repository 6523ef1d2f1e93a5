// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/gantry-tools/gantry/buildid"
)

// memFiles is an opener of files in memory, by path, which counts.
type memFiles struct {
	mu    sync.Mutex
	files map[string][]byte
	opens int
	open  int
}

type memFile struct {
	*bytes.Reader
	from *memFiles
}

func (m *memFiles) Open(ref Ref) (File, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opens++
	b, ok := m.files[ref.Path]
	if !ok {
		return nil, 0, &fs.PathError{Op: "open", Path: ref.Path, Err: fs.ErrNotExist}
	}
	m.open++
	return &memFile{bytes.NewReader(b), m}, int64(len(b)), nil
}

func (f *memFile) Close() error {
	f.from.mu.Lock()
	defer f.from.mu.Unlock()
	f.from.open--
	return nil
}

// program compiles a program and returns its content and build-id.
func program(t *testing.T, flags ...string) ([]byte, buildid.ID) {
	t.Helper()
	b, err := os.ReadFile(buildProgram(t, "c", cProgram, flags...))
	if err != nil {
		t.Fatal(err)
	}
	id, err := buildid.FromFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return b, id
}

func TestResolver(t *testing.T) {
	a, idA := program(t, "-O1")
	b, idB := program(t, "-O1", "-Wl,--build-id=0x0102030405")
	if idA == idB {
		t.Fatal("both programs are the same")
	}
	first := &memFiles{files: map[string][]byte{"/app": a, "/script": []byte("#!/bin/sh"), "/short": a[:1000]}}
	second := &memFiles{files: map[string][]byte{"/app": b}}
	r := NewResolver(first, second)

	get := func(ref Ref, want buildid.ID) *Object {
		t.Helper()
		o, err := r.Object(ref)
		if err != nil || o.BuildID != want {
			t.Fatalf("%v: %v", ref, err)
		}
		return o
	}
	objA := get(Ref{Path: "/app", BuildID: idA}, idA)
	objB := get(Ref{Path: "/app", BuildID: idB}, idB) // the first opener has another file
	if get(Ref{Path: "/elsewhere", BuildID: idA, PID: 7, MountNS: 9}, idA) != objA || get(Ref{BuildID: idB}, idB) != objB {
		t.Error("a binary was read twice")
	}
	get(Ref{Path: "/app"}, idA)

	other, err := buildid.Parse("ffff")
	if err != nil {
		t.Fatal(err)
	}
	opens := first.opens + second.opens
	for range 2 {
		for _, tt := range []struct {
			ref    Ref
			reason Reason
			is     error
		}{
			{Ref{Path: "/gone"}, NotFound, fs.ErrNotExist},
			{Ref{Path: "/app", BuildID: other}, Mismatch, ErrMismatch},
			{Ref{Path: "/script"}, NotELF, ErrNotELF},
			{Ref{Path: "/short"}, Truncated, ErrTruncated},
		} {
			o, err := r.Object(tt.ref)
			if o != nil || !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.ref.Path) {
				t.Errorf("%v: %v", tt.ref, err)
			}
		}
	}
	if n := first.opens + second.opens - opens; n != 8 {
		t.Errorf("4 files that are not there were opened %d times by two openers", n)
	}
	var got []Reason
	for _, f := range r.Failures() {
		got = append(got, f.Reason)
	}
	if want := []Reason{NotFound, Mismatch, NotELF, Truncated}; len(got) != 4 || [4]Reason(got) != [4]Reason(want) {
		t.Errorf("reasons %v, want %v", got, want)
	}
	if first.open != 0 || second.open != 0 {
		t.Error("a file was left open")
	}
}

// TestResolverSecondPath finds by another path what was not at the first.
func TestResolverSecondPath(t *testing.T) {
	a, id := program(t, "-O1")
	r := NewResolver(&memFiles{files: map[string][]byte{"/there": a}})
	if _, err := r.Object(Ref{Path: "/here", BuildID: id}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("first path: %v", err)
	}
	if len(r.Failures()) != 1 {
		t.Errorf("%v", r.Failures())
	}
	if _, err := r.Object(Ref{Path: "/there", BuildID: id}); err != nil {
		t.Errorf("second path: %v", err)
	}
	if _, err := r.Object(Ref{Path: "/here", BuildID: id}); err != nil {
		t.Errorf("first path again: %v", err)
	}
	if f := r.Failures(); len(f) != 0 {
		t.Errorf("found, and yet reported: %v", f)
	}
}

func TestResolverAtOnce(t *testing.T) {
	a, id := program(t, "-O1")
	files := &memFiles{files: map[string][]byte{"/app": a}}
	r := NewResolver(files)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := r.Object(Ref{Path: "/app", BuildID: id}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if files.opens != 1 {
		t.Errorf("opened %d times", files.opens)
	}
	if o, err := NewResolver().Object(Ref{Path: "/app"}); o != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without an opener: %v", err)
	}
}

// A file of the host is the file of all that have its build-id, also for what is
// read of it later: the first that asks may be of a container that is gone.
func TestFoundElsewhere(t *testing.T) {
	b := tinyNote()
	id, err := buildid.FromFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	gone, there := Ref{Path: "/gone/app", BuildID: id, MountNS: 7}, Ref{Path: "/app", BuildID: id}
	for name, find := range map[string]func(*Resolver, Ref) error{
		"Object":   func(r *Resolver, ref Ref) error { _, err := r.Object(ref); return err },
		"ObjectAt": func(r *Resolver, ref Ref) error { _, err := r.ObjectAt(ref, []uint64{0}); return err },
	} {
		files := &memFiles{files: map[string][]byte{"/app": b}}
		r := NewResolver(files)
		if find(r, gone) == nil || find(r, there) != nil {
			t.Fatalf("%s: found at the wrong path", name)
		}
		f, size, err := r.Open(gone)
		if err != nil || size != int64(len(b)) {
			t.Fatalf("%s, then Open: %v", name, err)
		}
		f.Close()
		if err := r.Lines(gone).Err(); err != nil {
			t.Errorf("%s, then Lines: %v", name, err)
		}
		if n := len(r.Failures()); n != 0 || files.open != 0 {
			t.Errorf("%s: %d failures, %d files are open", name, n, files.open)
		}
	}
}

// TestForeign: what a container says is in a file does not answer for the host, nor
// for another container; what is known by its content does.
func TestForeign(t *testing.T) {
	b := tinyNote()
	id, err := buildid.FromFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	store, err := buildid.CreateStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	content, err := store.Add(bytes.NewReader(b), buildid.Source{Path: "/app", Content: true})
	if err != nil {
		t.Fatal(err)
	}
	files := &memFiles{files: map[string][]byte{"/app": b}}
	for name, find := range map[string]func(*Resolver, Ref) error{
		"Object":   func(r *Resolver, ref Ref) error { _, err := r.Object(ref); return err },
		"ObjectAt": func(r *Resolver, ref Ref) error { _, err := r.ObjectAt(ref, []uint64{0}); return err },
	} {
		r := NewResolver(files)
		if err := find(r, Ref{Path: "/app", BuildID: id, MountNS: 7}); err != nil {
			t.Fatal(err)
		}
		for _, other := range []Ref{{Path: "/host", BuildID: id}, {Path: "/other", BuildID: id, MountNS: 8}} {
			if err := find(r, other); err == nil {
				t.Errorf("%s: a container's file answers for %+v", name, other)
			}
			if f, _, err := r.Open(other); err == nil {
				f.Close()
				t.Errorf("%s, then Open: a container's file answers for %+v", name, other)
			}
		}
		if err := find(r, Ref{Path: "/app", BuildID: content, MountNS: 7}); err != nil {
			t.Error(err)
		}
		if f, _, err := r.Open(Ref{Path: "/elsewhere", BuildID: content, MountNS: 8}); err != nil {
			t.Errorf("%s: one content is one file: %v", name, err)
		} else {
			f.Close()
		}
	}
}
