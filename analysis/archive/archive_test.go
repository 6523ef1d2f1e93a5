// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/testutil"
)

// fake is an opener with some files.
type fake map[string][]byte

func (f fake) get(key string) (symbol.File, int64, error) {
	b, ok := f[key]
	if !ok {
		return nil, 0, fs.ErrNotExist
	}
	return memory{bytes.NewReader(b)}, int64(len(b)), nil
}

func (f fake) Open(ref symbol.Ref) (symbol.File, int64, error) { return f.get("open " + ref.Path) }
func (f fake) OpenDebug(ref symbol.Ref) (symbol.File, int64, error) {
	return f.get("debug " + ref.BuildID.String())
}
func (f fake) OpenLink(_ symbol.Ref, path string) (symbol.File, int64, error) {
	return f.get("link " + path)
}

func (f fake) OpenPerfMap(ref symbol.Ref) (symbol.File, int64, error) {
	return f.get("map " + ref.Path)
}

// plain is an opener without separate symbols.
type plain struct{ f fake }

func (p plain) Open(ref symbol.Ref) (symbol.File, int64, error) { return p.f.Open(ref) }

func newID(t testing.TB, text string) buildid.ID {
	t.Helper()
	id, err := buildid.New([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func content(t testing.TB, f symbol.File, size int64, err error) string {
	t.Helper()
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n < len(b) {
		t.Fatalf("%d bytes of %d: %v", n, size, err)
	}
	return string(b)
}

// query asks an opener everything.
func query(t testing.TB, o symbol.Opener, ref symbol.Ref, link string) []string {
	t.Helper()
	var out []string
	add := func(f symbol.File, size int64, err error) {
		if errors.Is(err, fs.ErrNotExist) {
			out = append(out, "none")
			return
		}
		out = append(out, content(t, f, size, err))
	}
	add(o.Open(ref))
	if d, ok := o.(symbol.DebugOpener); ok {
		add(d.OpenDebug(ref))
	} else {
		out = append(out, "none")
	}
	if l, ok := o.(symbol.LinkOpener); ok {
		add(l.OpenLink(ref, link))
	} else {
		out = append(out, "none")
	}
	if m, ok := o.(symbol.PerfMapOpener); ok {
		add(m.OpenPerfMap(ref))
	} else {
		out = append(out, "none")
	}
	return out
}

func open(t testing.TB, b []byte) *Archive {
	t.Helper()
	a, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestRoundTrip asks openers while they are packed, and the archive afterwards:
// the answers are the same.
func TestRoundTrip(t *testing.T) {
	app, other := newID(t, "idofapp"), newID(t, "idofother")
	big := strings.Repeat("large", smallPart)
	openers := []symbol.Opener{
		fake{
			"open /app": []byte(testutil.TinyELF("idofapp", "host")), "debug " + app.String(): testutil.TinyELF("idofapp", "symbols"),
			"link /app.debug": testutil.TinyELF("", "linked"), "open /wrong": testutil.TinyELF("another", ""), "open /bin/big": testutil.TinyELF("", big),
			"open /copy": []byte(testutil.TinyELF("idofapp", "host")),
		},
		plain{fake{"open /app": testutil.TinyELF("idofapp", "second"), "open /wrong": testutil.TinyELF("idofother", "right")}},
	}
	refs := []struct {
		ref  symbol.Ref
		link string
	}{
		{symbol.Ref{BuildID: app, Path: "/app", PID: 7}, "/app.debug"},
		{symbol.Ref{BuildID: app, Path: "/copy"}, ""},
		{symbol.Ref{BuildID: other, Path: "/wrong"}, ""},
		{symbol.Ref{Path: "/bin/big", Inode: 5, MountNS: 3}, ""},
		{symbol.Ref{Path: "/nothing"}, "/nothing"},
	}
	var out bytes.Buffer
	w := NewWriter(&out)
	if err := w.Recording(strings.NewReader("PERFILE2")); err != nil {
		t.Fatal(err)
	}
	var want [][]string
	tees := w.Openers(openers)
	for range 2 { // the second time packs nothing
		want = nil
		for _, r := range refs {
			for i, o := range tees {
				got := query(t, o, r.ref, r.link)
				if inner := query(t, openers[i], r.ref, r.link); fmt.Sprint(got) != fmt.Sprint(inner) {
					t.Fatalf("%v: packing changes the answer: %.200q, %.200q", r, got, inner)
				}
				want = append(want, got)
			}
		}
	}
	of := Kernel{Release: "6.18", Arch: "x86_64"}
	if err := w.Kallsyms(strings.NewReader("0 T _text\n"), of); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if s := w.Stats(); s.Binaries != 4 || s.Debug != 2 || !s.Kallsyms {
		t.Errorf("packed %+v", s)
	}
	a := open(t, out.Bytes())
	got := a.Openers()
	n := 0
	for _, r := range refs {
		r.ref.PID = 99 // another process had it in another report
		for i, o := range got {
			answers := query(t, o, r.ref, r.link)
			for k := range answers {
				if answers[k] != want[n][k] && !knownByID(answers[k], want[n][k], r.ref.BuildID) {
					t.Errorf("%v of opener %d, question %d: %.60q, want %.60q", r.ref, i, k, answers[k], want[n][k])
				}
			}
			n++
		}
	}
	// By its id alone, at a path that no report asked for.
	if f, size, err := got[0].Open(symbol.Ref{BuildID: other, Path: "/elsewhere"}); content(t, f, size, err) != string(testutil.TinyELF("idofother", "right")) {
		t.Errorf("by id alone: %v", err)
	}
	if k := a.Kernel(); k != of {
		t.Errorf("symbols of kernel %+v, want %+v", k, of)
	}
	if b, err := a.Kallsyms(); err != nil || string(b) != "0 T _text\n" {
		t.Errorf("%q, %v", b, err)
	}
	f, size, err := a.Recording()
	if content(t, f, size, err) != "PERFILE2" {
		t.Error("the recording came back changed")
	}
}

// knownByID: where an opener had nothing, or another file, the archive may have
// the one with the wanted id.
func knownByID(got, want string, id buildid.ID) bool {
	has := func(s string) bool { return buildid.Check(strings.NewReader(s), int64(len(s)), id) == nil }
	return !id.IsZero() && has(got) && !has(want)
}

// TestPacksNoSecrets: a recording that somebody else wrote has paths to the
// files of who packs it. They are not programs, and are not packed.
func TestPacksNoSecrets(t *testing.T) {
	secret := []byte("root:$y$j9T$secret:19000:0:99999:7:::\n")
	var out bytes.Buffer
	w := NewWriter(&out)
	if err := w.Recording(strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	o := w.Openers([]symbol.Opener{fake{"open /etc/shadow": secret, "link /etc/shadow": secret}})[0]
	query(t, o, symbol.Ref{Path: "/etc/shadow"}, "/etc/shadow")
	query(t, o, symbol.Ref{Path: "/etc/shadow", BuildID: newID(t, "some id")}, "/etc/shadow")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	a := open(t, out.Bytes())
	if len(a.answers) != 0 || len(a.parts) != 2 {
		t.Errorf("packed %v", a.answers)
	}
}

// zipOf makes a zip file of parts; a part "name@size" lies about its size.
func zipOf(t testing.TB, parts ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for i := 0; i+1 < len(parts); i += 2 {
		name, lie, lies := strings.Cut(parts[i], "@")
		var err error
		var w io.Writer
		if lies {
			h := &zip.FileHeader{Name: name, CompressedSize64: uint64(len(parts[i+1]))}
			fmt.Sscan(lie, &h.UncompressedSize64)
			w, err = z.CreateRaw(h)
		} else {
			w, err = z.Create(name)
		}
		if err == nil {
			_, err = io.WriteString(w, parts[i+1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func manifestOf(answers string) string {
	return `{"version":1,"openers":1,"answers":[` + answers + `]}`
}

func TestOpenRefuses(t *testing.T) {
	rec := []string{"perf.data", "x"}
	for what, tc := range map[string]struct {
		parts []string
		want  error
	}{
		"nothing":                       {nil, ErrNotArchive},
		"no recording":                  {[]string{"gantry.json", manifestOf("")}, ErrNotArchive},
		"no answers":                    {rec, ErrNotArchive},
		"two recordings":                {append(rec, "perf.data", "y", "gantry.json", manifestOf("")), ErrNotArchive},
		"answers that are no JSON":      {append(rec, "gantry.json", "{"), nil},
		"a version to come":             {append(rec, "gantry.json", `{"version":2}`), nil},
		"so many openers":               {append(rec, "gantry.json", `{"version":1,"openers":1000000000}`), ErrTooLarge},
		"fewer openers than none":       {append(rec, "gantry.json", `{"version":1,"openers":-1}`), ErrTooLarge},
		"a part that is not there":      {append(rec, "gantry.json", manifestOf(`{"file":"/etc/shadow"}`)), nil},
		"an opener that is not there":   {append(rec, "gantry.json", manifestOf(`{"opener":1,"file":"perf.data"}`)), nil},
		"answers that claim to be huge": {append(rec, "gantry.json@99999999999", manifestOf("")), ErrTooLarge},
		"so many answers":               {append(rec, "gantry.json", manifestOf(strings.Repeat("{},", maxAnswers)+"{}")), ErrTooLarge},
		"answers that are no list":      {append(rec, "gantry.json", `{"version":1,"openers":1,"answers":{}}`), nil},
		"answers that are cut off":      {append(rec, "gantry.json@1000", manifestOf("")), nil},
	} {
		b := zipOf(t, tc.parts...)
		if _, err := Open(bytes.NewReader(b), int64(len(b))); err == nil || tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, b := range []string{"", Magic, "PERFILE2 and so on", strings.Repeat(Magic, 1000)} {
		if _, err := Open(strings.NewReader(b), int64(len(b))); !errors.Is(err, ErrNotArchive) {
			t.Errorf("%.20q: %v", b, err)
		}
	}
}

// TestVDSO: a recording of several kernels' vdso has one answer each time.
func TestVDSO(t *testing.T) {
	answers, want := "", newID(t, "id 0")
	for i := range 8 {
		answers += fmt.Sprintf(`{"kind":"binary","build_id":"%s","path":"[vdso]","file":"perf.data"},`, newID(t, fmt.Sprint("id ", i)))
	}
	b := zipOf(t, "perf.data", "x", "gantry.json", manifestOf(strings.TrimSuffix(answers, ",")))
	for range 8 {
		if got := open(t, b).VDSO(); got != want {
			t.Fatalf("the vdso is %v, want the first one, %v", got, want)
		}
	}
}

// TestHostileParts: parts that are not what the answers say, or unpack to more
// than they may. Nothing is left behind.
func TestHostileParts(t *testing.T) {
	tmp := filepath.Join(t.TempDir(), "in", "here") // ../../x is the test's own too
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", tmp)
	id := newID(t, "idofapp")
	answer := fmt.Sprintf(`{"opener":0,"kind":"binary","build_id":"%s","path":"/app","file":"../../x"}`, id)
	ref := symbol.Ref{BuildID: id, Path: "/app"}
	for what, tc := range map[string]struct {
		name, part string
		want       error
	}{
		"another file":      {"../../x", string(testutil.TinyELF("another", "")), symbol.ErrMismatch},
		"no ELF file":       {"../../x", "#!/bin/sh", nil},
		"much too large":    {"../../x@99999999999999", "x", ErrTooLarge},
		"cut off":           {"../../x@100000", "x", nil},
		"cut off and large": {"../../x@2000000", "x", nil},
	} {
		a := open(t, zipOf(t, "perf.data", "x", tc.name, tc.part, "gantry.json", manifestOf(answer)))
		f, _, err := a.Openers()[0].Open(ref)
		if err == nil {
			f.Close()
		}
		if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	a := open(t, zipOf(t, "perf.data", "x", "../../x", string(testutil.TinyELF("idofapp", strings.Repeat("x", 2*smallPart))), "gantry.json", manifestOf(answer)))
	f, size, err := a.Openers()[0].Open(ref)
	if err != nil || size < 2*smallPart {
		t.Fatalf("a name that looks like a path: %d, %v", size, err)
	}
	f.Close()
	// 1 GiB and a byte is more than 200 times this archive.
	a = open(t, zipOf(t, "perf.data@1073741825", "x", "gantry.json", manifestOf("")))
	if _, _, err := a.Recording(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a recording out of nothing: %v", err)
	}
	if _, err := a.Kallsyms(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no kernel: %v", err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := os.Lstat(filepath.Join(tmp, "../../x")); err == nil {
		t.Error("a part was written where its name leads")
	}
}

// TestWriterFails: an archive that could not be written says so at the end.
func TestWriterFails(t *testing.T) {
	full := errors.New("no space left")
	w := NewWriter(failing{full})
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(i * i >> 3)
	}
	err := w.Recording(bytes.NewReader(noise))
	if e := w.Close(); !errors.Is(errors.Join(err, e), full) {
		t.Errorf("%v, then %v", err, e)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func FuzzOpen(f *testing.F) {
	id := "6964"
	f.Add(zipOf(f, "perf.data", "PERFILE2", "debug/.build-id/69/64/elf", string(testutil.TinyELF("id", "")), "kallsyms", "0 T x\n",
		"gantry.json", manifestOf(`{"kind":"binary","build_id":"`+id+`","path":"/a","file":"debug/.build-id/69/64/elf"}`)))
	f.Add(zipOf(f, "perf.data@100", "x", "gantry.json", manifestOf("")))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		if r, size, err := a.Recording(); err == nil {
			if n, err := io.Copy(io.Discard, r); n != size || err != nil {
				t.Fatalf("%d bytes of %d, %v", n, size, err)
			}
			r.Close()
		}
		openers := a.Openers()
		for q := range a.answers {
			ref := symbol.Ref{BuildID: q.BuildID, Path: q.Path, Inode: q.Inode, MountNS: q.MountNS}
			file, size, err := openers[q.Opener].Open(ref)
			if err != nil {
				continue
			}
			if !q.BuildID.IsZero() && buildid.Check(file, size, q.BuildID) != nil {
				t.Fatalf("%v: another file", q)
			}
			file.Close()
		}
	})
}
