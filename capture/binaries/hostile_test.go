// SPDX-License-Identifier: Apache-2.0

//go:build linux

package binaries

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/elffile"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// wantedID is the build-id that the records of these tests have. The file outside
// of the root has it as well, so that it would be kept if it were read.
const wantedID = "0123456789abcdef0123456789abcdef01234567"

// errUnreadable is what the ledger calls a file that breaks the rules of ELF.
var errUnreadable = errors.New("unreadable")

// program is an ELF file with a build-id in hexadecimal digits.
func program(t *testing.T, id string) []byte {
	t.Helper()
	text, err := os.ReadFile(testutil.CompileC(t, "int main(void) { return 0; }\n", "-Wl,--build-id=0x"+id))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// keepInJail has a collector look at the file /app of a process in the jail, which
// the records say has the wanted id.
func keepInJail(t *testing.T, j *jail) (*Collector, Summary) {
	t.Helper()
	id, err := buildid.Parse(wantedID)
	if err != nil {
		t.Fatal(err)
	}
	k := startJITCollector(t)
	pid, end := j.start(t)
	defer end()
	k.enqueue(&binaryKey{id: string(id.Bytes()), FileKey: FileKey{Path: "/app"}}, mappedAt{pid: pid, mnt: 2})
	k.Start()
	k.Wait()
	sum, _ := k.Result()
	return k, sum
}

// Whatever is in the place of a binary, only a regular file of the root with the
// id is kept, and what is not is told.
func TestHostileBinaries(t *testing.T) {
	j := newJail(t)
	good, other := program(t, wantedID), program(t, strings.Repeat("ab", 20))
	if err := os.WriteFile(j.secret, good, 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(b []byte) func(string) error {
		return func(name string) error { return os.WriteFile(name, b, 0o700) }
	}
	link := func(to string) func(string) error {
		return func(name string) error { return os.Symlink(to, name) }
	}
	// A program whose sections, or notes, are said to have gigabytes.
	claims := func(at, n int) []byte {
		b := bytes.Clone(good)
		copy(b[at:at+n], bytes.Repeat([]byte("\xff\xff\xff\xff\xff\xff\xff\x7f"), n/8))
		return b
	}
	note := bytes.Index(good, []byte("GNU\x00\x01\x23\x45"))
	for _, tt := range []struct {
		name string
		make func(name string) error
		kept bool
		why  error
	}{
		{"the binary", write(good), true, nil},
		{"a link out", link(j.secret), false, errGone},
		{"a relative link out", link(strings.Repeat("../", 40) + j.secret), false, errGone},
		{"a link by way of /proc", link("/proc/self/root" + j.secret), false, errGone},
		{"a link to itself", link("app"), false, syscall.ELOOP},
		{"a pipe", func(name string) error { return syscall.Mkfifo(name, 0o777) }, false, sys.ErrNotRegular},
		{"a device", func(name string) error { return syscall.Mknod(name, syscall.S_IFCHR|0o777, 1<<8|5) }, false,
			sys.ErrNotRegular},
		{"a directory", func(name string) error { return os.Mkdir(name, 0o755) }, false, sys.ErrNotRegular},
		{"another build-id", write(other), false, buildid.ErrMismatch},
		{"no ELF file", write([]byte("root:*:20000:0:99999:7:::\n")), false, buildid.ErrNotELF},
		{"nothing", write(nil), false, buildid.ErrNotELF},
		{"cut off", write(good[:note]), false, errUnreadable},
		{"headers far behind the end", write(claims(32, 16)), false, errUnreadable}, // e_phoff, e_shoff
		{"a note of gigabytes", write(claims(note-12, 8)), false, errUnreadable},
		{"gigabytes", func(name string) error { return errors.Join(write(good)(name), os.Truncate(name, 1<<40)) },
			false, errTooLarge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			name := filepath.Join(j.root, "app")
			if err := tt.make(name); err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(name)
			k, sum := keepInJail(t, j)
			if (sum.Kept == 1) != tt.kept {
				t.Errorf("%+v", sum)
			}
			if n := len(sum.Missing); tt.why == nil && n > 0 || tt.why != nil &&
				(n != 1 || sum.Missing[tt.why.Error()] != 1) {
				t.Errorf("missing %v, want %v", sum.Missing, tt.why)
			}
			if list, err := k.store.List(); err != nil || len(list) != sum.Kept {
				t.Errorf("%d files in the store, %v", len(list), err)
			}
		})
	}
}

// A binary is kept whose process, and path, are gone when its turn comes.
func TestBinaryOfEnded(t *testing.T) {
	j := newJail(t)
	name := filepath.Join(j.root, "app")
	if err := os.WriteFile(name, program(t, wantedID), 0o700); err != nil {
		t.Fatal(err)
	}
	id, err := buildid.Parse(wantedID)
	if err != nil {
		t.Fatal(err)
	}
	k := startJITCollector(t)
	pid, end := j.start(t)
	b := k.enqueue(&binaryKey{id: string(id.Bytes()), FileKey: FileKey{Path: "/app"}}, mappedAt{pid: pid, mnt: 2})
	end()
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	k.Start()
	k.Wait()
	if sum, _ := k.Result(); sum.Kept != 1 || len(sum.Missing) != 0 || b.file != nil {
		t.Errorf("%+v", sum)
	}
}

// A binary that changes while it is copied is kept only with the id that it is
// looked up by.
func TestChangingBinary(t *testing.T) {
	good := program(t, wantedID)
	name := filepath.Join(t.TempDir(), "app")
	if err := os.WriteFile(name, good, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at := int64(bytes.Index(good, []byte("\x01\x23\x45\x67\x89")))
	stop, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		for i := byte(0); ; i++ {
			select {
			case <-stop:
				return
			default:
				f.WriteAt([]byte{1 + i&1}, at)
			}
		}
	}()
	defer func() { close(stop); <-done }()
	id, err := buildid.Parse(wantedID)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		k := startJITCollector(t)
		from, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := from.Stat()
		if err != nil {
			t.Fatal(err)
		}
		b := &binary{key: binaryKey{id: string(id.Bytes()), FileKey: FileKey{Path: "/app"}}, outcome: outcome{id: id}}
		content, err := k.copy(from, info, b, mappedAt{mnt: 7})
		from.Close()
		kept, size, lookErr := k.store.Lookup(content)
		if (err == nil) != (lookErr == nil) || err != nil && !errors.Is(err, buildid.ErrMismatch) {
			t.Fatalf("copied: %v, looked up: %v", err, lookErr)
		}
		if err == nil {
			if err := buildid.Check(kept, size, id); err != nil {
				t.Fatal(err)
			}
			kept.Close()
		}
	}
}

// strip gives a program without its symbols, and these.
func strip(t *testing.T, text []byte) (stripped, debug []byte) {
	t.Helper()
	dir := t.TempDir()
	prog, symbols := filepath.Join(dir, "app"), filepath.Join(dir, "app.debug")
	if err := os.WriteFile(prog, text, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"objcopy", "--only-keep-debug", prog, symbols}, {"strip", "--strip-all", prog}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	stripped, err1 := os.ReadFile(prog)
	debug, err2 := os.ReadFile(symbols)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return stripped, debug
}

// The same for the separate symbols of a binary.
func TestHostileDebugFiles(t *testing.T) {
	testutil.Require(t, testutil.Tool("objcopy", "strip"))
	j := newJail(t)
	stripped, debug := strip(t, program(t, wantedID))
	_, other := strip(t, program(t, strings.Repeat("ab", 20)))
	name := filepath.Join(j.root, debugRoot, ".build-id", wantedID[:2], wantedID[2:]+".debug")
	if err := errors.Join(os.WriteFile(filepath.Join(j.root, "app"), stripped, 0o700),
		os.WriteFile(j.secret, debug, 0o600),
		os.MkdirAll(filepath.Dir(name), 0o755)); err != nil {
		t.Fatal(err)
	}
	write := func(b []byte) func() error { return func() error { return os.WriteFile(name, b, 0o600) } }
	link := func(to string) func() error { return func() error { return os.Symlink(to, name) } }
	for _, tt := range []struct {
		name string
		make func() error
		kept bool
		why  error
	}{
		{"the symbols", write(debug), true, nil},
		{"none", func() error { return nil }, false, nil},
		{"a link that stays inside", func() error {
			return errors.Join(os.WriteFile(filepath.Join(j.root, "symbols"), debug, 0o600),
				os.Symlink("/symbols", name))
		}, true, nil},
		{"a link out", link(j.secret), false, nil}, // to nothing, in the root
		{"a relative link out", link(strings.Repeat("../", 40) + j.secret), false, nil},
		{"a link to itself", link(path.Base(name)), false, syscall.ELOOP},
		{"a pipe", func() error { return syscall.Mkfifo(name, 0o666) }, false, sys.ErrNotRegular},
		{"a device", func() error { return syscall.Mknod(name, syscall.S_IFCHR|0o666, 1<<8|5) }, false,
			sys.ErrNotRegular},
		{"another build-id", write(other), false, buildid.ErrMismatch},
		{"no ELF file", write([]byte("root:*:20000:0:99999:7:::\n")), false, buildid.ErrNotELF},
		{"cut off", write(debug[:64]), false, errUnreadable},
		{"gigabytes", func() error { return errors.Join(write(debug)(), os.Truncate(name, 1<<40)) }, false,
			errTooLarge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.make(); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(name)
			_, sum := keepInJail(t, j)
			if (sum.Debug == 1) != tt.kept || sum.Kept != 1 {
				t.Errorf("%+v", sum)
			}
			want := map[string]int{}
			if tt.why != nil {
				want["symbols: "+tt.why.Error()] = 1
			}
			if len(sum.Missing) != len(want) || tt.why != nil && sum.Missing["symbols: "+tt.why.Error()] != 1 {
				t.Errorf("missing %v, want %v", sum.Missing, want)
			}
		})
	}
}

// FuzzDebugPaths: the name in .gnu_debuglink leads to no other directories than
// those in which symbols may be.
func FuzzDebugPaths(f *testing.F) {
	f.Add([]byte("app.debug\x00\x00\x00\x01\x02\x03\x04"), "/usr/bin/app")
	f.Add([]byte("../../etc/shadow\x00"), "/a/../b")
	f.Add([]byte(".."), "")
	f.Add([]byte("/"), "/")
	f.Fuzz(func(t *testing.T, section []byte, name string) {
		text := linked(section)
		id, err := buildid.Parse(wantedID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := elffile.Open(bytes.NewReader(text), int64(len(text))); err != nil {
			t.Fatal(err)
		}
		dir := path.Dir(path.Clean(name))
		for _, at := range debugPaths(bytes.NewReader(text), int64(len(text)), id, name) {
			switch path.Dir(at) {
			case dir, path.Join(dir, ".debug"), path.Join(debugRoot, dir),
				path.Join(debugRoot, ".build-id", wantedID[:2]):
			default:
				t.Errorf("%q with %q leads to %q", name, section, at)
			}
			if !path.IsAbs(at) || at != path.Clean(at) {
				t.Errorf("%q", at)
			}
		}
	})
}

// linked is an ELF file that has nothing but a section .gnu_debuglink.
func linked(section []byte) []byte {
	const names = "\x00.gnu_debuglink\x00.shstrtab\x00"
	le := perf.NativeOrder
	b := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9)...)
	b = le.AppendUint32(le.AppendUint16(le.AppendUint16(b, 2), 62), 1)
	b = le.AppendUint64(le.AppendUint64(le.AppendUint64(b, 0), 0), 64)
	b = le.AppendUint16(le.AppendUint16(le.AppendUint32(b, 0), 64), 56)
	for _, v := range []uint16{0, 64, 3, 2} {
		b = le.AppendUint16(b, v)
	}
	data := uint64(64 + 3*64)
	header := func(name, kind uint32, off, size uint64) {
		b = le.AppendUint32(le.AppendUint32(b, name), kind)
		for _, v := range []uint64{0, 0, off, size, 0, 1, 0} {
			b = le.AppendUint64(b, v)
		}
	}
	header(0, 0, 0, 0)
	header(1, 1, data, uint64(len(section)))
	header(16, 3, data+uint64(len(section)), uint64(len(names)))
	return append(append(b, section...), names...)
}
