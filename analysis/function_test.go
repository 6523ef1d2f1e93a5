// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// elfCode is what the binary has of a function: the name, the address, the code
// and where its executable segment begins.
func elfCode(t *testing.T, p program, fn string) (code []byte, segment uint64) {
	t.Helper()
	f, err := elf.Open(p.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, seg := range f.Progs {
		if seg.Type == elf.PT_LOAD && seg.Flags&elf.PF_X != 0 {
			segment = seg.Vaddr
		}
	}
	for _, s := range syms {
		if s.Name == fn {
			sec := f.Sections[s.Section]
			code = make([]byte, s.Size)
			if _, err := sec.ReadAt(code, int64(s.Value-sec.Addr)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return code, segment
}

// theFunction is the one function that samples of a session fell in.
func theFunction(t *testing.T, s *Session) Function {
	t.Helper()
	p, err := s.Collect(CollectOptions{Symbols: true, Addresses: true, Places: true})
	if err != nil {
		t.Fatal(err)
	}
	for sm := range p.Samples() {
		f, ok := s.Function(p.Stack(sm.Stack)[0])
		if !ok {
			t.Fatal("no function")
		}
		return f
	}
	t.Fatal("no samples")
	return Function{}
}

// The code of a function is that of the file with its build-id, not of the one
// at its path.
func TestFunctionCode(t *testing.T) {
	prog, other := compile(t, "work"), compile(t, "another")
	want, _ := elfCode(t, prog, "work")
	const base = 0x400000
	open := func(files openFiles) *Session {
		r := newRecording(t, 0)
		r.add(comm(1, "app"), mapped(1, base, "/app", prog.id), sample(1, base+prog.pgoff+1))
		return r.open(nil, &Options{Binaries: []symbol.Opener{files}})
	}
	files := openFiles{prog.id.String(): prog.path}
	f := theFunction(t, open(files))
	code, err := f.Code()
	if err != nil || !bytes.Equal(code, want) || f.Name != "work" || f.BuildID != prog.id || f.Start != prog.vaddr {
		t.Errorf("%s at %#x: %x, %v; want %x", f.Name, f.Start, code, err, want)
	}
	if name, off := f.Target(f.Start + 2); name != "work" || off != 2 {
		t.Errorf("its third byte is %s+%d", name, off)
	}
	files[prog.id.String()] = other.path
	if _, err := f.Code(); !errors.Is(err, symbol.ErrMismatch) {
		t.Errorf("with another file: %v", err)
	}
	delete(files, prog.id.String())
	if _, err := f.Code(); symbol.ReasonOf(err) != symbol.NotFound {
		t.Errorf("without the file: %v", err)
	}
}

// The kernel's code is in its image, which was linked to other addresses than
// those where it ran.
func TestKernelCode(t *testing.T) {
	prog := compile(t, "work")
	want, segment := elfCode(t, prog, "work")
	const text, ran = 0xffffffff81000000, 0xffffffff9a000000
	list := func(Kernel) (*symbol.Kallsyms, error) {
		work := text + prog.vaddr - segment
		return symbol.ReadKallsyms(strings.NewReader(fmt.Sprintf("%x T _text\n%x T work\n%x T next\n", uint64(text), work, work+uint64(len(want)))))
	}
	open := func(files openFiles, ids ...perfdata.BuildIDEntry) Function {
		r := newRecording(t, 0)
		r.add(kernelMap(ran), kernelSample(ran+prog.vaddr-segment+1))
		return theFunction(t, r.open(&perfdata.Features{BuildIDs: ids}, &Options{Kallsyms: list, Binaries: []symbol.Opener{files}}))
	}
	id := perfdata.BuildIDEntry{PID: -1, Misc: perf.MiscKernel, ID: prog.id.Bytes(), Path: symbol.KernelDSO}
	f := open(openFiles{prog.id.String(): prog.path}, id)
	if code, err := f.Code(); err != nil || !bytes.Equal(code, want) || f.Name != "work" || !f.Kernel || f.BuildID != prog.id {
		t.Errorf("%s: %x, %v; want %x", f.Name, code, err, want)
	}
	if name, off := f.Target(f.Start + 1); name != "work" || off != 1 {
		t.Errorf("its second byte is %s+%d", name, off)
	}
	for _, f := range []Function{open(nil, id), open(nil)} {
		if _, err := f.Code(); !errors.Is(err, ErrKernelCode) {
			t.Errorf("without the image: %v", err)
		}
	}
}

// What has no symbol is no function, and generated code is nowhere.
func TestNoFunction(t *testing.T) {
	r := newRecording(t, 0)
	r.add(comm(1, "app"), sample(1, 0x1000))
	s := r.open(nil, nil)
	p, err := s.Collect(CollectOptions{Symbols: true, Addresses: true, Places: true})
	if err != nil {
		t.Fatal(err)
	}
	for id := range p.NumFrames() {
		if f, ok := s.Function(profile.FrameID(id)); ok {
			t.Errorf("%+v", f)
		}
	}
	if _, ok := s.Function(1 << 20); ok {
		t.Error("a frame that is not there is a function")
	}
	if _, err := (&Function{End: 1}).Code(); !errors.Is(err, ErrNoCode) {
		t.Errorf("%v", err)
	}
	if _, err := readCode(bytes.NewReader(nil), 10, []symbol.Segment{{Offset: 1 << 62, Vaddr: 0, FileSize: 1 << 63}}, 1<<62, 1<<20); !errors.Is(err, symbol.ErrTruncated) {
		t.Errorf("behind the end: %v", err)
	}
}
