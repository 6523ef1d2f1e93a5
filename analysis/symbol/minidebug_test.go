// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ulikunitz/xz"
)

// packXZ packs b, with a dictionary of the given size.
func packXZ(t testing.TB, b []byte, dict int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := xz.WriterConfig{DictCap: dict, BlockSize: 1 << 16}.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// withSection is a copy of a program with one more section.
func withSection(t *testing.T, program []byte, name string, content []byte) []byte {
	t.Helper()
	dir := t.TempDir()
	in, sec, out := filepath.Join(dir, "in"), filepath.Join(dir, "section"), filepath.Join(dir, "out")
	for path, b := range map[string][]byte{in: program, sec: content} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := exec.Command("objcopy", "--add-section", name+"="+sec, in, out).CombinedOutput(); err != nil {
		t.Fatalf("objcopy: %v\n%s", err, text)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestMiniDebugInfo(t *testing.T) {
	path, bare, debug := split(t)
	want := symbols(mustReadELF(t, path))
	mini := withSection(t, bare, ".gnu_debugdata", packXZ(t, debug, 1<<23))
	o, err := ReadELF(bytes.NewReader(mini), int64(len(mini)))
	if err != nil {
		t.Fatal(err)
	}
	if got := symbols(o); len(got) != len(want) || got[0] != want[0] || !hasSource(o, fromMini) {
		t.Fatalf("%d symbols, the whole program has %d", len(got), len(want))
	}
	// What is broken adds nothing, and breaks nothing.
	alone, err := ReadELF(bytes.NewReader(bare), int64(len(bare)))
	if err != nil {
		t.Fatal(err)
	}
	packed := packXZ(t, debug, 1<<23)
	for name, content := range map[string][]byte{
		"empty": {0}, "text": []byte("hello"), "truncated": packed[:len(packed)/2], "no ELF": packXZ(t, []byte("hello"), 1<<20),
	} {
		b := withSection(t, bare, ".gnu_debugdata", content)
		o, err := ReadELF(bytes.NewReader(b), int64(len(b)))
		if err != nil || o.Len() != alone.Len() || hasSource(o, fromMini) {
			t.Errorf("%s: %v, want the %d symbols of the program", name, err, alone.Len())
		}
	}
}

// hasSource reports whether o has names from there.
func hasSource(o *Object, from uint16) bool {
	if o.sources == nil {
		return o.source == from
	}
	return slices.Contains(o.sources, from)
}

func TestUnpackXZ(t *testing.T) {
	text := []byte(strings.Repeat("all work and no play ", 20_000)) // several blocks
	packed := packXZ(t, text, 1<<20)
	got, err := unpackXZ(packed, len(text))
	if err != nil || !bytes.Equal(got, text) {
		t.Fatalf("%d bytes, %v; want %d", len(got), err, len(text))
	}
	if _, err := unpackXZ(packed, len(text)-1); err == nil {
		t.Error("no error above the limit")
	}
	for n := range len(packed) / 2 {
		if b, err := unpackXZ(packed[:n], len(text)); err == nil {
			t.Fatalf("%d of %d bytes unpack to %d", n, len(packed), len(b))
		}
	}
	// As the tool writes it, with a dictionary of 4 GiB claimed.
	if tool, err := exec.LookPath("xz"); err == nil {
		cmd := exec.Command(tool, "-9", "-c")
		cmd.Stdin = bytes.NewReader(text)
		packed, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		packed[xzHeaderSize+4] = 40 // the size of the dictionary
		if got, err := unpackXZ(packed, len(text)); err != nil || !bytes.Equal(got, text) {
			t.Errorf("xz -9: %d bytes, %v", len(got), err)
		}
	}
}

// linkFiles has files by path for .gnu_debuglink.
type linkFiles struct {
	memFiles
	asked []string
}

var _ LinkOpener = (*linkFiles)(nil)

func (l *linkFiles) OpenLink(_ Ref, path string) (File, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, path)
	b, ok := l.files[path]
	if !ok {
		return nil, 0, fs.ErrNotExist
	}
	l.open++
	return &memFile{bytes.NewReader(b), &l.memFiles}, int64(len(b)), nil
}

// link is the content of a .gnu_debuglink.
func link(name string, crc uint32) []byte {
	b := append([]byte(name), 0)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return binary.LittleEndian.AppendUint32(b, crc)
}

func TestDebugLink(t *testing.T) {
	path, bare, debug := split(t)
	want := mustReadELF(t, path).Len()
	crc := crc32.ChecksumIEEE(debug)
	linked := withSection(t, bare, ".gnu_debuglink", link("app.debug", crc))
	alone, err := ReadELF(bytes.NewReader(bare), int64(len(bare)))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		place string
		file  []byte
		want  int
	}{
		{"/opt/app.debug", debug, want},
		{"/opt/.debug/app.debug", debug, want},
		{"/usr/lib/debug/opt/app.debug", debug, want},
		{"/usr/lib/debug/app.debug", debug, alone.Len()},
		{"/opt/app.debug", append(bytes.Clone(debug), 0), alone.Len()}, // another checksum
		{"/opt/app.debug", nil, alone.Len()},
	} {
		files := &linkFiles{memFiles: memFiles{files: map[string][]byte{"/opt/app": linked, tt.place: tt.file}}}
		o, err := NewResolver(files).Object(Ref{Path: "/opt/app"})
		if err != nil || o.Len() != tt.want || files.open != 0 || hasSource(o, fromDebugFile) != (tt.want == want) {
			t.Errorf("%s: %d symbols, %v, %d files open; want %d symbols", tt.place, o.Len(), err, files.open, tt.want)
		}
	}
	// A name that is a path leads nowhere.
	for _, name := range []string{"../../etc/shadow", "/etc/shadow", "..", ".", "/", ""} {
		b := withSection(t, bare, ".gnu_debuglink", link(name, crc))
		files := &linkFiles{memFiles: memFiles{files: map[string][]byte{"/opt/app": b}}}
		if _, err := NewResolver(files).Object(Ref{Path: "/opt/app"}); err != nil || len(files.asked) > 0 {
			t.Errorf("%q: asked for %q, %v", name, files.asked, err)
		}
	}
}

// FuzzXZ checks that what is unpacked is within the limit, and that the
// reference reader agrees on what it takes.
func FuzzXZ(f *testing.F) {
	f.Add(packXZ(f, []byte(strings.Repeat("gantry ", 100)), 1<<16))
	f.Fuzz(func(t *testing.T, b []byte) {
		const limit = 1 << 12
		got, err := unpackXZ(b, limit)
		if len(got) > limit || err != nil && got != nil {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		if len(b) < 20 || b[xzHeaderSize] != 2 || b[xzHeaderSize+4] > 20 {
			return // a dictionary that the reference makes room for
		}
		r, e := xz.ReaderConfig{SingleStream: true}.NewReader(bytes.NewReader(b))
		if e != nil || err != nil {
			return
		}
		if want, err := io.ReadAll(io.LimitReader(r, limit+1)); err == nil && !bytes.Equal(got, want) {
			t.Fatalf("%q, the reference reads %q", got, want)
		}
	})
}
