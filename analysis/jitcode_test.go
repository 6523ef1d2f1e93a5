// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"bytes"
	endian "encoding/binary"
	"encoding/json"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// codeFiles has files by path, and perf maps by process or by id.
type codeFiles struct {
	files map[string][]byte
	maps  map[int32][]byte
	kept  map[buildid.ID][]byte
}

var _ symbol.PerfMapOpener = codeFiles{}

type bytesFile struct {
	*bytes.Reader
	io.Closer
}

func openBytes(b []byte) (symbol.File, int64, error) {
	if b == nil {
		return nil, 0, fs.ErrNotExist
	}
	return bytesFile{bytes.NewReader(b), io.NopCloser(nil)}, int64(len(b)), nil
}

func (c codeFiles) Open(ref symbol.Ref) (symbol.File, int64, error) {
	return openBytes(c.files[ref.Path])
}

func (c codeFiles) OpenPerfMap(ref symbol.Ref) (symbol.File, int64, error) {
	if b := c.kept[ref.BuildID]; b != nil {
		return openBytes(b)
	}
	return openBytes(c.maps[ref.PID])
}

// loadedCode is a jitdump with one function.
func loadedCode(name string, addr, size uint64) []byte {
	le := endian.LittleEndian
	b := le.AppendUint32(nil, 0x4A695444)
	b = le.AppendUint32(le.AppendUint32(b, 1), 40)
	b = append(b, make([]byte, 28)...)
	b = le.AppendUint32(le.AppendUint32(b, 0), uint32(16+40+len(name)+1))
	b = append(b, make([]byte, 8+16)...)
	for _, v := range []uint64{addr, size, 1} {
		b = le.AppendUint64(b, v)
	}
	return append(append(b, name...), 0)
}

// Code in memory has the names that its process wrote down: in a perf map, in a
// jitdump, or in what the recorder has kept.
func TestGeneratedCode(t *testing.T) {
	id, err := buildid.New(append([]byte("gntc"), make([]byte, 16)...))
	if err != nil {
		t.Fatal(err)
	}
	from := codeFiles{
		files: map[string][]byte{"/srv/jit-2.dump": loadedCode("dumped", 0x10000, 0x100), "/srv/jit-4.dump": []byte("none")},
		maps:  map[int32][]byte{1: []byte("10010 10 mapped one\n10020 10 _ZN3foo3barEv\nnonsense\n"), 3: []byte("10010 10 of another\n"), 6: []byte("10010 10 of .NET\n")},
		kept:  map[buildid.ID][]byte{id: []byte("10010 20 kept\n")},
	}
	r := newRecording(t, 0)
	for pid := int32(1); pid <= 5; pid++ {
		r.add(comm(pid, "jit"), mapped(pid, 0x10000, "//anon", buildid.ID{}))
	}
	r.add(comm(6, "dotnet"), mapped(6, 0x10000, "/memfd:doublemapper (deleted)", buildid.ID{}))
	r.add(mapped(2, 0x900000, "/srv/jit-2.dump", buildid.ID{}), mapped(4, 0x900000, "/srv/jit-4.dump", buildid.ID{}))
	r.add(sample(1, 0x10015), sample(1, 0x10020), sample(1, 0x10030), sample(2, 0x10015), sample(3, 0x10015), sample(4, 0x10015), sample(5, 0x10015), sample(6, 0x10015))
	s := r.open(&perfdata.Features{BuildIDs: []perfdata.BuildIDEntry{{PID: -1, ID: id.Bytes(), Path: "/tmp/perf-3.map"}}},
		&Options{Binaries: []symbol.Opener{from}})
	var got []Location
	for {
		it, err := s.Next()
		if err != nil {
			break
		}
		if it.Sample != nil {
			got = append(got, s.Locate(it.Thread, it.Sample.IP, false))
		}
	}
	want := []struct {
		name, source, dso string
		offset            uint64
	}{
		{"mapped one", "perf-map", "[JIT] tid 1", 5},
		{"foo::bar", "perf-map", "[JIT] tid 1", 0},
		{"", "", "[JIT] tid 1", 0},
		{"dumped", "jitdump", "[JIT] tid 2", 0x15},
		{"kept", "perf-map", "[JIT] tid 3", 5},
		{"", "", "[JIT] tid 4", 0},
		{"", "", "[JIT] tid 5", 0},
		{"of .NET", "perf-map", "[JIT] tid 6", 5},
	}
	for i, w := range want {
		if g := got[i]; g.Name != w.name || g.Source != w.source || g.DSO != w.dso || g.Offset != w.offset {
			t.Errorf("sample %d: %+v, want %+v", i, g, w)
		}
	}
	if n := len(s.Unresolved()); n != 2 {
		t.Errorf("%d processes without names: %v", n, s.Unresolved())
	}
	if w := s.Warnings(); !slices.ContainsFunc(w, func(line string) bool { return strings.Contains(line, "1 entries of perf maps") }) {
		t.Errorf("a line that makes no sense is not told: %q", w)
	}
}

// Of two processes that had one number, each in a mount namespace of its own, one
// does not get the names of the other.
func TestGeneratedCodeOfOneNumber(t *testing.T) {
	id, err := buildid.New(append([]byte("gntc"), make([]byte, 16)...))
	if err != nil {
		t.Fatal(err)
	}
	from := codeFiles{kept: map[buildid.ID][]byte{id: []byte("10010 20 kept\n")}}
	for _, mnt := range []uint64{12, 22} {
		table, err := new(container.Table).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		section := make(map[string]json.RawMessage)
		if err := json.Unmarshal(table, &section); err != nil {
			t.Fatal(err)
		}
		if section["files"], err = json.Marshal(buildid.MappedFiles{{ID: id, Path: "/tmp/perf-9.map", MountNS: mnt}}); err != nil {
			t.Fatal(err)
		}
		gantry, err := json.Marshal(section)
		if err != nil {
			t.Fatal(err)
		}
		r := newRecording(t, 0)
		for _, links := range [][]perf.NSLink{nsLinks(11, 12), nsLinks(21, 22)} {
			r.add(comm(9, "jit"), &perf.Namespaces{PID: 9, TID: 9, Links: links}, mapped(9, 0x10000, "//anon", buildid.ID{}), sample(9, 0x10015),
				&perf.Exit{Task: perf.Task{PID: 9, TID: 9}})
		}
		s := r.open(&perfdata.Features{Gantry: gantry,
			BuildIDs: []perfdata.BuildIDEntry{{PID: -1, ID: id.Bytes(), Path: "/tmp/perf-9.map"}}}, &Options{Binaries: []symbol.Opener{from}})
		var got []string
		for {
			it, err := s.Next()
			if err != nil {
				break
			}
			if it.Sample != nil {
				got = append(got, s.Locate(it.Thread, it.Sample.IP, false).Name)
			}
		}
		want := []string{"kept", ""}
		if mnt == 22 {
			want = []string{"", "kept"}
		}
		if !slices.Equal(got, want) {
			t.Errorf("of mount namespace %d: %q, want %q", mnt, got, want)
		}
	}
}
