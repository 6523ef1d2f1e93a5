// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"unsafe"

	"github.com/gantry-tools/gantry/internal/hint"
)

// ErrRestricted is returned for a /proc/kallsyms whose addresses are all zero:
// the kernel hides them from who reads without privilege.
var ErrRestricted = errors.New("kernel symbols are hidden from this user")

const restrictedHint = "run as root (or with CAP_SYSLOG), or set the sysctl kernel.kptr_restrict to 0"

// KernelDSO is the name that perf gives the kernel proper; modules are called
// "[NAME]", and BPF programs that /proc/kallsyms lists "[bpf]".
const KernelDSO = "[kernel.kallsyms]"

// BPFPrefix begins the symbol of a subprogram of a BPF program, bpf_prog_TAG_NAME
// (kernel/bpf/core.c, bpf_get_prog_name).
const BPFPrefix = "bpf_prog_"

const (
	maxKallsymsLine  = 1 << 12 // the kernel's own limit for a name is 512
	maxKallsymsDSOs  = math.MaxUint16
	maxKallsymsBytes = maxStrings
	kallsymsPage     = 4096

	// What kernels of distributions have. Room that is not used takes no
	// memory, as it is never touched; growing costs as much as parsing.
	usualSymbols = 160 << 10
	usualNames   = 4 << 20
)

// Kallsyms holds the functions of the kernel and its modules at one moment.
// Any number of goroutines may use it.
type Kallsyms struct {
	Table
	dso              []uint16 // by symbol
	dsos             []string
	text, stext, end uint64 // _text, _stext, _etext
}

// Reference is a symbol of the kernel that a recording gives the address of:
// perf takes _text or _stext. The zero value is none.
type Reference struct {
	Name string
	Addr uint64
}

// Shift is how much further the kernel of a recording was loaded than that of
// k, by an address of the recording: a kernel is loaded elsewhere at each boot.
// It is not ok if the address of that symbol is not known on both sides.
func (k *Kallsyms) Shift(r Reference) (shift uint64, ok bool) {
	own := k.text
	if r.Name == "_stext" {
		own = k.stext
	}
	if r.Addr == 0 || own == 0 {
		return 0, false
	}
	return r.Addr - own, true
}

// DSO is the name of what a symbol belongs to: KernelDSO, "[NAME]" of a module,
// or "[bpf]".
func (k *Kallsyms) DSO(sym int32) string { return k.dsos[k.dso[sym]] }

// Text is the address of _text, where the kernel begins; zero if the file did
// not have it.
func (k *Kallsyms) Text() uint64 { return k.text }

// Proper reports whether all addresses are between _text and _etext: in the
// kernel itself, whose symbols stay the same until the next boot. Modules and
// BPF programs are elsewhere.
func (k *Kallsyms) Proper(addrs []uint64) bool {
	for _, addr := range addrs {
		if addr < k.text || addr >= k.end {
			return false
		}
	}
	return k.text != 0
}

// InKernel reports whether an address is not below _text and not above _etext,
// where modules are; what is not known does not count.
func (k *Kallsyms) InKernel(addr uint64) bool { return addr >= k.text && (k.end == 0 || addr < k.end) }

// ReadKallsyms reads /proc/kallsyms or a copy of it. It returns ErrRestricted,
// with a hint, if the addresses are hidden; other errors name the line.
func ReadKallsyms(r io.Reader) (*Kallsyms, error) {
	p := &kallsymsParser{names: make([]byte, 0, usualNames), entries: make([]entry, 0, usualSymbols)}
	return p.read(r)
}

// ReadKallsymsAt is like ReadKallsyms for who looks up these addresses only:
// the result has the symbols that they lie in, and is made with a part of the
// work.
func ReadKallsymsAt(r io.Reader, addrs []uint64) (*Kallsyms, error) {
	wanted, _ := sortAddrs(slices.Clone(addrs), nil)
	return (&kallsymsParser{subset: newKernelSubset(slices.Compact(wanted))}).read(r)
}

func (p *kallsymsParser) read(r io.Reader) (*Kallsyms, error) {
	p.dsoByName, p.dsos = map[string]uint16{KernelDSO: 0}, []string{KernelDSO}
	if err := p.readAll(r); err != nil {
		return nil, fmt.Errorf("read kernel symbols: %w", err)
	}
	if p.hidden > 0 && !p.visible {
		return nil, hint.Wrap(ErrRestricted, restrictedHint)
	}
	if p.subset != nil {
		p.names, p.entries = p.subset.names, p.subset.entries()
	}
	k := &Kallsyms{dsos: p.dsos, text: p.text, stext: p.stext, end: p.end}
	k.Table, k.dso = buildTable(unsafe.String(unsafe.SliceData(p.names), len(p.names)), p.entries, later, kallsymsPage)
	return k, nil
}

type kallsymsParser struct {
	names     []byte
	entries   []entry
	subset    *kernelSubset // takes names and entries, if there is one
	dsoByName map[string]uint16
	dsos      []string
	text, end uint64 // _text, _etext
	stext     uint64
	line      int
	plain     bool // the lines at hand have no module, and no NUL byte
	hidden    int  // functions at address zero
	visible   bool // some are elsewhere
}

// readAll feeds the lines of r to the parser, from one buffer.
func (p *kallsymsParser) readAll(r io.Reader) error {
	buf := make([]byte, 1<<18)
	kept := 0
	for {
		n, err := r.Read(buf[kept:])
		data := buf[:kept+n]
		// Asked once of many lines, this costs next to nothing.
		p.plain = bytes.IndexByte(data, '\t') < 0 && bytes.IndexByte(data, 0) < 0
		for {
			end := bytes.IndexByte(data, '\n')
			if end < 0 {
				break
			}
			if err := p.parseLine(data[:end]); err != nil {
				return err
			}
			data = data[end+1:]
		}
		if errors.Is(err, io.EOF) {
			if len(data) > 0 {
				return p.parseLine(data)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", p.line+1, err)
		}
		if len(data) > maxKallsymsLine {
			return fmt.Errorf("line %d is longer than %d bytes", p.line+1, maxKallsymsLine)
		}
		kept = copy(buf, data)
	}
}

// parseLine reads "ADDRESS TYPE NAME" and, for modules, a tab and "[MODULE]".
func (p *kallsymsParser) parseLine(line []byte) error {
	p.line++
	addr, rest, ok := parseHex(line)
	if !ok || len(rest) < 4 || rest[0] != ' ' || rest[2] != ' ' {
		return fmt.Errorf("line %d is not ADDRESS TYPE NAME: %.40q", p.line, line)
	}
	typ, name := rest[1], rest[3:]
	var module []byte
	if !p.plain {
		name, module, _ = bytes.Cut(name, []byte{'\t'})
	}
	if len(name) == 0 || !p.plain && bytes.IndexByte(name, 0) >= 0 {
		return fmt.Errorf("line %d has no name: %.40q", p.line, line)
	}
	e := entry{start: addr, end: math.MaxUint64, noSize: true}
	if e.bind, ok = textBinding(typ); !ok {
		e.stop = true
		if p.subset != nil {
			p.subset.add(&e, nil)
			return nil
		}
		p.entries = append(double(p.entries, 1), e)
		return nil
	}
	if addr == 0 {
		p.hidden++
		return nil
	}
	p.visible = true
	switch {
	case name[0] != '_' || len(module) > 0:
	case p.text == 0 && string(name) == "_text":
		p.text = addr
	case p.stext == 0 && string(name) == "_stext":
		p.stext = addr
	case p.end == 0 && string(name) == "_etext":
		p.end = addr
	}
	return p.addText(e, name, module)
}

func (p *kallsymsParser) addText(e entry, name, module []byte) error {
	if len(module) > 0 {
		id, ok := p.dsoByName[string(module)]
		if !ok {
			if len(p.dsos) >= maxKallsymsDSOs {
				return fmt.Errorf("line %d: more than %d modules", p.line, maxKallsymsDSOs)
			}
			id = uint16(len(p.dsos))
			p.dsos = append(p.dsos, string(module))
			p.dsoByName[string(module)] = id
		}
		e.kind = id
	}
	used := len(p.names)
	if p.subset != nil {
		used = len(p.subset.names)
	}
	if used+len(name)+1 > maxKallsymsBytes {
		return fmt.Errorf("line %d: names are longer than %d bytes", p.line, maxKallsymsBytes)
	}
	if p.subset != nil {
		p.subset.add(&e, name)
		return nil
	}
	e.name = uint32(len(p.names))
	p.names = append(double(p.names, len(name)+1), name...)
	p.names = append(p.names, 0)
	p.entries = append(double(p.entries, 1), e)
	return nil
}

// double makes room for n more values. It allocates half as much in all as
// append does for large slices.
func double[T any](s []T, n int) []T {
	if cap(s)-len(s) >= n {
		return s
	}
	return slices.Grow(s, len(s)+n)
}

// textBinding translates a type letter as nm(1) prints it. It is not ok for
// what is not code.
func textBinding(typ byte) (b binding, ok bool) {
	switch typ {
	case 'T':
		return bindGlobal, true
	case 't':
		return bindLocal, true
	case 'W', 'w':
		return bindWeak, true
	}
	return 0, false
}

// hexDigits is the value of each hexadecimal digit that the kernel prints, and
// notHex for what is none.
var hexDigits = func() (t [256]uint8) {
	for c := range t {
		t[c] = notHex
	}
	for i, c := range []byte("0123456789abcdef") {
		t[c] = uint8(i)
	}
	return t
}()

const notHex = 16

// parseHex reads the digits that b begins with, at most 16.
func parseHex(b []byte) (v uint64, rest []byte, ok bool) {
	n := 0
	for ; n < len(b) && n < 16; n++ {
		digit := hexDigits[b[n]]
		if digit == notHex {
			break
		}
		v = v<<4 | uint64(digit)
	}
	if n == 0 || n == len(b) {
		return 0, nil, false
	}
	return v, b[n:], true
}
