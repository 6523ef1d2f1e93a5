// SPDX-License-Identifier: Apache-2.0

package binfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/testutil"
)

const hiddenSource = `static __attribute__((noinline)) int hidden(int n) { return n * 3; }
int main(int argc, char **argv) { volatile int f = 1; while (argc--) f = hidden(f); return 0; }`

// strippedTree makes a root with a stripped program in /app, and its symbols
// where a package would install them.
func strippedTree(t *testing.T) (dir string, id buildid.ID) {
	t.Helper()
	testutil.Require(t, testutil.Tool("gcc", "objcopy", "strip"))
	program := testutil.CompileC(t, hiddenSource, "-Wl,--build-id")
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if id, err = buildid.FromFile(bytes.NewReader(b), int64(len(b))); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	debug := filepath.Join(dir, debugDir, id.String()[:2], id.String()[2:]+".debug")
	if err := os.MkdirAll(filepath.Dir(debug), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"objcopy", "--only-keep-debug", program, debug},
		{"strip", "-o", filepath.Join(dir, "app"), program},
	} {
		if text, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, text)
		}
	}
	return dir, id
}

func hasHidden(t *testing.T, ref symbol.Ref, openers ...symbol.Opener) bool {
	t.Helper()
	o, err := symbol.NewResolver(openers...).Object(ref)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int32(o.Len()) {
		if o.Name(i) == "hidden" {
			return true
		}
	}
	return false
}

func openRoot(t *testing.T, dir string) *Root {
	t.Helper()
	r, err := OpenRoot(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestRootDebug(t *testing.T) {
	dir, id := strippedTree(t)
	r := openRoot(t, dir)
	ref := symbol.Ref{Path: "/app", BuildID: id}
	if !hasHidden(t, ref, r) {
		t.Error("the program's symbols were not found")
	}
	if hasHidden(t, ref, &onlyOpener{r}) {
		t.Error("the program is not stripped")
	}
	if _, _, err := r.OpenDebug(symbol.Ref{Path: "/app"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a build-id: %v", err)
	}

	// Another program's symbols in that place are not taken.
	other, otherID := strippedTree(t)
	name := func(dir string, id buildid.ID) string {
		return filepath.Join(dir, debugDir, id.String()[:2], id.String()[2:]+".debug")
	}
	if otherID != id {
		t.Fatal("the same source has two build-ids")
	}
	if err := os.WriteFile(name(other, id), []byte(elfWithID("\x01\x02\x03\x04")), 0o600); err != nil {
		t.Fatal(err)
	}
	if hasHidden(t, ref, openRoot(t, other)) {
		t.Error("symbols from nowhere")
	}
}

// onlyOpener hides that an opener has separate symbols too.
type onlyOpener struct{ r *Root }

func (o *onlyOpener) Open(ref symbol.Ref) (symbol.File, int64, error) { return o.r.Open(ref) }

// The symbols may be in the root of the container's process.
func TestProcessesDebug(t *testing.T) {
	dir, id := strippedTree(t)
	proc := t.TempDir()
	if err := os.MkdirAll(filepath.Join(proc, "12"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(proc, "12", "root")); err != nil {
		t.Fatal(err)
	}
	p := &Processes{Proc: proc}
	if !hasHidden(t, symbol.Ref{Path: "/app", BuildID: id, PID: 12}, p) {
		t.Error("the program's symbols were not found")
	}
	for _, pid := range []int32{0, -1, 13} {
		if _, _, err := p.OpenDebug(symbol.Ref{BuildID: id, PID: pid}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("process %s: %v", strconv.Itoa(int(pid)), err)
		}
	}
}

// The build-id store has symbols beside binaries, as other tools put them there.
func TestStoreDebug(t *testing.T) {
	dir, id := strippedTree(t)
	s, err := buildid.CreateStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	app, err := os.Open(filepath.Join(dir, "app"))
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	if _, err := s.Add(app, buildid.Source{Path: "/app", Want: id}); err != nil {
		t.Fatal(err)
	}
	store := &Store{s}
	if _, _, err := store.OpenDebug(symbol.Ref{BuildID: id}); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("no symbols in the store: %v", err)
	}
	if hasHidden(t, symbol.Ref{BuildID: id}, store) {
		t.Fatal("the program is not stripped")
	}
	if !hasHidden(t, symbol.Ref{BuildID: id}, store, openRoot(t, dir)) {
		t.Error("the host's symbols of a binary in the store were not found")
	}
}
