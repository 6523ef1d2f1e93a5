// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// LookupDebug finds the file that another tool put beside a binary, and takes
// no other.
func TestLookupDebug(t *testing.T) {
	s, dir := newStore(t)
	content := testELF([]byte{1, 2, 3, 4, 5})
	id, err := s.Add(bytes.NewReader(content), Source{Path: "/bin/app"})
	if err != nil {
		t.Fatal(err)
	}
	for _, absent := range []ID{id, {}} {
		if _, _, err := s.LookupDebug(absent); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("nothing there for %q: %v", absent, err)
		}
	}
	debug := append(bytes.Clone(content), "symbols"...)
	name := filepath.Join(dir, linkOf(id), "debug")
	if err := os.WriteFile(name, debug, 0o600); err != nil {
		t.Fatal(err)
	}
	f, size, err := s.LookupDebug(id)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := io.ReadAll(f)
	if err != nil || !bytes.Equal(got, debug) || size != int64(len(debug)) {
		t.Errorf("got %q, size %d, %v", got, size, err)
	}
	if got := mustLookup(t, s, id); !bytes.Equal(got, content) {
		t.Errorf("the binary is now %q", got)
	}
	if err := os.WriteFile(name, testELF([]byte{9, 9, 9}), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.LookupDebug(id); !errors.Is(err, ErrMismatch) {
		t.Errorf("another's symbols: %v", err)
	}
}
