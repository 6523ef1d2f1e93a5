// SPDX-License-Identifier: Apache-2.0

package debuginfod

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/testutil"
)

const program = `
int twice(int n) { return 2 * n; }
int main(int argc, char **argv) { return twice(argc); }
`

// fixture is a store with a stripped program, its symbols and a source file.
type fixture struct {
	store         *buildid.Store
	dir           string
	id            buildid.ID
	binary, debug []byte
}

const sourceText = "int twice(int n);\n"

func newFixture(t *testing.T) *fixture {
	t.Helper()
	testutil.Require(t, testutil.Tool("gcc", "objcopy", "strip"))
	prog := testutil.CompileC(t, program, "-g")
	debug := prog + ".debug"
	for _, args := range [][]string{{"objcopy", "--only-keep-debug", prog, debug}, {"strip", "--strip-all", prog}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	f := &fixture{dir: filepath.Join(t.TempDir(), "store")}
	var err error
	if f.store, err = buildid.CreateStore(f.dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.store.Close() })
	f.binary, f.debug = read(t, prog), read(t, debug)
	if f.id, err = f.store.Add(bytes.NewReader(f.binary), buildid.Source{Path: "/usr/bin/a\nb"}); err != nil {
		t.Fatal(err)
	}
	if _, err = f.store.AddDebug(bytes.NewReader(f.debug), buildid.Source{Want: f.id}); err != nil {
		t.Fatal(err)
	}
	if err := f.store.AddSource(f.id, "/src/./twice.c", strings.NewReader(sourceText), 0); err != nil {
		t.Fatal(err)
	}
	return f
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (f *fixture) get(method, target string, header ...string) *http.Response {
	// Not NewRequest's parsing: a client may send any path.
	r := httptest.NewRequest(method, "http://localhost/", nil)
	r.URL.Path, r.URL.RawPath = target, ""
	if path, query, ok := strings.Cut(target, "?"); ok {
		r.URL.Path, r.URL.RawQuery = path, query
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	NewHandler(f.store).ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, resp *http.Response) []byte {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestHandler(t *testing.T) {
	f := newFixture(t)
	at := "/buildid/" + f.id.String()
	for path, want := range map[string][]byte{"/executable": f.binary, "/debuginfo": f.debug, "/source/src/twice.c": []byte(sourceText)} {
		for _, method := range []string{"GET", "HEAD"} {
			resp := f.get(method, at+path)
			got := body(t, resp)
			if method == "HEAD" {
				want = nil
			}
			if resp.StatusCode != 200 || !bytes.Equal(got, want) || resp.Header.Get("Content-Type") != "application/octet-stream" {
				t.Errorf("%s %s: %s, %d bytes, want %d", method, path, resp.Status, len(got), len(want))
			}
		}
	}
	resp := f.get("GET", at+"/executable", "Range", "bytes=1-3")
	if got := string(body(t, resp)); resp.StatusCode != 206 || got != "ELF" || resp.Header.Get(headerFile) != "a_b" ||
		resp.Header.Get(headerSize) != fmt.Sprint(len(f.binary)) {
		t.Errorf("a range: %s, %q, %v", resp.Status, got, resp.Header)
	}
	for name, whole := range map[string][]byte{".text": f.binary, ".debug_line": f.debug, ".note.gnu.build-id": f.debug} {
		resp := f.get("GET", at+"/section/"+name)
		if got := body(t, resp); resp.StatusCode != 200 || len(got) == 0 || !bytes.Contains(whole, got) {
			t.Errorf("section %s: %s, %d bytes", name, resp.Status, len(got))
		}
	}
	if resp := f.get("POST", at+"/executable"); resp.StatusCode != 405 {
		t.Errorf("POST: %s", resp.Status)
	}
}

// TestHandlerReaches asks for what is not in the store, in all the ways that
// lead elsewhere if a path is made of them.
func TestHandlerReaches(t *testing.T) {
	f := newFixture(t)
	secret := filepath.Join(filepath.Dir(f.dir), "secret")
	if err := os.WriteFile(secret, f.binary, 0o600); err != nil {
		t.Fatal(err)
	}
	// A link out of the store, at the place of a file.
	linked := filepath.Join(f.dir, ".build-id", "ab", "cd")
	if err := errors.Join(os.MkdirAll(linked, 0o700), os.Symlink(secret, filepath.Join(linked, "elf"))); err != nil {
		t.Fatal(err)
	}
	id := f.id.String()
	for _, path := range []string{
		"", "/", "/buildid", "/buildid/", "/buildid/" + id, "/buildid/" + id + "/", "/buildid/" + id + "/elf",
		"/buildid/" + id + "/executable/", "/buildid/" + id + "/executable/..", "/buildid/" + id + "/debuginfo/x",
		"/buildid//executable", "/buildid/../secret/executable", "/buildid/..%2fsecret/executable", "/buildid/0/executable",
		"/buildid/zz/executable", "/buildid/00/executable", "/buildid/abcd/executable", "/buildid/" + strings.Repeat("ab", 5000) + "/executable",
		"/buildid/" + id + "/source/", "/buildid/" + id + "/source", "/buildid/" + id + "/source//etc/passwd",
		"/buildid/" + id + "/source/../../../../secret", "/buildid/" + id + "/source/../elf",
		"/buildid/" + id + "/section/", "/buildid/" + id + "/section/.nothing", "/buildid/" + id + "/section/../elf", "/buildid/" + id + "/section/.bss",
		"/../store/.gantry.lock", "/" + secret, "/usr/bin/a", "/metadata/", "/buildid/\x00/executable",
	} {
		resp := f.get("GET", path)
		if got := body(t, resp); resp.StatusCode == 200 || bytes.Contains(got, []byte("ELF")) || bytes.Contains(got, []byte(f.dir)) {
			t.Errorf("%q: %s, %q", path, resp.Status, got)
		}
	}
}

// FuzzHandlerPath: nothing is answered but what the store has, whole.
func FuzzHandlerPath(f *testing.F) {
	store, err := buildid.CreateStore(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	defer store.Close()
	elf := make([]byte, 64)
	copy(elf, "\x7fELF\x02\x01\x01")
	id, err := store.Add(bytes.NewReader(elf), buildid.Source{Path: "/app"})
	if err != nil {
		f.Fatal(err)
	}
	h := NewHandler(store)
	for _, what := range []string{"executable", "debuginfo", "section/.text", "source/../elf"} {
		f.Add("/buildid/" + id.String() + "/" + what)
	}
	f.Fuzz(func(t *testing.T, path string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.URL.Path = path
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code == 200 && !bytes.Equal(w.Body.Bytes(), elf) && path != "/metadata" {
			t.Fatalf("%q gives %q", path, w.Body)
		}
	})
}

// TestHandlerWithoutSymbols: a stripped program has no debuginfo, and one with
// symbols is its own.
func TestHandlerWithoutSymbols(t *testing.T) {
	f := newFixture(t)
	if err := os.Remove(filepath.Join(f.dir, ".build-id", f.id.String()[:2], f.id.String()[2:], "debug")); err != nil {
		t.Fatal(err)
	}
	at := "/buildid/" + f.id.String()
	if resp := f.get("GET", at+"/debuginfo"); resp.StatusCode != 404 {
		t.Errorf("of a stripped program: %s", resp.Status)
	}
	if resp := f.get("GET", at+"/section/.debug_line"); resp.StatusCode != 404 {
		t.Errorf("a section of a stripped program: %s", resp.Status)
	}
	whole := read(t, testutil.SpinProgram(t, "whole"))
	id, err := f.store.Add(bytes.NewReader(whole), buildid.Source{})
	if err != nil {
		t.Fatal(err)
	}
	if got := body(t, f.get("GET", "/buildid/"+id.String()+"/debuginfo")); !bytes.Equal(got, whole) {
		t.Errorf("got %d bytes of %d", len(got), len(whole))
	}
	// A file that is not what its place says is not given away.
	if err := os.WriteFile(filepath.Join(f.dir, ".build-id", id.String()[:2], id.String()[2:], "elf"), f.binary, 0o600); err != nil {
		t.Fatal(err)
	}
	if resp := f.get("GET", "/buildid/"+id.String()+"/executable"); resp.StatusCode != 404 {
		t.Errorf("another file in place: %s", resp.Status)
	}
}

func TestHandlerMetadata(t *testing.T) {
	f := newFixture(t)
	ask := func(query string) (n int, complete bool) {
		resp := f.get("GET", "/metadata?"+query)
		var answer struct {
			Results  []struct{ BuildID, Type, File string }
			Complete bool
		}
		if err := json.Unmarshal(body(t, resp), &answer); err != nil {
			t.Fatalf("%s: %s, %v", query, resp.Status, err)
		}
		for _, r := range answer.Results {
			if r.BuildID != f.id.String() || r.File != "/usr/bin/a\nb" || r.Type != "executable" && r.Type != "debuginfo" {
				t.Errorf("%s: %+v", query, r)
			}
		}
		return len(answer.Results), answer.Complete
	}
	for query, want := range map[string]int{
		"key=file&value=/usr/bin/a%0Ab": 2, "key=glob&value=/usr/*/a*": 2, "key=glob&value=*": 0, "key=glob&value=%5B": 0,
		"key=file&value=/etc/passwd": 0, "key=file": 0,
	} {
		if n, complete := ask(query); n != want || !complete {
			t.Errorf("%s: %d results, %v", query, n, complete)
		}
	}
	if resp := f.get("GET", "/metadata?key=soname&value=x"); resp.StatusCode != 400 {
		t.Errorf("another key: %s", resp.Status)
	}
}

// TestHandlerBusy: so many requests at once and no more.
func TestHandlerBusy(t *testing.T) {
	f := newFixture(t)
	h := NewHandler(f.store)
	for range maxRequests {
		h.slots <- struct{}{}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metadata?key=file", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d", w.Code)
	}
	<-h.slots
	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metadata?key=file", nil))
	if w.Code != http.StatusOK || len(h.slots) != maxRequests-1 {
		t.Errorf("status %d, %d slots", w.Code, len(h.slots))
	}
}

// newClient makes a client of these servers with a cache of its own.
func newClient(t *testing.T, o Options, urls ...string) *Client {
	t.Helper()
	o.URLs = urls
	if o.Cache == "" {
		o.Cache = t.TempDir()
	}
	o.Timeout = cmp.Or(o.Timeout, time.Minute) // this machine may be busy
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

func find(t *testing.T, c *Client, id buildid.ID, kind Kind) ([]byte, error) {
	t.Helper()
	f, size, err := c.Find(context.Background(), id, kind)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil || int64(len(b)) != size {
		t.Fatalf("%d bytes of %d, %v", len(b), size, err)
	}
	return b, nil
}

// TestClient gets files of our own server, once.
func TestClient(t *testing.T) {
	f := newFixture(t)
	requests := 0
	h := NewHandler(f.store)
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		if got := r.Header.Get("X-Token"); got != "secret" {
			t.Errorf("the header is %q", got)
		}
		h.ServeHTTP(w, r)
	}))
	var progress []int64
	c := newClient(t, Options{
		Header:   http.Header{"X-Token": {"secret"}},
		Progress: func(_ string, done, total int64) { progress = append(progress, done, total) },
	}, url+"/")
	other, _ := buildid.New([]byte("no such file"))
	for range 2 {
		for kind, want := range map[Kind][]byte{Executable: f.binary, Debuginfo: f.debug} {
			if got, err := find(t, c, f.id, kind); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%s: %d bytes, %v", kind, len(got), err)
			}
		}
		if _, err := find(t, c, other, Executable); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("what is not there: %v", err)
		}
	}
	if requests != 3 || len(progress) < 4 || progress[len(progress)-1] != progress[len(progress)-2] {
		t.Errorf("%d requests, progress %v", requests, progress)
	}
	want := Stats{Cached: 2, Downloaded: 2, Bytes: int64(len(f.binary) + len(f.debug)), Missing: 1}
	if got := c.Stats(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestClientNegative: a server is asked again when enough time has gone by.
func TestClientNegative(t *testing.T) {
	f := newFixture(t)
	has := false
	h := NewHandler(f.store)
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !has {
			http.NotFound(w, r)
			return
		}
		h.ServeHTTP(w, r)
	}))
	cache := t.TempDir()
	c := newClient(t, Options{Cache: cache}, url)
	if _, err := find(t, c, f.id, Executable); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	has = true
	if _, err := find(t, c, f.id, Executable); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("asked again at once: %v", err)
	}
	name := filepath.Join(cache, f.id.String(), "executable")
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(name, old, old); err != nil {
		t.Fatal(err)
	}
	if _, err := find(t, c, f.id, Executable); err != nil {
		t.Errorf("after an hour: %v", err)
	}
	// What the cache has is checked, too.
	if err := os.WriteFile(name, f.debug[:100], 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := find(t, c, f.id, Executable); err != nil || !bytes.Equal(got, f.binary) {
		t.Errorf("a broken file in the cache: %v", err)
	}
}

// TestClientRefuses: servers that send something else, too much, or nothing.
func TestClientRefuses(t *testing.T) {
	f := newFixture(t)
	other := read(t, testutil.SpinProgram(t, "other"))
	endless := func(w http.ResponseWriter) {
		w.Write(f.binary)
		for range 100 {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	}
	for _, tc := range []struct {
		what    string
		answer  func(w http.ResponseWriter, r *http.Request)
		want    error
		refused int
	}{
		{"another file", func(w http.ResponseWriter, _ *http.Request) { w.Write(other) }, buildid.ErrMismatch, 1},
		{"a page", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>please log in</html>") }, buildid.ErrNotELF, 1},
		{"nothing", func(http.ResponseWriter, *http.Request) {}, buildid.ErrNotELF, 1},
		{"too much, and it says so", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "99999999") }, ErrTooLarge, 1},
		{"too much", func(w http.ResponseWriter, _ *http.Request) { endless(w) }, ErrTooLarge, 1},
		{"a part", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			w.Write(f.binary[:500])
		}, io.ErrUnexpectedEOF, 0},
		{"an error", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, nil, 0},
		{"a way to a file", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
		}, nil, 0},
		{"a circle", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }, nil, 0},
	} {
		cache := t.TempDir()
		url := serve(t, http.HandlerFunc(tc.answer))
		c := newClient(t, Options{Cache: cache, MaxSize: 8 << 20}, url)
		_, err := find(t, c, f.id, Executable)
		if err == nil || errors.Is(err, fs.ErrNotExist) || tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", tc.what, err)
		}
		if got := c.Stats(); got.Refused != tc.refused || got.Downloaded != 0 || got.Refused+got.Failed+got.Dead != 1 {
			t.Errorf("%s: %+v", tc.what, got)
		} else if failure := c.Failure(); (failure != nil) != (got.Failed > 0) {
			t.Errorf("%s: %v", tc.what, failure)
		}
		if left, _ := filepath.Glob(filepath.Join(cache, f.id.String(), "*")); len(left) != 0 {
			t.Errorf("%s: left in the cache: %v", tc.what, left)
		}
		// The next server is asked all the same.
		c = newClient(t, Options{MaxSize: 8 << 20}, url, serve(t, NewHandler(f.store)))
		if got, err := find(t, c, f.id, Executable); err != nil || !bytes.Equal(got, f.binary) {
			t.Errorf("%s, then a good server: %v", tc.what, err)
		}
	}
}

// TestClientSlow: a server that does not answer is asked once.
func TestClientSlow(t *testing.T) {
	f := newFixture(t)
	done := make(chan struct{})
	var requests atomic.Int32
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.Write(f.binary[:100])
		http.NewResponseController(w).Flush()
		select {
		case <-done:
		case <-r.Context().Done():
		}
	}))
	defer close(done)
	c := newClient(t, Options{Timeout: 50 * time.Millisecond}, url)
	for range 3 {
		if _, err := find(t, c, f.id, Executable); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a server that is too slow: %v", err)
		}
	}
	// On a busy machine the first request may come too late for the server.
	if n := requests.Load(); n > 1 || c.Stats().Dead != 1 || !errors.Is(c.Dead()[url], errSlow) {
		t.Errorf("asked %d times, %v", n, c.Dead())
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	c = newClient(t, Options{}, gone.URL)
	if _, err := find(t, c, f.id, Executable); err == nil || c.Stats().Dead != 1 {
		t.Errorf("nobody there: %v, %+v", err, c.Stats())
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c = newClient(t, Options{}, url)
	if _, _, err := c.Find(ctx, f.id, Executable); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that does not wait: %v", err)
	}
}

// TestClientRedirect: headers are for the server, not for where it leads.
func TestClientRedirect(t *testing.T) {
	f := newFixture(t)
	h := NewHandler(f.store)
	other := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Token") != "" {
			t.Error("the header went to another server")
		}
		h.ServeHTTP(w, r)
	}))
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other+r.URL.Path, http.StatusFound) }))
	c := newClient(t, Options{Header: http.Header{"X-Token": {"secret"}}}, url)
	if got, err := find(t, c, f.id, Executable); err != nil || !bytes.Equal(got, f.binary) {
		t.Error(err)
	}
}

// TestClientKinds: a file without a build-id is found by its content, its
// symbols are not asked for.
func TestClientKinds(t *testing.T) {
	f := newFixture(t)
	b := read(t, testutil.CompileC(t, program, "-Wl,--build-id=none"))
	id, err := f.store.Add(bytes.NewReader(b), buildid.Source{})
	if err != nil || id.Kind() != buildid.KindContent {
		t.Fatal(id, err)
	}
	c := newClient(t, Options{}, serve(t, NewHandler(f.store)))
	if got, err := find(t, c, id, Executable); err != nil || !bytes.Equal(got, b) {
		t.Error(err)
	}
	if _, err := find(t, c, id, Debuginfo); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("symbols by the hash of a binary: %v", err)
	}
	if _, err := find(t, c, buildid.ID{}, Executable); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no id: %v", err)
	}
}

// TestCacheClean: what nobody used for a week goes, once a day, and nothing
// that is not the cache's.
func TestCacheClean(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, age time.Duration) {
		t.Helper()
		name = filepath.Join(dir, name)
		at := time.Now().Add(-age)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte("604800"), 0o600), os.Chtimes(name, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	const day = 24 * time.Hour
	write(intervalFile, time.Hour)
	write("aabb/executable", 30*day)
	write("ccdd/executable", day)
	write("ccdd/debuginfo", 30*day)
	write("ccdd/.gantry-x", 2*day)
	write("Documents/letter", 30*day)
	c, err := openCache(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	has := func(name string) bool { _, err := os.Lstat(filepath.Join(dir, name)); return err == nil }
	if !has("aabb/executable") {
		t.Fatal("cleaned too early")
	}
	c.clean(time.Now().Add(7 * day))
	for name, want := range map[string]bool{
		"aabb": false, "ccdd/executable": false, "ccdd/debuginfo": false, "ccdd/.gantry-x": false, "Documents/letter": true, intervalFile: true,
	} {
		if has(name) != want {
			t.Errorf("%s is there: %v", name, !want)
		}
	}
}
