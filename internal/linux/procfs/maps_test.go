// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// format writes m as the kernel's show_map_vma does.
func (m *Mapping) format() string {
	perms := []byte("----")
	for i, p := range [3]Prot{ProtRead, ProtWrite, ProtExec} {
		if m.Prot&p != 0 {
			perms[i] = "rwx"[i]
		}
	}
	perms[3] = 'p'
	if m.Shared {
		perms[3] = 's'
	}
	head := fmt.Sprintf("%08x-%08x %s %08x %02x:%02x %d ", m.Start, m.End, perms, m.Offset, m.DevMajor, m.DevMinor, m.Inode)
	if m.Path == "" {
		return head + "\n"
	}
	return fmt.Sprintf("%-73s%s\n", head, strings.ReplaceAll(m.Path, "\n", `\012`))
}

func parseMaps(text []byte) ([]Mapping, error) {
	var out []Mapping
	s := NewMapsScanner()
	s.Reset(bytes.NewReader(text))
	for s.Scan() {
		out = append(out, *s.Mapping())
	}
	if s.Err() != nil {
		return nil, s.Err()
	}
	return out, nil
}

func TestMaps(t *testing.T) {
	const text = "00400000-004df000 r-xp 00000000 08:01 1234 /bin/a b\n" +
		"7ffc1000-7ffc2000 rw-p 00000000 00:00 0 \n" +
		"7ffc2000-7ffc3000 rw-p 00000000 00:00 0                          [stack]\n" +
		"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n" +
		"7f000000-7f001000 rwxs fffffffffffff000 103:fffff 18446744073709551615 /x\\012y (deleted)\n"
	got, err := parseMaps([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []Mapping{
		{Start: 0x400000, End: 0x4df000, Prot: ProtRead | ProtExec, DevMajor: 8, DevMinor: 1, Inode: 1234, Path: "/bin/a b"},
		{Start: 0x7ffc1000, End: 0x7ffc2000, Prot: ProtRead | ProtWrite},
		{Start: 0x7ffc2000, End: 0x7ffc3000, Prot: ProtRead | ProtWrite, Path: "[stack]"},
		{Start: 0xffffffffff600000, End: 0xffffffffff601000, Prot: ProtExec, Path: "[vsyscall]"},
		{Start: 0x7f000000, End: 0x7f001000, Prot: 7, Shared: true, Offset: 0xfffffffffffff000,
			DevMajor: 0x103, DevMinor: 0xfffff, Inode: 1<<64 - 1, Path: "/x\ny (deleted)"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if p, del := got[4].Deleted(); p != "/x\ny" || !del {
		t.Errorf("%q %v", p, del)
	}
}

func TestMapsBad(t *testing.T) {
	good := "00400000-004df000 r-xp 00000000 08:01 1234 /bin/a"
	for i := range len(good) - len("1234 /bin/a") {
		if _, err := parseMaps([]byte(good[:i] + "\n")); !errors.Is(err, errMaps) {
			t.Errorf("%q: %v", good[:i], err)
		}
	}
	for _, bad := range []string{
		"2-1 r-xp 0 0:0 0", "0-00000000000000001 r-xp 0 0:0 0", "1-2 q-xp 0 0:0 0", "1-2 r-xq 0 0:0 0",
		"1-2 r-xp 0 0:0 18446744073709551616", "1-2 r-xp 0 100000000:0 0x",
	} {
		if got, err := parseMaps([]byte(bad)); !errors.Is(err, errMaps) {
			t.Errorf("%q: %v, %v", bad, got, err)
		}
	}
	if _, err := parseMaps(bytes.Repeat([]byte("a"), maxLine+1)); err == nil {
		t.Error("an endless line is taken")
	}
}

func TestMapsSelf(t *testing.T) {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		testutil.NotHere(t, "needs procfs: %v", err)
	}
	list, err := parseMaps(text)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for i := range list {
		b.WriteString(list[i].format())
	}
	if diff := cmp.Diff(string(text), b.String()); diff != "" {
		t.Error(diff)
	}
	n := 0
	if err := New("").Self().Maps(NewMapsScanner(), func(*Mapping) error { n++; return nil }); err != nil || n < 5 {
		t.Errorf("%d mappings, %v", n, err)
	}
}

func TestMapsAllocs(t *testing.T) {
	text := mapsText(200)
	s := NewMapsScanner()
	r := bytes.NewReader(nil)
	scan := func() {
		r.Reset(text)
		s.Reset(r)
		for s.Scan() {
		}
	}
	scan()
	// The scanner of bufio is the one allocation of a file.
	if n := testing.AllocsPerRun(20, scan); n > 1 {
		t.Errorf("%v allocations for 200 known paths", n)
	}
}

func mapsText(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		m := Mapping{Start: 0x7f0000000000 + uint64(i)<<16, End: 0x7f0000008000 + uint64(i)<<16, Prot: ProtRead | ProtExec,
			Offset: 0x1000, DevMajor: 8, DevMinor: 1, Inode: uint64(1000 + i), Path: fmt.Sprintf("/usr/lib/x86_64-linux-gnu/lib%d.so.6", i/5)}
		b.WriteString(m.format())
	}
	return b.Bytes()
}

func BenchmarkMaps(b *testing.B) {
	text := mapsText(35)
	s := NewMapsScanner()
	r := bytes.NewReader(nil)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		r.Reset(text)
		s.Reset(r)
		for s.Scan() {
		}
	}
}

func FuzzMaps(f *testing.F) {
	f.Add([]byte("00400000-004df000 r-xp 00000000 08:01 1234 /bin/a b (deleted)\n7ffc1000-7ffc2000 rw-s 00000000 00:00 0 \n"))
	f.Add([]byte("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]"))
	f.Add(mapsText(3))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := parseMaps(text)
		if err != nil {
			return
		}
		var b bytes.Buffer
		for i := range list {
			b.WriteString(list[i].format())
		}
		again, err := parseMaps(b.Bytes())
		if err != nil {
			t.Fatalf("%q: %v", b.Bytes(), err)
		}
		if diff := cmp.Diff(list, again); diff != "" {
			t.Fatal(diff)
		}
	})
}
