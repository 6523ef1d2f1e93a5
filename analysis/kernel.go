// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"path"
	"strings"

	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// kernel names kernel addresses.
type kernel struct {
	ref    symbol.Reference // where the recorded kernel was
	id     buildid.ID       // that its mapping tells, zero if none
	loaded bool
	table  *symbol.Kallsyms
	err    error
	shift  uint64 // recorded address minus the table's
}

// mapped takes note of where and which the kernel was: perf calls its mapping
// "[kernel.kallsyms]_text", or "..._stext", and gives that symbol's address as its
// offset.
func (k *kernel) mapped(pid int32, filename string, pgoff uint64, id []byte) {
	name, ok := strings.CutPrefix(filename, symbol.KernelDSO)
	if pid != -1 || k.ref.Addr != 0 || !ok || name != "_text" && name != "_stext" {
		return
	}
	k.ref = symbol.Reference{Name: name, Addr: pgoff}
	if id, err := buildid.New(id); err == nil {
		k.id = id
	}
}

// loadKernel asks for the kernel's symbols, once: for all, or if addrs is not
// nil for those at these addresses.
func (s *Session) loadKernel(addrs []uint64) *kernel {
	k := &s.kernel
	if k.loaded {
		return k
	}
	k.loaded = true
	if s.opts.Kallsyms == nil {
		return k
	}
	k.table, k.err = s.opts.Kallsyms(s.kernelAsked(addrs))
	if k.err != nil {
		s.warnings = append(s.warnings, "kernel functions have no names: "+k.err.Error())
		return k
	}
	k.shift, _ = k.table.Shift(k.ref)
	return k
}

// lookup is the symbol at an address of the recording, and its address in the
// table. Of a kernel that was loaded elsewhere only the kernel itself is known:
// modules do not move along with it.
func (k *kernel) lookup(ip uint64) (sym int32, addr uint64, ok bool) {
	if k.table == nil {
		return 0, ip, false
	}
	addr = ip - k.shift
	if k.shift != 0 && !k.table.InKernel(addr) {
		return 0, ip, false
	}
	sym, ok = k.table.Lookup(addr)
	return sym, addr, ok
}

// kernelAsked is what is known of the kernel.
func (s *Session) kernelAsked(addrs []uint64) Kernel {
	f := s.r.Features()
	k := Kernel{BuildID: s.kernel.id, Addrs: addrs, Reference: s.kernel.ref, Release: f.OSRelease, Arch: f.Arch}
	if id, ok := s.ids.of(symbol.KernelDSO); ok {
		k.BuildID = id
	}
	if k.BuildID.IsZero() {
		k.BuildID = s.ids.kernel
	}
	return k
}

// locateKernel names a kernel address.
func (s *Session) locateKernel(ip uint64) frameSource {
	p := frameSource{addr: ip, sym: noSymbol, kernel: true}
	if sym, ok := s.Timeline.Ksyms.Lookup(ip); ok {
		p.ksym, p.isKsym = sym, true
		return p
	}
	k := s.loadKernel(nil)
	if m := s.Timeline.Kernel.Find(ip); m != nil {
		p.mapping = *m
	}
	if sym, addr, ok := k.lookup(ip); ok {
		p.sym, p.addr = sym, addr
	}
	return p
}

// moduleName is what perf calls the module of a file: /lib/.../nf_nat.ko.xz
// is [nf_nat].
func moduleName(file string) string {
	if strings.HasPrefix(file, "[") {
		if i := strings.IndexByte(file, ']'); i > 0 {
			return file[:i+1]
		}
		return file
	}
	name, _, found := strings.Cut(path.Base(file), ".ko")
	if !found {
		return path.Base(file)
	}
	return "[" + strings.ReplaceAll(name, "-", "_") + "]"
}

// pathIDs is the BUILD_ID feature: build-ids by path. A path that has several
// has none, because nothing says which mapping had which.
type pathIDs struct {
	ids       map[string]buildid.ID
	ambiguous map[string]bool
	kernel    buildid.ID // under the path of its image, as perf has it with -k
}

func (p *pathIDs) add(list []perfdata.BuildIDEntry) {
	for _, e := range list {
		p.addOne(e)
	}
}

func (p *pathIDs) addOne(e perfdata.BuildIDEntry) {
	path := e.Path
	id, err := buildid.New(e.ID)
	if err != nil || path == "" {
		return
	}
	if e.Misc.CPUMode() == perf.MiscKernel && isKernelImage(path) {
		p.kernel = id
	}
	if p.ids == nil {
		p.ids = make(map[string]buildid.ID)
		p.ambiguous = make(map[string]bool)
	}
	if old, ok := p.ids[path]; ok && old != id {
		p.ambiguous[path] = true
	}
	p.ids[path] = id
}

// isKernelImage reports whether a kernel file with a build-id is the kernel
// itself, and not a module.
func isKernelImage(name string) bool {
	return strings.HasPrefix(name, "/") && !strings.Contains(path.Base(name), ".ko")
}

func (p *pathIDs) of(path string) (buildid.ID, bool) {
	id, ok := p.ids[path]
	return id, ok && !p.ambiguous[path]
}
