// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// addFile adds a file of so many bytes after its notes, last used so long ago.
func addFile(t *testing.T, s *Store, dir, path string, id ID, size int, ago time.Duration) {
	t.Helper()
	b := append(testELF(id.Bytes()), make([]byte, size)...)
	if _, err := s.Add(bytes.NewReader(b), Source{Path: path, Want: id}); err != nil {
		t.Fatal(err)
	}
	setUsed(t, filepath.Join(dir, linkOf(id)), ago)
}

func setUsed(t *testing.T, name string, ago time.Duration) {
	t.Helper()
	at := time.Now().Add(-ago)
	if err := os.Chtimes(name, at, at); err != nil {
		t.Fatal(err)
	}
}

func mustList(t *testing.T, s *Store) []Entry {
	t.Helper()
	list, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestList(t *testing.T) {
	s, dir := newStore(t)
	if list := mustList(t, s); len(list) != 0 {
		t.Fatalf("an empty store has %v", list)
	}
	app, vdso, kernel := ID{raw: "\x01\x02\x03"}, ID{raw: "\x01\x02\x04"}, ID{raw: "\x05\x06"}
	addFile(t, s, dir, "/usr/bin/app", app, 1000, time.Hour)
	addFile(t, s, dir, vdsoPath, vdso, 0, time.Hour)
	if err := s.AddKallsyms(strings.NewReader("0 T _text\n"), kernel); err != nil {
		t.Fatal(err)
	}
	debug := append(testELF(app.Bytes()), "symbols"...)
	if id, err := s.AddDebug(bytes.NewReader(debug), Source{Path: "/usr/bin/app", Want: app}); err != nil || id != app {
		t.Fatal(id, err)
	}
	setUsed(t, filepath.Join(dir, linkOf(app)), time.Hour)
	var got []string
	for _, e := range mustList(t, s) {
		got = append(got, fmt.Sprint(e.ID, " ", e.Path, " ", e.Files, " ", e.Size))
		if since := time.Since(e.Used); e.ID != kernel && (since < 59*time.Minute || since > 2*time.Hour) {
			t.Errorf("%v was used %v ago", e.ID, since)
		}
	}
	size := len(testELF(app.Bytes()))
	want := []string{
		fmt.Sprintf("010203 /usr/bin/app [debug elf] %d", 2*size+1000+len("symbols")),
		"0506 [kernel.kallsyms] [kallsyms] 10",
		fmt.Sprintf("010204 [vdso] [vdso] %d", size),
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := s.AddJIT(strings.NewReader("1000 10 js_hot\n"), 0); err != nil {
		t.Fatal(err)
	}
	if err := s.AddDerived([32]byte{1, 2}, []byte("lines")); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{"/usr/bin/app": "gnu", "[jit]": "code", "[derived]": "derived"}
	for _, e := range mustList(t, s) {
		if want := kinds[e.Path]; want != "" && e.Kind() != want {
			t.Errorf("%s is %s, want %s", e.Path, e.Kind(), want)
		}
		delete(kinds, e.Path)
	}
	if len(kinds) != 0 {
		t.Errorf("not listed: %v", kinds)
	}
	if _, bad := s.Verify(mustList(t, s), false); len(bad) != 0 {
		t.Error(bad)
	}
	if _, _, err := s.Lookup(app); err != nil {
		t.Fatal(err)
	}
	if e := mustList(t, s)[0]; time.Since(e.Used) > 30*time.Minute {
		t.Error("a look-up is not a use")
	}
}

func TestRemove(t *testing.T) {
	s, dir := newStore(t)
	a, b := ID{raw: "\x01\x02\x03"}, ID{raw: "\x01\x02\x04"}
	addFile(t, s, dir, "/usr/bin/app", a, 0, 0)
	addFile(t, s, dir, "/usr/lib/lib", b, 0, 0)
	list := mustList(t, s)
	for range 2 { // the second time there is nothing left, which is no error
		if err := s.Remove(&list[0]); err != nil {
			t.Fatal(err)
		}
	}
	if s.Has(a) || !s.Has(b) {
		t.Error("the wrong one is gone")
	}
	if err := s.Remove(&list[1]); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "[^.]*"))
	if err != nil || len(names) != 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
	if names, err := os.ReadDir(filepath.Join(dir, linkDir)); err != nil || len(names) != 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}

// TestPrune lets limits decide, the longest unused goes first.
func TestPrune(t *testing.T) {
	const file = 10_000
	ids := []ID{{raw: "\x01\x01"}, {raw: "\x01\x02"}, {raw: "\x01\x03"}, {raw: "\x01\x04"}}
	fill := func(t *testing.T) (*Store, int64) {
		s, dir := newStore(t)
		for i, ago := range []time.Duration{72, 1, 48, 24} {
			addFile(t, s, dir, fmt.Sprintf("/app%d", i), ids[i], file, ago*time.Hour)
		}
		return s, file + int64(len(testELF(ids[0].Bytes())))
	}
	for _, tc := range []struct {
		what   string
		limits func(size int64) Limits
		gone   []int
	}{
		{"no limit", func(int64) Limits { return Limits{} }, nil},
		{"room for all", func(n int64) Limits { return Limits{MaxSize: 4 * n, MaxAge: 100 * time.Hour} }, nil},
		{"room for two", func(n int64) Limits { return Limits{MaxSize: 3*n - 1} }, []int{0, 2}},
		{"two days", func(int64) Limits { return Limits{MaxAge: 47 * time.Hour} }, []int{0, 2}},
		{"both limits", func(n int64) Limits { return Limits{MaxAge: 47 * time.Hour, MaxSize: n} }, []int{0, 2, 3}},
		{"room for none", func(int64) Limits { return Limits{MaxSize: 1} }, []int{0, 2, 3, 1}},
	} {
		t.Run(tc.what, func(t *testing.T) {
			s, size := fill(t)
			l := tc.limits(size)
			l.DryRun = true
			would, err := s.Prune(l)
			if err != nil || len(mustList(t, s)) != 4 {
				t.Fatalf("a dry run removed something: %v", err)
			}
			l.DryRun = false
			did, err := s.Prune(l)
			if err != nil {
				t.Fatal(err)
			}
			var gone []ID
			for _, i := range tc.gone {
				gone = append(gone, ids[i])
			}
			for _, p := range []Pruned{would, did} {
				var got []ID
				for _, e := range p.Removed {
					got = append(got, e.ID)
				}
				n := int64(len(tc.gone))
				if !slices.Equal(got, gone) || p.Freed != n*size || p.Kept != 4-len(gone) || p.Size != (4-n)*size {
					t.Errorf("pruned %+v, want %v", p, gone)
				}
			}
			for i, id := range ids {
				if s.Has(id) == slices.Contains(tc.gone, i) {
					t.Errorf("%v is there: %v", id, s.Has(id))
				}
			}
		})
	}
}

// TestPruneStrays: files that no link leads to, and links that lead nowhere.
func TestPruneStrays(t *testing.T) {
	s, dir := newStore(t)
	id, dangling := ID{raw: "\x01\x02\x03"}, ID{raw: "\x01\x02\x04"}
	addFile(t, s, dir, "/app", id, 0, 0)
	// As perf does: one file under a second path, where the link now leads.
	second := filepath.Join(dir, "second", id.String())
	if err := os.MkdirAll(second, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(second, "elf"), testELF(id.Bytes()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../gone/"+dangling.String(), filepath.Join(dir, linkOf(dangling))); err != nil {
		t.Fatal(err)
	}
	list := mustList(t, s)
	if i := slices.IndexFunc(list, func(e Entry) bool { return e.Path == "/second" && e.Orphan }); i < 0 || len(list) != 3 {
		t.Fatalf("list %+v", list)
	}
	if p, err := s.Prune(Limits{}); err != nil || len(p.Removed) != 1 || p.Removed[0].ID != dangling {
		t.Errorf("what is new was not left alone: %+v, %v", p, err)
	}
	setUsed(t, second, time.Hour)
	if p, err := s.Prune(Limits{}); err != nil || len(p.Removed) != 1 || p.Removed[0].Path != "/second" {
		t.Errorf("pruned %+v, %v", p, err)
	}
	if !s.Has(id) {
		t.Error("the linked file is gone")
	}
}

// TestManageHostile has links and paths in the store that would make listing or
// removing act elsewhere.
func TestManageHostile(t *testing.T) {
	s, dir := newStore(t)
	outside := filepath.Join(filepath.Dir(dir), "010203")
	if err := os.MkdirAll(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	precious := filepath.Join(outside, "elf")
	if err := os.WriteFile(precious, testELF([]byte{1, 2, 3}), 0o600); err != nil {
		t.Fatal(err)
	}
	good := ID{raw: "\xaa\xbb\xcc"}
	addFile(t, s, dir, "/app", good, 0, 0)
	if err := os.MkdirAll(filepath.Join(dir, linkDir, "01"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i, target := range []string{
		"../../../010203", "../../../../../../../../" + outside, outside, "../..", "../../app", ".", "", "../../app/" + good.String(),
	} {
		link := filepath.Join(dir, linkDir, "01", fmt.Sprintf("03%02d", i))
		if target == "../../../010203" {
			link = filepath.Join(dir, linkDir, "01", "0203")
		}
		if err := os.Symlink(target, link); err != nil && target != "" {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"zz", "0", "01/zz", "01/0", "01/" + strings.Repeat("0", 200)} {
		if err := os.MkdirAll(filepath.Join(dir, linkDir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	list := mustList(t, s)
	if _, bad := s.Verify(list, true); len(bad) != 0 {
		t.Errorf("verify: %v", bad)
	}
	for i := range list {
		if list[i].ID != good {
			if len(list[i].Files) != 0 {
				t.Errorf("%v has %v", list[i].ID, list[i].Files)
			}
			if err := s.Remove(&list[i]); err != nil {
				t.Errorf("%v: %v", list[i].ID, err)
			}
		}
	}
	if _, err := os.Stat(precious); err != nil || !s.Has(good) {
		t.Errorf("what is not the link's own was removed: %v, %v", err, s.Has(good))
	}
	if list := mustList(t, s); len(list) != 1 {
		t.Errorf("left are %+v", list)
	}
}

// TestAddInside: a path through the directory of another entry, which a
// container can choose, does not keep the other's file out.
func TestAddInside(t *testing.T) {
	s, dir := newStore(t)
	victim, _ := New(testID)
	hostile := ID{raw: "hostile!"}
	addFile(t, s, dir, "/app/"+victim.String()+"/elf", hostile, 0, 0)
	addFile(t, s, dir, "/app", victim, 0, 0)
	list := mustList(t, s)
	for i := range list {
		if list[i].ID == victim {
			if err := s.Remove(&list[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !s.Has(hostile) {
		t.Error("one entry was in another")
	}
}

func TestVerify(t *testing.T) {
	s, dir := newStore(t)
	ids := []ID{{raw: "\x01\x01"}, {raw: "\x01\x02"}, {raw: "\x01\x03"}}
	for _, id := range ids {
		addFile(t, s, dir, "/app", id, 0, time.Hour)
		if _, err := s.AddDebug(bytes.NewReader(testELF(id.Bytes())), Source{Path: "/app"}); err != nil {
			t.Fatal(err)
		}
	}
	put := func(id ID, name string, content []byte) {
		name = filepath.Join(dir, linkOf(id), name)
		if err := errors.Join(os.Remove(name), os.WriteFile(name, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	put(ids[0], "elf", []byte("nothing"))
	put(ids[1], "debug", testELF([]byte{7, 7, 7}))
	list := mustList(t, s)
	for _, drop := range []bool{false, true} {
		files, bad := s.Verify(list, drop)
		if files != 6 || len(bad) != 2 || bad[0].Name != "elf" || bad[0].Entry.ID != ids[0] ||
			bad[1].Name != "debug" || bad[1].Entry.ID != ids[1] || !errors.Is(bad[1].Err, ErrMismatch) {
			t.Fatalf("%d files, %+v", files, bad)
		}
	}
	if s.Dropped() != 2 || s.Has(ids[0]) || !s.hasDebug(ids[0]) || !s.Has(ids[1]) || s.hasDebug(ids[1]) {
		t.Errorf("%d dropped", s.Dropped())
	}
	if files, bad := s.Verify(mustList(t, s), true); files != 4 || len(bad) != 0 {
		t.Errorf("then %d files, %+v", files, bad)
	}
}

// TestCompressedModule: perf keeps a kernel module compressed, as it found it.
// It is not found, and it is not dropped.
func TestCompressedModule(t *testing.T) {
	s, dir := newStore(t)
	id := ID{raw: "\x01\x02\x03"}
	addFile(t, s, dir, "/lib/modules/6.1/nf_nat.ko.xz", id, 0, 0)
	name := filepath.Join(dir, linkOf(id), "elf")
	if err := os.WriteFile(name, []byte("\xfd7zXZ\x00..."), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Lookup(id); !errors.Is(err, ErrNotELF) {
		t.Errorf("looked up: %v", err)
	}
	if _, bad := s.Verify(mustList(t, s), true); len(bad) != 0 {
		t.Errorf("verified: %v", bad)
	}
	if _, err := os.Stat(name); err != nil || s.Dropped() != 0 {
		t.Errorf("%v, %d dropped", err, s.Dropped())
	}
}

// TestAddDebugKinds: symbols must say whose they are.
func TestAddDebugKinds(t *testing.T) {
	s, dir := newStore(t)
	for _, file := range [][]byte{notesELF("symbols", gnuNote(testID)), notesELF("symbols", goNote(goText))} {
		id, err := s.AddDebug(bytes.NewReader(file), Source{})
		if err != nil || !s.hasDebug(id) || s.Has(id) {
			t.Errorf("%v: %v", id, err)
		}
	}
	if id, err := s.AddDebug(bytes.NewReader(notesELF("symbols")), Source{}); !errors.Is(err, ErrNoID) || !id.IsZero() {
		t.Errorf("without an id: %v, %v", id, err)
	}
	noLeftovers(t, dir)
}

func TestAddLimit(t *testing.T) {
	s, dir := newStore(t)
	id := ID{raw: "\x01\x02"}
	b := testELF(id.Bytes())
	if _, err := s.Add(bytes.NewReader(b), Source{Limit: int64(len(b)) - 1}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	if got, err := s.Add(bytes.NewReader(b), Source{Limit: int64(len(b))}); err != nil || got != id {
		t.Errorf("just large enough: %v, %v", got, err)
	}
	noLeftovers(t, dir)
}

// TestReadOnlyStore: who may not write finds what there is.
func TestReadOnlyStore(t *testing.T) {
	s, dir := newStore(t)
	id := ID{raw: "\x01\x02"}
	addFile(t, s, dir, "/app", id, 0, time.Hour)
	if err := os.Remove(filepath.Join(dir, lockName)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(dir, 0o700) })
	s, err := OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !s.Has(id) || len(mustList(t, s)) != 1 {
		t.Error("nothing is found")
	}
	if _, err := os.Lstat(filepath.Join(dir, lockName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("reading wrote a lock: %v", err)
	}
}

// TestSameID: two files with one build-id. The second is told from the first,
// and can be kept by its content.
func TestSameID(t *testing.T) {
	s, _ := newStore(t)
	first, second := notesELF("first", gnuNote(testID)), notesELF("2cond", gnuNote(testID))
	id, err := s.Add(bytes.NewReader(first), Source{Path: "/a"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		file []byte
		want bool
	}{{first, true}, {second, false}, {first[:len(first)-1], false}} {
		if same, err := s.Same(id, bytes.NewReader(tc.file), int64(len(tc.file))); same != tc.want || err != nil {
			t.Errorf("%q: %v, %v", tc.file[len(tc.file)-5:], same, err)
		}
	}
	if same, err := s.Same(id, bytes.NewReader(nil), int64(len(first))); same || err == nil {
		t.Errorf("a file that was cut off: %v, %v", same, err)
	}
	other, err := s.Add(bytes.NewReader(second), Source{Path: "/a", Content: true})
	if err != nil || other.Kind() != KindContent {
		t.Fatal(other, err)
	}
	if got := mustLookup(t, s, other); !bytes.Equal(got, second) {
		t.Error("the second file came back changed")
	}
	if got := mustLookup(t, s, id); !bytes.Equal(got, first) {
		t.Error("the first file came back changed")
	}
	if _, err := s.Add(strings.NewReader("no file"), Source{Content: true}); !errors.Is(err, ErrNotELF) {
		t.Errorf("no ELF file: %v", err)
	}
	if _, bad := s.Verify(mustList(t, s), true); len(bad) != 0 {
		t.Error(bad)
	}
}
