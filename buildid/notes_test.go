// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

var testID = bytes.Repeat([]byte{0xab, 0x01, 0xcd, 0xef}, 5)

// appendNote adds an ELF note as a linker writes it.
func appendNote(b []byte, order binary.ByteOrder, align int, owner string, typ uint32, desc []byte) []byte {
	var h [noteHeaderSize]byte
	order.PutUint32(h[0:], uint32(len(owner)))
	order.PutUint32(h[4:], uint32(len(desc)))
	order.PutUint32(h[8:], typ)
	pad := func() {
		for len(b)%align != 0 {
			b = append(b, 0)
		}
	}
	b = append(b, h[:]...)
	b = append(b, owner...)
	pad()
	b = append(b, desc...)
	pad()
	return b
}

// elfSpec describes a file for makeELF.
type elfSpec struct {
	order    binary.ByteOrder
	is64     bool
	sections bool // notes in a section, else in a segment
	align    int
	notes    []byte
}

// makeELF writes an ELF file with one program or section header, which is that
// of the notes.
func makeELF(s elfSpec) []byte {
	ident := []byte{0x7f, 'E', 'L', 'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	if s.is64 {
		ident[4] = 2
	}
	if s.order == binary.BigEndian {
		ident[5] = 2
	}
	size, entry := 52, 32
	if s.is64 {
		size, entry = 64, 56
	}
	if s.sections && s.is64 {
		entry = 64
	} else if s.sections {
		entry = 40
	}
	b := make([]byte, size+entry)
	copy(b, ident)
	word := func(at int, v uint64) {
		if s.is64 {
			s.order.PutUint64(b[at:], v)
		} else {
			s.order.PutUint32(b[at:], uint32(v))
		}
	}
	// Where elf.h has the table and its fields.
	at, counts, typ, note := 28, 42, 0, uint32(elf.PT_NOTE)
	offset, length, align := 4, 16, 28
	if s.is64 {
		at, counts, offset, length, align = 32, 54, 8, 32, 48
	}
	if s.sections {
		at, counts, typ, note = at+4, counts+4, 4, uint32(elf.SHT_NOTE)
		offset, length, align = 16, 20, 32
		if s.is64 {
			at, offset, length, align = at+4, 24, 32, 48
		}
	}
	word(at, uint64(size))
	s.order.PutUint16(b[counts:], uint16(entry))
	s.order.PutUint16(b[counts+2:], 1)
	s.order.PutUint32(b[size+typ:], note)
	word(size+offset, uint64(len(b)))
	word(size+length, uint64(len(s.notes)))
	word(size+align, uint64(s.align))
	return append(b, s.notes...)
}

func TestFromFile(t *testing.T) {
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		for _, is64 := range []bool{false, true} {
			for _, sections := range []bool{false, true} {
				for _, align := range []int{4, 8} {
					notes := appendNote(nil, order, align, "GNU\x00", 1, make([]byte, 13))
					notes = appendNote(notes, order, align, "Go\x00\x00", noteGoBuildID, []byte("a/b/c/d"))
					notes = appendNote(notes, order, align, "XYZ\x00", noteGNUBuildID, []byte("no"))
					notes = appendNote(notes, order, align, "GNU\x00", noteGNUBuildID, testID)
					b := makeELF(elfSpec{order: order, is64: is64, sections: sections, align: align, notes: notes})
					id, err := FromFile(bytes.NewReader(b), int64(len(b)))
					if err != nil || !bytes.Equal(id.Bytes(), testID) {
						t.Errorf("%v, 64 bit %v, sections %v, align %d: %v, %v", order, is64, sections, align, id, err)
					}
					text, err := GoFromFile(bytes.NewReader(b), int64(len(b)))
					if err != nil || text != "a/b/c/d" {
						t.Errorf("%v, 64 bit %v, sections %v, align %d: Go's is %q, %v", order, is64, sections, align, text, err)
					}
				}
			}
		}
	}
}

func TestFromFileErrors(t *testing.T) {
	le := binary.LittleEndian
	good := makeELF(elfSpec{order: le, is64: true, align: 4, notes: appendNote(nil, le, 4, "GNU\x00", noteGNUBuildID, testID)})
	for n := range good {
		id, err := FromFile(bytes.NewReader(good[:n]), int64(n))
		want := io.ErrUnexpectedEOF
		if n < len(elf.ELFMAG) {
			want = ErrNotELF
		}
		if !errors.Is(err, want) || !id.IsZero() {
			t.Fatalf("first %d bytes: %v, %v, want %v", n, id, err, want)
		}
	}
	none := makeELF(elfSpec{order: le, is64: true, align: 4, notes: appendNote(nil, le, 4, "GNU\x00", 1, nil)})
	if _, err := FromFile(bytes.NewReader(none), int64(len(none))); !errors.Is(err, ErrNoID) {
		t.Errorf("no build-id: %v", err)
	}
	long := appendNote(nil, le, 4, "GNU\x00", noteGNUBuildID, make([]byte, MaxSize+1))
	if id, err := gnuID(long, le, 4); err == nil {
		t.Errorf("%d bytes are taken for a build-id: %v", MaxSize+1, id)
	}
	huge := appendNote(nil, le, 4, "GNU\x00", noteGNUBuildID, testID)
	le.PutUint32(huge[4:], 1<<31)
	if _, err := gnuID(huge, le, 4); !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "offset 0x0") {
		t.Errorf("a note of 2 GB in %d bytes: %v", len(huge), err)
	}
}

func TestKernelNotes(t *testing.T) {
	b, err := os.ReadFile("/sys/kernel/notes")
	if err != nil {
		testutil.Lacks(t, "needs /sys/kernel/notes: %v", err)
	}
	id, err := FromKernelNotes(b)
	if err != nil {
		t.Fatal(err)
	}
	perf, err := exec.LookPath("perf")
	if err != nil {
		testutil.Lacks(t, "needs perf to compare: %v", err)
	}
	out, err := exec.Command(perf, "buildid-list", "--kernel").Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.TrimSpace(string(out)); id.String() != want {
		t.Errorf("kernel build-id %v, perf says %v", id, want)
	}
}

func TestGoProgram(t *testing.T) {
	goCmd, err := exec.LookPath("go")
	if err != nil {
		testutil.Lacks(t, "needs the go command: %v", err)
	}
	file := filepath.Join(t.TempDir(), "prog")
	src := file + ".go"
	if err := os.WriteFile(src, []byte("package main\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command(goCmd, "build", "-ldflags=-B 0x0123456789abcdef", "-o", file, src)
	build.Env = append(os.Environ(), "GOOS=linux", "GOFLAGS=", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	id, err := FromFile(bytes.NewReader(b), int64(len(b)))
	if err != nil || id.String() != "0123456789abcdef" {
		t.Errorf("GNU build-id %v, %v", id, err)
	}
	want, err := exec.Command(goCmd, "tool", "buildid", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	got, err := GoFromFile(bytes.NewReader(b), int64(len(b)))
	if err != nil || got != strings.TrimSpace(string(want)) {
		t.Errorf("Go build-id %q, %v, want %q", got, err, want)
	}
}

func TestID(t *testing.T) {
	id, err := Parse("ABcdef012345")
	if err != nil || id.String() != "abcdef012345" || id.Len() != 6 || id.IsZero() {
		t.Errorf("Parse: %v, %v", id, err)
	}
	for _, bad := range []string{"", "a", "xy", strings.Repeat("00", MaxSize+1)} {
		if id, err := Parse(bad); err == nil {
			t.Errorf("Parse(%q) = %v", bad, id)
		}
	}
	text, err := json.Marshal(map[string]ID{"id": id, "none": {}})
	if err != nil || string(text) != `{"id":"abcdef012345","none":""}` {
		t.Errorf("JSON %s, %v", text, err)
	}
	var back map[string]ID
	if err := json.Unmarshal(text, &back); err != nil || back["id"] != id || !back["none"].IsZero() {
		t.Errorf("from JSON %v, %v", back, err)
	}
}

func TestMatches(t *testing.T) {
	parse := func(s string) ID {
		id, err := Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	md5 := strings.Repeat("5a", 16)
	for _, tt := range []struct {
		a, b ID
		want bool
	}{
		{parse(md5), parse(md5), true},
		{parse(md5), parse(md5 + "00000000"), true}, // as in old perf.data
		{parse(md5 + "00000000"), parse(md5), true},
		{parse(md5), parse(md5 + "00000001"), false},
		{parse(md5), parse(md5 + "0000"), false},
		{parse(md5), ID{}, false},
		{ID{}, ID{}, false},
	} {
		if got := tt.a.Matches(tt.b); got != tt.want {
			t.Errorf("%v matches %v: %v", tt.a, tt.b, got)
		}
	}
}

// FuzzNotes checks on arbitrary bytes, taken as notes and as a file, that there
// is either an id or an error, and that an id survives being written again.
func FuzzNotes(f *testing.F) {
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		notes := appendNote(nil, order, 4, "GNU\x00", 1, make([]byte, 16))
		notes = appendNote(notes, order, 4, "GNU\x00", noteGNUBuildID, testID)
		f.Add(notes)
		f.Add(makeELF(elfSpec{order: order, is64: true, align: 8, notes: notes}))
		f.Add(makeELF(elfSpec{order: order, sections: true, align: 4, notes: notes}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
			id, err := gnuID(b, order, 4)
			checkID(t, id, err)
			if err != nil {
				continue
			}
			again, err := gnuID(appendNote(nil, order, 4, "GNU\x00", noteGNUBuildID, id.Bytes()), order, 4)
			if err != nil || again != id {
				t.Fatalf("%v written and read is %v, %v", id, again, err)
			}
		}
		id, err := FromFile(bytes.NewReader(b), int64(len(b)))
		checkID(t, id, err)
		text, err := GoFromFile(bytes.NewReader(b), int64(len(b)))
		if (text == "") == (err == nil) || len(text) > maxGoID {
			t.Fatalf("Go build-id of %d bytes and error %v", len(text), err)
		}
	})
}

func checkID(t *testing.T, id ID, err error) {
	t.Helper()
	if id.IsZero() == (err == nil) || id.Len() > MaxSize {
		t.Fatalf("id %v and error %v", id, err)
	}
}
