// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// perfMapping is what the process of a made-up recording has mapped.
type perfMapping struct {
	path             string
	start, size, off uint64
	kernel           bool
}

const (
	cpuModeKernel = 1 // PERF_RECORD_MISC_KERNEL
	cpuModeUser   = 2 // PERF_RECORD_MISC_USER
)

// perfNames asks the real perf for the name of each address: it writes a
// recording of one process with the mapping and one sample per address. An
// address without a name is absent from the result.
func perfNames(t *testing.T, m perfMapping, addrs []uint64, args ...string) map[uint64]string {
	t.Helper()
	testutil.Require(t, testutil.Tool("perf"))
	dir := t.TempDir()
	file := filepath.Join(dir, "perf.data")
	if err := os.WriteFile(file, perfData(m, addrs), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"--buildid-dir", dir, "script", "-i", file, "-F", "ip,sym"}, args...)
	var stderr bytes.Buffer
	cmd := exec.Command("perf", args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("perf %v: %v\n%s", args, err, stderr.Bytes())
	}
	names := make(map[uint64]string)
	n := 0
	for line := range strings.Lines(string(out)) {
		ip, name, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		addr, err := strconv.ParseUint(ip, 16, 64)
		if err != nil {
			t.Fatalf("perf script says %q", line)
		}
		n++
		if name != "[unknown]" {
			names[addr] = name
		}
	}
	if n != len(addrs) {
		t.Fatalf("perf script printed %d samples of %d\n%.300s", n, len(addrs), stderr.Bytes())
	}
	return names
}

// perfData makes a perf.data file by hand, so that this test depends on perf
// alone: a header, one attribute (cpu-clock, IP and TID), and the records.
func perfData(m perfMapping, addrs []uint64) []byte {
	// No process has this number, in whose root perf would look for the file.
	const headerSize, attrSize, pid = 104, 64, 1 << 30
	le := binary.LittleEndian
	attr := make([]byte, attrSize+16)
	le.PutUint32(attr[0:], 1) // PERF_TYPE_SOFTWARE
	le.PutUint32(attr[4:], attrSize)
	le.PutUint64(attr[16:], 1) // sample period
	le.PutUint64(attr[24:], 3) // PERF_SAMPLE_IP | PERF_SAMPLE_TID

	var data []byte
	record := func(typ uint32, misc uint16, body []byte) {
		for len(body)%8 != 0 {
			body = append(body, 0)
		}
		data = le.AppendUint32(data, typ)
		data = le.AppendUint16(data, misc)
		data = le.AppendUint16(data, uint16(8+len(body)))
		data = append(data, body...)
	}
	ids := func(pid, tid uint32) []byte { return le.AppendUint32(le.AppendUint32(nil, pid), tid) }

	mode, mapPID, mapTID := uint16(cpuModeUser), uint32(pid), uint32(pid)
	if m.kernel {
		mode, mapPID, mapTID = cpuModeKernel, ^uint32(0), 0
	}
	record(3, 0, append(ids(pid, pid), "prog\x00"...)) // PERF_RECORD_COMM
	mmap := ids(mapPID, mapTID)
	for _, v := range []uint64{m.start, m.size, m.off} {
		mmap = le.AppendUint64(mmap, v)
	}
	record(1, mode, append(mmap, m.path+"\x00"...)) // PERF_RECORD_MMAP
	for _, a := range addrs {
		record(9, mode, append(le.AppendUint64(nil, a), ids(pid, pid)...)) // PERF_RECORD_SAMPLE
	}

	out := []byte("PERFILE2")
	for _, v := range []uint64{headerSize, uint64(len(attr)), headerSize, uint64(len(attr)),
		headerSize + uint64(len(attr)), uint64(len(data)), 0, 0, 0, 0, 0, 0} {
		out = le.AppendUint64(out, v)
	}
	out = append(out, attr...)
	return append(out, data...)
}

// execMapping is how a program's code would be mapped, high enough for every
// file.
func execMapping(t *testing.T, path string, o *Object) perfMapping {
	t.Helper()
	for _, s := range o.Segments {
		if s.Exec {
			pages := s.Offset &^ 0xfff
			return perfMapping{path: path, start: 0x7f0000000000, off: pages, size: (s.Offset + s.FileSize - pages + 0xfff) &^ 0xfff}
		}
	}
	t.Fatalf("%s has no code", path)
	return perfMapping{}
}

// spread picks about n addresses of a mapping, all over it.
func spread(m perfMapping, n uint64) []uint64 {
	var addrs []uint64
	for a := uint64(0); a < m.size; a += max(1, m.size/n) {
		addrs = append(addrs, m.start+a)
	}
	return addrs
}

// TestPerfNames compares the names of addresses all over several programs with
// those that perf prints for them.
func TestPerfNames(t *testing.T) {
	cxx := buildProgram(t, "c++", cxxProgram, "-O1")
	for name, path := range map[string]string{
		"c++":      cxx,
		"stripped": stripped(t, buildProgram(t, "c", cProgram, "-O1", "-rdynamic")),
		"no-pie":   buildProgram(t, "c", cProgram, "-O1", "-no-pie"),
		"go":       goCompiler(t),
	} {
		t.Run(name, func(t *testing.T) {
			o := mustReadELF(t, path)
			m := execMapping(t, path, o)
			addrs := spread(m, 20000)
			want := perfNames(t, m, addrs)
			named := 0
			for _, a := range addrs {
				got := ""
				if sym, ok := o.Lookup(o.Addr(m.start, m.off, a)); ok {
					got = o.Demangled(sym)
					named++
				}
				if got != want[a] && !excused(got, want[a]) {
					t.Errorf("%#x: %q, perf says %q", a, got, want[a])
				}
			}
			if named < 200 {
				t.Errorf("only %d of %d addresses have a name", named, len(addrs))
			}
		})
	}
}

// excused are the differences to perf that are meant. perf lets symbols without
// a size reach over the end of their section: into a PLT section that it does
// not know, and into the rest of the last page.
func excused(got, perf string) bool {
	switch perf {
	case "_init", "_fini", "runtime.etext", "":
		return got == "" || strings.HasSuffix(got, "@plt")
	}
	return false
}

// TestPerfKallsyms compares the name at the start, middle and end of every
// kernel function with perf's.
func TestPerfKallsyms(t *testing.T) {
	const path = "/proc/kallsyms"
	f, err := os.Open(path)
	if err != nil {
		testutil.Lacks(t, "needs kernel symbols: %v", err)
	}
	defer f.Close()
	k, err := ReadKallsyms(f)
	if errors.Is(err, ErrRestricted) {
		testutil.Lacks(t, "needs kernel addresses: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	start := k.Text()
	m := perfMapping{path: KernelDSO + "_text", start: start, size: -start - 1, off: start, kernel: true}
	var addrs []uint64
	for i := range int32(k.Len()) {
		if s := k.Sym(i); k.DSO(i) == KernelDSO {
			addrs = append(addrs, s.Start, s.Start+(s.End-s.Start)/2, s.End-1)
		}
	}
	want := perfNames(t, m, addrs, "--kallsyms="+path)
	for _, a := range addrs {
		sym, ok := k.Lookup(a)
		if !ok || k.Name(sym) != want[a] {
			t.Errorf("%#x: %q, perf says %q", a, k.Name(sym), want[a])
		}
	}
}
