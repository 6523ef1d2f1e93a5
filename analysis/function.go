// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/analysis/symbol/bpfinfo"
	"github.com/gantry-tools/gantry/analysis/timeline"
	"github.com/gantry-tools/gantry/buildid"
)

// Errors of Function.Code that a caller may want to tell apart.
var (
	// ErrNoCode: generated code and that of the kernel's trampolines is kept
	// nowhere.
	ErrNoCode = errors.New("its code was not kept")
	// ErrKernelCode: no place has the kernel's image.
	ErrKernelCode = errors.New("the kernel's image is not here")
)

// Function is a function of a recording, with where it lies. It is comparable.
type Function struct {
	Name, DSO, Path string
	BuildID         buildid.ID // zero if not known
	Kernel          bool
	// Start and End are addresses of the object, as frames have them.
	Start, End uint64
	// Program and Loader are as in profile.Frame.
	Program, Loader string

	s   *Session
	bin *binary
	bpf *bpfinfo.Program
}

// keepPlace remembers what a frame is.
func (s *Session) keepPlace(id profile.FrameID, p frameSource) {
	for int(id) >= len(s.sourceCounts) {
		s.sourceCounts = append(s.sourceCounts, frameSource{sym: noSymbol})
	}
	s.sourceCounts[id] = p
}

// Function is the function that a frame is an address of, in the profile that
// Collect made with Places. It is not ok for an address without a symbol.
func (s *Session) Function(id profile.FrameID) (f Function, ok bool) {
	if int(id) >= len(s.sourceCounts) {
		return f, false
	}
	p := &s.sourceCounts[id]
	f = Function{s: s, bin: p.bin, Kernel: p.kernel}
	switch {
	case p.isKsym:
		f.Name, f.DSO, f.Path, f.Start, f.End = p.ksym.Name, p.ksym.Name, p.ksym.Name, p.ksym.Start, p.ksym.End
		f.Program, f.Loader = s.bpfOwner(&p.ksym)
		f.bpf = s.bpfProgram(&p.ksym)
		return f, true
	case p.sym == noSymbol:
		return f, false
	case p.kernel:
		l := s.describe(*p, 0)
		sym := s.kernel.table.Sym(p.sym)
		f.Name, f.DSO, f.Path, f.Start, f.End = l.Name, l.DSO, l.Path, sym.Start, sym.End
		if l.DSO == symbol.KernelDSO {
			f.BuildID, _ = s.ids.of(symbol.KernelDSO)
		}
		return f, true
	}
	sym := p.bin.obj.Sym(p.sym)
	f.Name, f.DSO, f.Path, f.BuildID = p.bin.obj.Demangled(p.sym), p.bin.dso, p.bin.file.Path, p.bin.id
	f.Start, f.End = sym.Start, sym.End
	return f, true
}

// HasDetails reports whether the recording has the details of the BPF program
// that the function is of.
func (f *Function) HasDetails() bool { return f.bpf != nil }

// maxCode bounds the code of one function that is shown: an instruction takes
// hundreds of bytes of memory. The longest functions that compilers make are some
// hundred kilobytes.
const maxCode = 512 << 10

// Code is the machine code of the function, at most 512 KiB of it: from the
// binary, which is found by its build-id, or as the kernel described a BPF program.
// Errors are fs.ErrNotExist, ErrNoCode, ErrKernelCode, or those of a
// symbol.Resolver.
func (f *Function) Code() ([]byte, error) {
	size := min(f.End-f.Start, maxCode)
	switch {
	case f.bpf != nil:
		sub, ok := f.bpf.Sub(f.Start)
		if !ok || len(sub.Code()) == 0 {
			return nil, ErrNoCode
		}
		return sub.Code()[:min(uint64(len(sub.Code())), size)], nil
	case f.Kernel && f.DSO == symbol.KernelDSO:
		return f.kernelCode(size)
	case f.bin == nil, timeline.IsPerfMap(f.Path):
		return nil, ErrNoCode
	}
	file, fileSize, err := f.s.resolver.Open(f.s.ref(f.bin.file))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readCode(file, fileSize, f.bin.obj.Segments, f.Start, size)
}

// kernelCode reads the code from the kernel's image, vmlinux. Its addresses
// are those that it was linked to: segments begin with _text.
func (f *Function) kernelCode(size uint64) ([]byte, error) {
	if f.BuildID.IsZero() {
		return nil, fmt.Errorf("%w: the recording does not tell its build-id", ErrKernelCode)
	}
	file, fileSize, err := f.s.openKernel(f.BuildID)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKernelCode, err)
	}
	defer file.Close()
	obj, err := symbol.ReadELF(file, fileSize)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKernelCode, err)
	}
	for i := range obj.Segments {
		if seg := &obj.Segments[i]; seg.Exec {
			return readCode(file, fileSize, obj.Segments, f.Start-f.s.kernel.table.Text()+seg.Vaddr, size)
		}
	}
	return nil, fmt.Errorf("%w: it has no code", ErrKernelCode)
}

// openKernel finds the kernel's image by its build-id: as a binary, or with
// the symbols that are stripped from the one that boots.
func (s *Session) openKernel(id buildid.ID) (symbol.File, int64, error) {
	release := s.r.Features().OSRelease
	var first error
	for _, path := range []string{
		symbol.KernelDSO, "/boot/vmlinux-" + release, "/usr/lib/debug/boot/vmlinux-" + release,
		"/lib/modules/" + release + "/build/vmlinux",
	} {
		f, size, err := s.resolver.Open(symbol.Ref{Path: path, BuildID: id})
		if err == nil {
			return f, size, nil
		}
		if first == nil {
			first = err
		}
	}
	f, size, err := s.resolver.OpenDebug(symbol.Ref{Path: symbol.KernelDSO, BuildID: id})
	if err != nil {
		return nil, 0, first
	}
	return f, size, nil
}

// readCode reads what a file has at an address.
func readCode(r io.ReaderAt, fileSize int64, segments []symbol.Segment, addr, size uint64) ([]byte, error) {
	for i := range segments {
		seg := &segments[i]
		if addr < seg.Vaddr || addr-seg.Vaddr >= seg.FileSize {
			continue
		}
		at := addr - seg.Vaddr
		size = min(size, seg.FileSize-at)
		if seg.Offset+at < seg.Offset || seg.Offset+at > uint64(fileSize) || size > uint64(fileSize)-seg.Offset-at {
			return nil, fmt.Errorf("read code at %#x: %w", addr, symbol.ErrTruncated)
		}
		code := make([]byte, size)
		if _, err := r.ReadAt(code, int64(seg.Offset+at)); err != nil {
			return nil, fmt.Errorf("read code at %#x: %w", addr, err)
		}
		return code, nil
	}
	return nil, fmt.Errorf("the file has no code at %#x: %w", addr, fs.ErrNotExist)
}

// Calls appends the source lines that an address of the function was made of:
// that of the innermost call first, each but the last inlined into the next one.
func (f *Function) Calls(dst []symbol.Call, addr uint64) []symbol.Call {
	switch {
	case f.bpf != nil:
		if l, ok := f.bpf.Line(addr); ok {
			return append(dst, symbol.Call{Name: f.Name, File: l.File, Line: l.Line, Source: "bpf"})
		}
		return dst
	case f.bin == nil || f.bin.obj == nil:
		return dst
	}
	start := len(dst)
	dst = f.s.lines(f.bin).Calls(dst, addr)
	if n := len(dst) - 1; n >= start {
		dst[n].Name = f.Name
	}
	return dst
}

// Text is the line of source of an address of the function, if the recording
// has it: that of a BPF program.
func (f *Function) Text(addr uint64) (string, bool) {
	if f.bpf == nil {
		return "", false
	}
	l, ok := f.bpf.Line(addr)
	return l.Text, ok && l.Text != ""
}

// Target names the function that an address lies in, which the code of f
// refers to, and how far behind its start. It is "" if it has no name.
func (f *Function) Target(addr uint64) (name string, offset uint64) {
	switch {
	case f.bpf != nil:
		// The program may be gone, and its addresses be another's.
		if sub, ok := f.bpf.Sub(addr); ok && sub.Name != "" {
			return sub.Name, addr - sub.Start
		}
		return f.s.kernelTarget(addr)
	case f.Kernel:
		if k := &f.s.kernel; k.table != nil {
			return f.s.kernelTarget(addr + k.shift)
		}
	case f.bin != nil && f.bin.obj != nil:
		if sym, ok := f.bin.obj.Lookup(addr); ok {
			return f.bin.obj.Demangled(sym), addr - f.bin.obj.Sym(sym).Start
		}
	}
	return "", 0
}

// kernelTarget names an address of the recorded kernel, as of the end of the
// recording.
func (s *Session) kernelTarget(addr uint64) (string, uint64) {
	p := s.locateKernel(addr)
	l := s.describe(p, addr)
	return l.Name, l.Offset
}

// OpenSource opens a file that the binary of f names as its source: at its path
// below the root that the binary is of, never that of another container. Whether
// it is still what was compiled is not known.
func (f *Function) OpenSource(path string) (symbol.File, int64, error) {
	if f.bin == nil {
		return nil, 0, fs.ErrNotExist
	}
	return f.s.resolver.OpenBeside(f.s.ref(f.bin.file), path)
}

// Machine is what the recorded machine calls its instruction set, as uname -m.
func (s *Session) Machine() string { return s.r.Features().Arch }
