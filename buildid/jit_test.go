// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCode(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const text = "1000 20 f\n"
	id, err := s.AddJIT(strings.NewReader(text), 100)
	if err != nil {
		t.Fatal(err)
	}
	f, size, err := s.LookupJIT(id)
	if err != nil || size != int64(len(text)) {
		t.Fatalf("%d bytes, %v", size, err)
	}
	got, err := io.ReadAll(f)
	f.Close()
	if err != nil || string(got) != text {
		t.Fatalf("%q, %v", got, err)
	}
	if again, err := s.AddJIT(strings.NewReader(text), 100); again != id || err != nil {
		t.Errorf("%v, then %v, %v", id, again, err)
	}
	if _, err := s.AddJIT(strings.NewReader(text), 5); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if _, _, err := s.Lookup(id); err == nil {
		t.Error("generated code is taken for a program")
	}
	other := id.String()
	if _, _, err := s.LookupJIT(ID{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	// Another file in its place is not taken.
	if err := os.WriteFile(filepath.Join(dir, ".build-id", other[:2], other[2:], jitName), []byte("2000 20 g\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.LookupJIT(id); !errors.Is(err, ErrMismatch) || s.Dropped() != 1 {
		t.Errorf("%v, %d dropped", err, s.Dropped())
	}
	if _, _, err := s.LookupJIT(id); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if names, err := filepath.Glob(filepath.Join(dir, tempPrefix+"*")); err != nil || len(names) > 0 {
		t.Errorf("left %q, %v", names, err)
	}
}
