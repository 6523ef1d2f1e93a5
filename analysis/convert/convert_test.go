// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

const (
	idA, idB = "AAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBB"
	hexA     = "4141414141414141414141414141414141414141"
	hexB     = "4242424242424242424242424242424242424242"
)

// fake is an opener with files by build-id.
type fake map[string][]byte

type memory struct{ *bytes.Reader }

func (memory) Close() error { return nil }

func (f fake) Open(ref symbol.Ref) (symbol.File, int64, error) {
	b, ok := f[ref.BuildID.String()]
	if !ok {
		return nil, 0, fs.ErrNotExist
	}
	return memory{bytes.NewReader(b)}, int64(len(b)), nil
}

func mmap2(pid int32, addr uint64, id, path string) *perf.Mmap2 {
	m := &perf.Mmap2{PID: pid, TID: pid, Addr: addr, Len: 0x1000, Prot: 5, Filename: path, Ino: 77, Maj: 8}
	m.Misc = perf.MiscUser
	if id != "" {
		m.Misc |= perf.MiscMmapBuildID
		m.Ino, m.Maj, m.BuildID = 0, 0, []byte(id)
	}
	return m
}

func data(m *perf.Mmap2) *perf.Mmap2 {
	m.Misc |= perf.MiscMmapData
	m.Prot = 1
	return m
}

func mmap(pid int32, misc perf.Misc, path string) *perf.Mmap {
	m := &perf.Mmap{PID: pid, TID: pid, Addr: 0x9000, Len: 0x1000, Filename: path}
	m.Misc = misc
	return m
}

// record makes a recording of two processes with different programs at one path.
func record(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ev := perf.NewEvent(perf.Attr{
		Type: perf.TypeSoftware, Config: perf.SWCPUClock, SampleCount: 1000, Flags: perf.AttrSampleIDAll | perf.AttrBuildID,
		SampleType: perf.SampleIdentifier | perf.SampleIP | perf.SampleTID | perf.SampleTime,
	}, "cpu-clock", 7)
	w, err := perfdata.NewWriter(f, []*perf.Event{ev}, &perfdata.WriterOptions{Compress: 1})
	if err != nil {
		t.Fatal(err)
	}
	now := uint64(1000)
	for _, rec := range []perf.Record{
		mmap(-1, perf.MiscKernel, "/lib/modules/a.ko"),
		data(mmap2(1, 0x1000, idA, "/app/server")), mmap2(1, 0x2000, idA, "/app/server"),
		data(mmap2(2, 0x1000, idB, "/app/server")), mmap2(2, 0x2000, idB, "/app/server"),
		mmap2(2, 0x4000, idA, "/app/copy"), mmap2(2, 0x5000, "", "//anon"), mmap2(2, 0x6000, idB, "/not/sampled"),
		mmap(2, perf.MiscUser, "/old/form"),
		&perf.Sample{PID: 1, TID: 1, IP: 0x2100}, &perf.Sample{PID: 2, TID: 2, IP: 0x2100}, &perf.Sample{PID: 2, TID: 2, IP: 0x4100},
		&perf.Sample{PID: 2, TID: 2, IP: 0x9100},
	} {
		now += 1000
		if s, ok := rec.(*perf.Sample); ok {
			s.ID, s.Time, s.Misc = 7, now, perf.MiscUser
		} else if sid := perf.SampleIDOf(rec); sid != nil {
			sid.ID, sid.Time = 7, now
		}
		if err := w.WriteRecord(rec, ev); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(&perfdata.Features{Hostname: "here"}); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, name string) *perfdata.Reader {
	t.Helper()
	r, err := perfdata.Open(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// add copies the binaries of a recording to a directory.
func add(t *testing.T, name, dir string) (*Binaries, error) {
	t.Helper()
	b, err := NewBinaries(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	s := analysis.NewSession(open(t, name), &analysis.Options{Binaries: []symbol.Opener{fake{hexA: testutil.TinyELF(idA, ""), hexB: []byte("no ELF file")}}})
	if _, err := s.Collect(analysis.CollectOptions{Symbols: true, Stacks: true, Addresses: true}); err != nil {
		t.Fatal(err)
	}
	return b, b.Add(s)
}

func TestWrite(t *testing.T) {
	tmp := t.TempDir()
	in, out, dir := filepath.Join(tmp, "in.data"), filepath.Join(tmp, "out.data"), filepath.Join(tmp, "out.d")
	record(t, in)
	b, err := add(t, in, dir)
	if err != nil {
		t.Fatal(err)
	}
	if n := b.Stats(); n.Binaries != 2 || n.Missing != 2 || n.Debug != 0 {
		t.Errorf("%+v", n)
	}
	f, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if warnings, err := Write(f, open(t, in), b); err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	serverA, serverB := filepath.Join(dir, hexA, "server"), filepath.Join(dir, hexB, "server")
	want := []string{"/lib/modules/a.ko", serverA, serverA, serverB, serverB, filepath.Join(dir, hexA, "copy"), "//anon", "/not/sampled", filepath.Join(dir, "file-6", "form")}
	r := open(t, out)
	got, samples, numbers := paths(t, r)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
	if samples != 4 {
		t.Errorf("%d samples", samples)
	}
	if len(numbers) != 3 {
		t.Errorf("inodes of files: %v", numbers)
	}
	if feats := r.Features(); feats.Hostname != "here" || feats.Compressed != nil || len(feats.BuildIDs) != 2 ||
		feats.BuildIDs[0].Path != serverA || string(feats.BuildIDs[0].ID) != idA {
		t.Errorf("%+v", feats)
	}
	if got, err := os.ReadFile(serverA); err != nil || !bytes.Equal(got, testutil.TinyELF(idA, "")) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := os.Stat(serverB); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is no ELF file was copied: %v", err)
	}
}

// paths are those of all mappings, with the inodes of those that have a new one.
func paths(t *testing.T, r *perfdata.Reader) (list []string, samples int, inodes map[uint64]bool) {
	t.Helper()
	inodes = make(map[uint64]bool)
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list, samples, inodes
		}
		if err != nil {
			t.Fatal(err)
		}
		other, err := perf.Decode(rec.Raw, r.Order(), rec.Event)
		if err != nil {
			t.Fatal(err)
		}
		switch m := other.(type) {
		case *perf.Sample:
			samples++
		case *perf.Mmap:
			list = append(list, m.Filename)
		case *perf.Mmap2:
			list = append(list, m.Filename)
			if rec.Misc&perf.MiscMmapBuildID != 0 {
				t.Errorf("%s has a build-id", m.Filename)
			}
			if m.Ino != 77 && m.Ino != 0 {
				inodes[m.Ino] = true
			}
		}
	}
}

// A link that somebody has put into the directory leads nowhere.
func TestLinkedDirectory(t *testing.T) {
	tmp := t.TempDir()
	in, dir, outside := filepath.Join(tmp, "in.data"), filepath.Join(tmp, "out.d"), filepath.Join(tmp, "outside")
	record(t, in)
	for _, d := range []string{dir, outside} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(dir, hexA)); err != nil {
		t.Fatal(err)
	}
	if _, err := add(t, in, dir); err == nil {
		t.Error("no error")
	}
	if list, err := os.ReadDir(outside); err != nil || len(list) > 0 {
		t.Errorf("written outside: %v, %v", list, err)
	}
}

func TestBaseName(t *testing.T) {
	for name, want := range map[string]string{
		"/usr/bin/app": "app", "/memfd:x (deleted)": "memfd:x (deleted)", "/a/..": "_", "/": "_", "/a/.hidden": "_hidden",
		"/a/b\nc\x7f": "b_c_", "/" + strings.Repeat("x", 300): strings.Repeat("x", 200), "/a/\xff": "\uFFFD",
	} {
		if got := baseName(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// A file that ends before its size is not copied.
func TestCopyShort(t *testing.T) {
	b, err := NewBinaries(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.copy("id/app", strings.NewReader("short"), 10); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(b.dir, "id")); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
