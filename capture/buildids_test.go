// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

func mmap2Raw(t *testing.T, misc perf.Misc) (raw []byte, plain, withIDs *perf.Event) {
	t.Helper()
	attr := perf.Attr{SampleType: baseSample, Flags: perf.AttrSampleIDAll}
	plain, withIDs = perf.NewEvent(attr, "x", 1), perf.NewEvent(inFile(attr), "x", 1)
	m := &perf.Mmap2{PID: 1, TID: 2, Addr: 3, Len: 4, PgOff: 5, Maj: 254, Min: 1, Ino: 77, InoGen: 8, Prot: 5, Flags: 2, Filename: "/bin/x"}
	raw, err := perf.Append(nil, m, nativeOrder, plain)
	if err != nil {
		t.Fatal(err)
	}
	nativeOrder.PutUint16(raw[4:], uint16(misc))
	return raw, plain, withIDs
}

func TestStamp(t *testing.T) {
	for _, misc := range []perf.Misc{perf.MiscUser, perf.MiscUser | perf.MiscMmapBuildID} {
		raw, _, ev := mmap2Raw(t, misc)
		id := []byte("0123456789abcdef")
		setBuildID(raw, id)
		rec, err := perf.Decode(raw, nativeOrder, ev)
		if err != nil {
			t.Fatal(err)
		}
		m := rec.(*perf.Mmap2)
		if !bytes.Equal(m.BuildID, id) || m.Prot != 5 || m.Filename != "/bin/x" || m.PgOff != 5 || m.Ino != 0 {
			t.Errorf("%+v", m)
		}
	}
}

// TestStampWithoutID: a bit that the kernel left from another recording goes.
func TestStampWithoutID(t *testing.T) {
	for _, id := range [][]byte{nil, make([]byte, 21)} {
		raw, _, ev := mmap2Raw(t, perf.MiscUser|perf.MiscMmapBuildID)
		setBuildID(raw, id)
		rec, err := perf.Decode(raw, nativeOrder, ev)
		if err != nil {
			t.Fatal(err)
		}
		if m := rec.(*perf.Mmap2); m.Ino != 77 || m.Maj != 254 || m.Misc != perf.MiscUser || m.BuildID != nil {
			t.Errorf("%+v", m)
		}
	}
	setBuildID(make([]byte, 40), []byte("x")) // a record that is none
}

// FuzzParseMapping: what is read in place is what the decoder reads.
func FuzzParseMapping(f *testing.F) {
	ev := perf.NewEvent(perf.Attr{SampleType: baseSample}, "x", 1)
	raw, err := perf.Append(nil, &perf.Mmap2{PID: 1, TID: 2, Addr: 3, Len: 4, Maj: 254, Ino: 77, InoGen: 8, Filename: "/bin/x"}, nativeOrder, ev)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw[perf.HeaderSize:])
	f.Add(raw[perf.HeaderSize:mmap2PathAt])
	f.Fuzz(func(t *testing.T, body []byte) {
		body = body[:min(len(body), 1<<15)&^7]
		raw := perf.Header{Type: perf.RecordMmap2, Size: uint16(perf.HeaderSize + len(body))}.Append(nil, nativeOrder)
		raw = append(raw, body...)
		m, ok := parseMapping(raw)
		rec, err := perf.Decode(raw, nativeOrder, ev)
		if !ok || err != nil {
			if ok {
				t.Errorf("read what the decoder refuses: %v", err)
			}
			return
		}
		got := m.record(string(m.path))
		want := *rec.(*perf.Mmap2)
		want.Trailer, want.TID, want.PgOff, want.Prot, want.Flags = perf.Trailer{}, want.PID, 0, 0, 0
		if !reflect.DeepEqual(*got, want) {
			t.Errorf("%+v, want %+v", *got, want)
		}
	})
}

// mapped maps a file and gives the record of that.
func mapped(t *testing.T, path string) *mapping {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err := syscall.Mmap(int(f.Fd()), 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(mem) })
	var m *mapping
	err = procfs.FS{}.Self().Maps(procfs.NewMapsScanner(), func(v *procfs.Mapping) error {
		if v.Path == path {
			m = &mapping{pid: int32(os.Getpid()), addr: v.Start, len: v.End - v.Start, maj: v.DevMajor, min: v.DevMinor, inode: v.Inode, path: []byte(path)}
		}
		return nil
	})
	if err != nil || m == nil {
		t.Fatalf("mapping of %s: %v, %v", path, m, err)
	}
	return m
}

// A file is asked about once, and again when it was written to: some rounds
// later, when known files are looked at.
func TestIdentifyKnownFile(t *testing.T) {
	testutil.Require(t, testutil.Tool("gcc"))
	var programs [2][]byte
	var ids [2][]byte
	for i := range programs {
		prog := testutil.CompileC(t, "int main(void) { return 0; }\n", fmt.Sprintf("-Wl,--build-id=0x%040d", i+1))
		var err error
		if programs[i], err = os.ReadFile(prog); err != nil {
			t.Fatal(err)
		}
		ids[i] = append(make([]byte, 19), byte(i+1))
	}
	path := filepath.Join(t.TempDir(), "prog")
	write := func(i int) {
		t.Helper()
		if err := os.WriteFile(path, programs[i], 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(0)
	m := mapped(t, path)
	x := newBuildIDResolver(procfs.FS{}, nil)
	defer x.close()
	check := func(what string, id []byte, asked int) {
		t.Helper()
		if f := x.resolve(m, mountNS{ino: x.hostMnt}, nil); !bytes.Equal(f.id, id) || x.lookups != asked {
			t.Errorf("%s: id %x after asking %d times, want %x after %d", what, f.id, x.lookups, id, asked)
		}
	}
	check("first", ids[0], 1)
	check("again", ids[0], 1)
	x.round += recheck
	check("unchanged", ids[0], 1)
	write(1)
	check("changed just now", ids[0], 1)
	x.round += recheck
	check("changed", ids[1], 2)
	x.round += recheck
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	check("its path is gone, not its content", ids[1], 2)
	m.path = []byte("//anon")
	check("memory", nil, 2)
	m.path, m.inode = []byte(path), 0
	check("no file", nil, 2)
}

// TestShortLivedHaveBuildIDs: programs that run for a millisecond.
func TestShortLivedHaveBuildIDs(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tool("gcc"))
	prog := testutil.CompileC(t, "int main(void) { return 0; }\n", "-static")
	script := "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do " + prog + "; done"
	rec := record(t, Options{Groups: groups(t, "cpu-clock"), Command: &Command{Args: []string{"sh", "-c", script}}})
	with, without := 0, 0
	eachMmap2(t, rec.path, func(m *perf.Mmap2) {
		switch {
		case m.Filename != prog:
		case len(m.BuildID) == 20:
			with++
		default:
			without++
		}
	})
	if with != 20 || without != 0 {
		t.Errorf("%d mappings with a build-id and %d without, want 20 and 0", with, without)
	}
}

func eachMmap2(t *testing.T, path string, fn func(*perf.Mmap2)) {
	t.Helper()
	r, err := perfdata.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		raw, err := r.Next()
		if err != nil {
			break
		}
		if raw.Type != perf.RecordMmap2 {
			continue
		}
		rec, err := perf.Decode(raw.Raw, r.Order(), raw.Event)
		if err != nil {
			t.Fatal(err)
		}
		fn(rec.(*perf.Mmap2))
	}
}

// TestOtherRecordingsStayWhole: a recording of the real perf that runs at the
// same time must not get the mark of build-ids that the kernel spreads; perf
// 6.1 does not survive it. The recordings of other tests may spread it too,
// hence more than one try.
func TestOtherRecordingsStayWhole(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tool("perf"))
	var failures []string
	for range 3 {
		other := filepath.Join(t.TempDir(), "other.data")
		cmd := exec.Command("perf", "record", "-B", "-N", "-a", "-e", "cpu-clock", "-F", "99", "-o", other, "--", "sleep", "2")
		var text bytes.Buffer
		cmd.Stdout, cmd.Stderr = &text, &text
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		record(t, Options{Groups: groups(t, "cpu-clock"), Target: Target{All: true}, Duration: time.Second,
			Command: &Command{Args: []string{"sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do ls / >/dev/null; done"}}})
		err := cmd.Wait()
		marked := 0
		if err == nil {
			marked = countMarked(t, other)
		}
		if err == nil && marked == 0 {
			return
		}
		failures = append(failures, strings.TrimSpace(text.String()))
	}
	t.Errorf("perf record did not stay whole beside gantry's:\n%s", strings.Join(failures, "\n"))
}

// countMarked counts the MMAP2 records with the bit of build-ids.
func countMarked(t *testing.T, path string) int {
	t.Helper()
	r, err := perfdata.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := 0
	for {
		rec, err := r.Next()
		if err != nil {
			return n
		}
		if rec.Type == perf.RecordMmap2 && rec.Misc&perf.MiscMmapBuildID != 0 {
			n++
		}
	}
}
