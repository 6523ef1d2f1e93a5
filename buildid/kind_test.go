// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const goText = "abcdefghij0123456789/ABCDEFGHIJ-_23456789/klmnopqrst0123456789/uvwxyzabcd0123456789"

// notesELF is a small file with these notes and something behind them.
func notesELF(tail string, notes ...[]byte) []byte {
	le := binary.LittleEndian
	return append(makeELF(elfSpec{order: le, is64: true, align: 4, notes: bytes.Join(notes, nil)}), tail...)
}

func gnuNote(id []byte) []byte {
	return appendNote(nil, binary.LittleEndian, 4, "GNU\x00", noteGNUBuildID, id)
}

func goNote(text string) []byte {
	return appendNote(nil, binary.LittleEndian, 4, "Go\x00\x00", noteGoBuildID, []byte(text))
}

func identify(t *testing.T, b []byte) ID {
	t.Helper()
	id, err := Identify(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestIdentify(t *testing.T) {
	fake := ID{raw: contentMark + strings.Repeat("x", hashSize)}
	for _, tc := range []struct {
		what string
		file []byte
		want Kind
	}{
		{"both notes", notesELF("", goNote(goText), gnuNote(testID)), KindGNU},
		{"Go's", notesELF("", goNote(goText)), KindGo},
		{"the same text in every program", notesELF("", goNote("redacted")), KindContent},
		{"a Go build-id without one hash", notesELF("", goNote(goText[:62])), KindContent},
		{"a letter that no hash has", notesELF("", goNote(strings.Replace(goText, "k", "+", 1))), KindContent},
		{"no notes", notesELF(""), KindContent},
		{"a note cut off", notesELF("", gnuNote(testID)[:20]), KindContent},
		{"a GNU build-id too short for the store", notesELF("", gnuNote([]byte{1})), KindContent},
		{"a GNU build-id in the form of a hash", notesELF("", gnuNote(fake.Bytes())), KindContent},
	} {
		id := identify(t, tc.file)
		if id.Kind() != tc.want || tc.want != KindGNU && id.Len() != recordSize {
			t.Errorf("%s: %v, a %v id", tc.what, id, id.Kind())
		}
		if id == fake {
			t.Errorf("%s: the file chose its own hash", tc.what)
		}
	}
	if (ID{}).Kind() != KindNone {
		t.Error("no id has a kind")
	}
	if _, err := Identify(strings.NewReader("#!/bin/sh and more"), 18); !errors.Is(err, ErrNotELF) {
		t.Errorf("script: %v", err)
	}
	if _, err := Identify(bytes.NewReader(notesELF("")), maxHashed+1); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a file that claims to be large: %v", err)
	}
	if _, err := Identify(bytes.NewReader(notesELF("")), 1<<20); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a file shorter than it claims to be: %v", err)
	}
}

// TestIdentifyContent: one byte anywhere makes another content id, and
// only the content.
func TestIdentifyContent(t *testing.T) {
	file := notesELF(strings.Repeat("code", 10_000))
	id := identify(t, file)
	if again := identify(t, bytes.Clone(file)); again != id {
		t.Errorf("%v, then %v", id, again)
	}
	file[20_000]++
	if other := identify(t, file); other == id || other.Kind() != KindContent {
		t.Errorf("the changed file is %v", other)
	}
	one, two := notesELF("one", goNote(goText)), notesELF("two", goNote(goText))
	if a, b := identify(t, one), identify(t, two); a != b {
		t.Errorf("stripping changes Go's id: %v, %v", a, b)
	}
	if a, b := identify(t, one), identify(t, notesELF("one", goNote(strings.Replace(goText, "u", "v", 1)))); a == b {
		t.Errorf("other hashes, same id %v", a)
	}
}

// TestIdentifyPrograms asks real linkers.
func TestIdentifyPrograms(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module example.com/p\ngo 1.26\n",
		"main.go": "package main\nfunc main() { println(1) }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for flags, want := range map[string]Kind{"-B=gobuildid": KindGNU, "-B=none": KindGo, "-B=none -buildid=": KindContent, "-B=none -buildid=same": KindContent} {
		out := filepath.Join(dir, "prog")
		cmd := exec.Command("go", "build", "-ldflags="+flags, "-o", out, ".")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOFLAGS=", "GOWORK=off")
		if msg, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, msg)
		}
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if id := identify(t, b); id.Kind() != want {
			t.Errorf("go build -ldflags='%s': %v is a %v id, want %v", flags, id, id.Kind(), want)
		}
	}
}

// TestStoreKinds keeps files of each kind, finds them, and notices that they
// were changed.
func TestStoreKinds(t *testing.T) {
	s, dir := newStore(t)
	for _, file := range [][]byte{notesELF("code", gnuNote(testID)), notesELF("code", goNote(goText)), notesELF("code")} {
		want := identify(t, file)
		id, err := s.Add(bytes.NewReader(file), Source{Path: "/app"})
		if err != nil || id != want {
			t.Fatalf("added %v, %v, want %v", id, err, want)
		}
		if got := mustLookup(t, s, id); !bytes.Equal(got, file) {
			t.Errorf("%v came back changed", id)
		}
		if _, err := s.Add(strings.NewReader("\x7fELF no such file at all"), Source{Path: "/a", Want: ID{raw: id.raw + "x"}}); err == nil {
			t.Error("another file was taken")
		}
		if id.Kind() != KindContent {
			continue
		}
		name := filepath.Join(dir, linkOf(id), "elf")
		if err := os.Chmod(name, 0o600); err != nil {
			t.Fatal(err)
		}
		file[len(file)-1]++
		if err := os.WriteFile(name, file, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Lookup(id); !errors.Is(err, ErrMismatch) {
			t.Errorf("changed in its last byte: %v", err)
		}
		if _, _, err := s.Lookup(id); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it was not dropped: %v", err)
		}
	}
	if s.Dropped() != 1 {
		t.Errorf("%d dropped", s.Dropped())
	}
}

// imageELF is a file with a first segment at a high address and a note in it.
func imageELF(note []byte) []byte {
	le := binary.LittleEndian
	b := make([]byte, 64+2*56)
	copy(b, []byte{0x7f, 'E', 'L', 'F', 2, 1, 1})
	le.PutUint64(b[32:], 64)
	le.PutUint16(b[54:], 56)
	le.PutUint16(b[56:], 2)
	load, prog := b[64:], b[64+56:]
	const base = 0x400000
	le.PutUint32(load, uint32(elf.PT_LOAD))
	le.PutUint64(load[16:], base)
	le.PutUint32(prog, uint32(elf.PT_NOTE))
	le.PutUint64(prog[8:], 0xffff) // where the file has it does not count
	le.PutUint64(prog[16:], base+uint64(len(b)))
	le.PutUint64(prog[32:], uint64(len(note)))
	return append(b, note...)
}

func TestFromImage(t *testing.T) {
	img := imageELF(gnuNote(testID))
	id, err := FromImage(bytes.NewReader(img), int64(len(img)))
	if err != nil || !bytes.Equal(id.Bytes(), testID) {
		t.Errorf("%v, %v", id, err)
	}
	if _, err := FromImage(bytes.NewReader(img), int64(len(img)-1)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("not all is mapped: %v", err)
	}
	binary.LittleEndian.PutUint64(img[64+56+16:], 0x3fffff) // before the first mapping
	if _, err := FromImage(bytes.NewReader(img), int64(len(img))); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a note before the image: %v", err)
	}
	binary.LittleEndian.PutUint64(img[64+8:], 0x1000) // the first segment does not begin with the header
	if id, err := FromImage(bytes.NewReader(img), int64(len(img))); err == nil {
		t.Errorf("an image without a begin has id %v", id)
	}
}

func FuzzIdentify(f *testing.F) {
	f.Add(imageELF(gnuNote(testID)))
	f.Add(notesELF("x", goNote(goText)))
	f.Add(notesELF("x", gnuNote([]byte(contentMark+"0123456789abcdef"))))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		id, err := Identify(r, int64(len(b)))
		if (err == nil) == id.IsZero() {
			t.Fatalf("%v, %v", id, err)
		}
		if err == nil && Check(r, int64(len(b)), id) != nil {
			t.Fatalf("a file does not have its own id %v: %v", id, Check(r, int64(len(b)), id))
		}
		id, err = FromImage(r, int64(len(b)))
		checkID(t, id, err)
		if id.Kind() == KindGo || id.Kind() == KindContent {
			t.Fatalf("a file chose the hash %v", id)
		}
	})
}
