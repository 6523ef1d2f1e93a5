// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// testELF is a small file with a build-id.
func testELF(id []byte) []byte {
	le := binary.LittleEndian
	return makeELF(elfSpec{order: le, is64: true, align: 4, notes: appendNote(nil, le, 4, "GNU\x00", noteGNUBuildID, id)})
}

func newStore(t *testing.T) (s *Store, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "store")
	s, err := CreateStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, dir
}

func mustLookup(t *testing.T, s *Store, id ID) []byte {
	t.Helper()
	f, size, err := s.Lookup(id)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil || int64(len(b)) != size {
		t.Fatalf("read %d bytes of %d: %v", len(b), size, err)
	}
	return b
}

// noLeftovers fails if a temporary file is in the store.
func noLeftovers(t *testing.T, dir string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			t.Errorf("%s is left behind", e.Name())
		}
	}
}

func TestStore(t *testing.T) {
	s, dir := newStore(t)
	id, err := New(testID)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Lookup(id); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("lookup in an empty store: %v", err)
	}
	content := testELF(testID)
	for range 2 {
		got, err := s.Add(bytes.NewReader(content), Source{Path: "/usr/bin/app", Want: id})
		if err != nil || got != id {
			t.Fatalf("added %v, %v", got, err)
		}
	}
	if got := mustLookup(t, s, id); !bytes.Equal(got, content) {
		t.Error("the file came back changed")
	}
	link, err := os.Readlink(filepath.Join(dir, ".build-id", id.String()[:2], id.String()[2:]))
	if want := "../../usr/bin/app/" + id.String(); err != nil || link != want {
		t.Errorf("link %q, %v, want %q", link, err, want)
	}
	noLeftovers(t, dir)
}

func TestStoreRefuses(t *testing.T) {
	s, dir := newStore(t)
	id, other := ID{raw: "\x01\x02\x03"}, ID{raw: "\x01\x02\x04"}
	if _, err := s.Add(bytes.NewReader(testELF(id.Bytes())), Source{Path: "/a", Want: other}); !errors.Is(err, ErrMismatch) {
		t.Errorf("file with another id: %v", err)
	}
	if _, err := s.Add(strings.NewReader("#!/bin/sh\n"), Source{Path: "/a"}); !errors.Is(err, ErrNotELF) {
		t.Errorf("script: %v", err)
	}
	broken := errors.New("disk on fire")
	if _, err := s.Add(io.MultiReader(bytes.NewReader(testELF(id.Bytes())), errReader{broken}), Source{}); !errors.Is(err, broken) {
		t.Errorf("read error: %v", err)
	}
	if s.Has(id) || s.Has(other) {
		t.Error("the store has what it refused")
	}
	noLeftovers(t, dir)
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// TestStoreChecksOnRead puts a file in the place of another, and things that
// are no files. What is wrong is refused, dropped and counted.
func TestStoreChecksOnRead(t *testing.T) {
	s, dir := newStore(t)
	id := ID{raw: "\xaa\xbb\xcc"}
	elf := filepath.Join(dir, "app", id.String(), "elf")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, testELF(id.Bytes()), 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(content []byte) func() error {
		return func() error { return os.WriteFile(elf, content, 0o600) }
	}
	dropped := uint64(0)
	for _, tc := range []struct {
		what string
		put  func() error
		want error
		drop bool
	}{
		{"other file", write(testELF([]byte{1, 2, 3})), ErrMismatch, true},
		{"garbage", write([]byte("short")), ErrNotELF, true},
		{"truncated file", write(testELF(id.Bytes())[:70]), io.ErrUnexpectedEOF, true},
		{"FIFO", func() error { return syscall.Mkfifo(elf, 0o600) }, errNotRegular, false}, // must not wait for a writer
		{"directory", func() error { return os.Mkdir(elf, 0o700) }, errNotRegular, false},
		{"link out of the store", func() error { return os.Symlink(secret, elf) }, nil, false},
	} {
		if err := os.RemoveAll(elf); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Add(bytes.NewReader(testELF(id.Bytes())), Source{Path: "/app", Want: id}); err != nil || !s.Has(id) {
			t.Fatalf("before the %s: %v", tc.what, err)
		}
		if err := errors.Join(os.Remove(elf), tc.put()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Lookup(id); err == nil || tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%s in place: %v", tc.what, err)
		}
		if tc.drop {
			dropped++
		}
		if _, err := os.Lstat(elf); tc.drop != errors.Is(err, fs.ErrNotExist) || s.Dropped() != dropped {
			t.Errorf("%s: %v, %d are dropped", tc.what, err, s.Dropped())
		}
	}
}

// TestStoreOrigin adds files under paths that lead out of the store, into its
// own directories, or nowhere.
func TestStoreOrigin(t *testing.T) {
	s, dir := newStore(t)
	for i, origin := range []string{
		"", "/", "..", "../../etc/passwd", "/../x", "/.build-id/aa/bb", ".gantry-x", "//a//b/../c", "/memfd:x (deleted)",
		"/a\x00b", "/" + strings.Repeat("x/", 4000), "/" + strings.Repeat("y", 300), "[vdso]", "/tmp/[vdso]",
	} {
		id := ID{raw: fmt.Sprintf("\xee%03d", i)}
		if _, err := s.Add(bytes.NewReader(testELF(id.Bytes())), Source{Path: origin}); err != nil || !s.Has(id) {
			t.Errorf("%.40q: %v", origin, err)
		}
	}
	if list, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(list) != 1 {
		t.Errorf("beside the store is %v, %v", list, err)
	}
	if list, err := os.ReadDir(filepath.Join(dir, ".build-id")); err != nil || len(list) != 1 {
		t.Errorf(".build-id has %v, %v", list, err)
	}
	noLeftovers(t, dir)
}

func TestStoreDanglingLink(t *testing.T) {
	s, dir := newStore(t)
	id := ID{raw: "\x11\x22\x33"}
	link := filepath.Join(dir, linkOf(id))
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"../../gone/112233", "/etc", "../../../outside"} {
		if err := os.RemoveAll(link); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Add(bytes.NewReader(testELF(id.Bytes())), Source{Path: "/app"}); err != nil || !s.Has(id) {
			t.Errorf("link to %s: %v", target, err)
		}
	}
}

// TestStoreWriters lets many writers add the same files at once.
func TestStoreWriters(t *testing.T) {
	_, dir := newStore(t)
	const writers, files = 8, 20
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			s, err := OpenStore(dir)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			for i := range files {
				id := ID{raw: fmt.Sprintf("id%02d", i)}
				if _, err := s.Add(bytes.NewReader(testELF(id.Bytes())), Source{Path: fmt.Sprintf("/w%d", w%3)}); err != nil {
					t.Error(err)
				}
				if !s.Has(id) {
					t.Errorf("%v is not there after it was added", id)
				}
			}
		})
	}
	wg.Wait()
	noLeftovers(t, dir)
}

func TestStoreKallsyms(t *testing.T) {
	s, _ := newStore(t)
	id := ID{raw: "\x11\x22\x33"}
	if _, err := s.Kallsyms(id); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("empty store: %v", err)
	}
	for _, text := range []string{"ffffffff81000000 T _text\n", "ffffffff82000000 T _text\n"} {
		if err := s.AddKallsyms(strings.NewReader(text), id); err != nil {
			t.Fatal(err)
		}
		f, err := s.Kallsyms(id)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(f); string(got) != text {
			t.Errorf("got %q, %v", got, err)
		}
		f.Close()
	}
	if _, _, err := s.Lookup(id); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("kernel symbols are taken for an ELF file: %v", err)
	}
}

const hotProgram = `
volatile unsigned long sum;
__attribute__((noinline)) void gantry_hot(long n) { for (long i = 0; i < n; i++) sum += i * i; }
int main(void) { for (int i = 0; i < 100; i++) gantry_hot(1000000); return 0; }
`

// TestPerfReadsStore records a program with perf, deletes it, and lets perf
// report find its names in our store; then lets both add the same file.
func TestPerfReadsStore(t *testing.T) {
	perf, err := exec.LookPath("perf")
	if err != nil {
		testutil.Lacks(t, "needs perf: %v", err)
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		testutil.Lacks(t, "needs gcc: %v", err)
	}
	work := t.TempDir()
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = work
		cmd.Env = append(os.Environ(), "DEBUGINFOD_URLS=")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	prog := filepath.Join(work, "prog")
	if err := os.WriteFile(prog+".c", []byte(hotProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	run(gcc, "-O1", "-Wl,--build-id", "-o", prog, prog+".c")
	record := exec.Command(perf, "--buildid-dir", filepath.Join(work, "perf-store"),
		"record", "-N", "-q", "-e", "cpu-clock:u", "-o", filepath.Join(work, "perf.data"), prog)
	if out, err := record.CombinedOutput(); err != nil {
		testutil.NotHere(t, "perf cannot record here: %v\n%s", err, out)
	}

	s, dir := newStore(t)
	f, err := os.Open(prog)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	id, err := s.Add(f, Source{Path: prog})
	if err != nil {
		t.Fatal(err)
	}
	if out := run(perf, "--buildid-dir", dir, "buildid-cache", "--list"); !strings.Contains(out, id.String()+" "+prog) {
		t.Errorf("perf lists %q", out)
	}
	if err := os.Rename(prog, prog+".moved"); err != nil {
		t.Fatal(err)
	}
	report := []string{"report", "--stdio", "--sort", "sym", "-i", "perf.data"}
	if out := run(perf, append([]string{"--buildid-dir", work}, report...)...); strings.Contains(out, "gantry_hot") {
		t.Fatalf("perf finds names without a store:\n%s", out)
	}
	if out := run(perf, append([]string{"--buildid-dir", dir}, report...)...); !strings.Contains(out, "gantry_hot") {
		t.Errorf("perf does not find names in the store:\n%s", out)
	}

	// perf adds what we have, and we add what perf has.
	run(perf, "--buildid-dir", dir, "buildid-cache", "--add", prog+".moved")
	if !s.Has(id) {
		t.Error("file is gone after perf added it too")
	}
	perfDir := filepath.Join(work, "perf-store")
	run(perf, "--buildid-dir", perfDir, "buildid-cache", "--add", prog+".moved")
	ps, err := OpenStore(perfDir)
	if err != nil {
		t.Fatal(err)
	}
	defer ps.Close()
	if !ps.Has(id) {
		t.Error("a file that perf added is not found")
	}
	if _, err := ps.Add(bytes.NewReader(testELF(testID)), Source{Path: prog}); err != nil {
		t.Errorf("add to perf's store: %v", err)
	}
}
