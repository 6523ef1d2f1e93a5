// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestDerived(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	key, content := [32]byte{1, 2, 3}, bytes.Repeat([]byte("tables "), 1000)
	if _, err := s.Derived(key); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := s.AddDerived(key, content); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("it begins a store: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, linkDir), 0o755); err != nil {
		t.Fatal(err)
	}
	id := hashedID(contentMark, key)
	file := filepath.Join(dir, linkOf(id), derivedName)
	damage := map[string]func([]byte) []byte{
		"none":          func(b []byte) []byte { return b },
		"a bit":         func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"truncated":     func(b []byte) []byte { return b[:len(b)-1] },
		"longer":        func(b []byte) []byte { return append(b, 0) },
		"other version": func(b []byte) []byte { b[len(derivedMark)-1]++; return b },
		"empty":         func([]byte) []byte { return nil },
	}
	for name, f := range damage {
		if err := s.AddDerived(key, content); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, f(b), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := s.Derived(key)
		if name == "none" {
			if err != nil || !bytes.Equal(got, content) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			continue
		}
		if !errors.Is(err, fs.ErrNotExist) || got != nil {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: it was not dropped: %v", name, err)
		}
	}
	if s.Dropped() != uint64(len(damage)-1) {
		t.Errorf("%d dropped", s.Dropped())
	}
	// It is pruned as all is.
	if err := s.AddDerived(key, content); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(filepath.Dir(file), old, old); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prune(Limits{MaxAge: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Derived(key); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after pruning: %v", err)
	}
}

// Without a link it is found and pruned, too.
func TestDerivedWithoutLink(t *testing.T) {
	s, dir := newStore(t)
	if err := os.Mkdir(filepath.Join(dir, linkDir), 0o755); err != nil {
		t.Fatal(err)
	}
	key := [32]byte{1, 2, 3}
	if err := s.AddDerived(key, []byte("tables")); err != nil {
		t.Fatal(err)
	}
	id := hashedID(contentMark, key)
	file := filepath.Join(dir, derivedPath, id.String(), derivedName)
	if err := os.Remove(filepath.Join(dir, linkOf(id))); err != nil {
		t.Fatal(err)
	}
	setUsed(t, filepath.Dir(file), time.Hour)
	p, err := s.Prune(Limits{})
	if err != nil || len(p.Removed) != 1 || !p.Removed[0].Orphan || p.Removed[0].Kind() != derivedName {
		t.Errorf("pruned %+v, %v", p, err)
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

// What is good by now stays: another writer may have put it there since somebody
// found it bad.
func TestDropLooksAgain(t *testing.T) {
	s, _ := newStore(t)
	id, err := s.AddJIT(strings.NewReader("1000 20 f\n"), 100)
	if err != nil {
		t.Fatal(err)
	}
	s.drop(id, path.Join(linkOf(id), jitName), ErrMismatch)
	f, _, err := s.LookupJIT(id)
	if err != nil || s.Dropped() != 0 {
		t.Fatalf("%v, %d dropped", err, s.Dropped())
	}
	f.Close()
}
