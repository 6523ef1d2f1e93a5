// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"fmt"
	"strings"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/analysis/symbol/bpfinfo"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// UnknownLoader is the container of a BPF program's loader that was not seen.
const UnknownLoader = "[unknown]"

// bpf is what the recording tells of BPF programs.
type bpf struct {
	programs *bpfinfo.Programs
	err      error
	size     int                          // of the section that programs are read from
	changes  int                          // of gantry's section
	loaders  map[uint32]string            // container by program
	texts    map[symbol.Ksym]programOwner // by symbol
}

// programOwner says which program a symbol is of.
type programOwner struct{ program, loader string }

// BPFPrograms are the BPF programs that the recording has details of. In a
// stream they may come late.
func (s *Session) BPFPrograms() *bpfinfo.Programs {
	f, b := s.r.Features(), &s.bpf
	if b.size == len(f.BPFProgInfo) && b.changes == s.gantryChanges {
		return b.programs
	}
	b.size, b.changes = len(f.BPFProgInfo), s.gantryChanges
	b.programs, b.err = bpfinfo.Read(f, s.r.Order())
	b.loaders, b.texts = nil, nil
	return b.programs
}

// bpfProgram is what is known of the program that a symbol is of, nil if
// nothing.
func (s *Session) bpfProgram(k *symbol.Ksym) *bpfinfo.Program {
	if k.Type != symbol.KsymBPF || k.Program == 0 {
		return nil
	}
	return s.BPFPrograms().Program(k.Program)
}

// bpfOwner names the program of a symbol, NAME#ID, and the container that loaded
// it: profile.Host for none, UnknownLoader if it was not seen. Both are empty for
// what is no BPF program.
func (s *Session) bpfOwner(k *symbol.Ksym) (program, loader string) {
	if k.Type != symbol.KsymBPF || !strings.HasPrefix(k.Name, symbol.BPFPrefix) {
		return "", ""
	}
	prog := s.bpfProgram(k) // which may forget texts
	if w, ok := s.bpf.texts[*k]; ok {
		return w.program, w.loader
	}
	w := programOwner{bpfName(k), UnknownLoader}
	if prog != nil {
		if name := prog.FullName(); name != "" {
			w.program = name
		}
		w.loader = s.bpfLoader(prog)
	}
	if k.Program != 0 {
		w.program = fmt.Sprintf("%s#%d", w.program, k.Program)
	}
	if s.bpf.texts == nil {
		s.bpf.texts = make(map[symbol.Ksym]programOwner)
	}
	s.bpf.texts[*k] = w
	return w.program, w.loader
}

// bpfName is the name in a symbol bpf_prog_TAG_NAME, or the tag if there is none.
func bpfName(k *symbol.Ksym) string {
	tag, name, _ := strings.Cut(strings.TrimPrefix(k.Name, symbol.BPFPrefix), "_")
	if name == "" {
		return tag
	}
	return name
}

// bpfLoader is the container that a program's loader was in when it loaded it.
func (s *Session) bpfLoader(p *bpfinfo.Program) string {
	if p.Life == nil || p.Life.Loader == nil {
		return UnknownLoader
	}
	if name, ok := s.bpf.loaders[p.ID]; ok {
		return name
	}
	name := s.containerThen(p.Life.Loader, p.Life.Loaded)
	if s.bpf.loaders == nil {
		s.bpf.loaders = make(map[uint32]string)
	}
	s.bpf.loaders[p.ID] = name
	return name
}

// containerThen is ContainerName for a task that loaded a program at a time.
func (s *Session) containerThen(l *perfdata.BPFLoader, time uint64) string {
	defer func(now uint64) { s.now = now }(s.now)
	s.now = time
	s.findHost()
	task := container.Task{Cgroup: container.CgroupID(l.Cgroup), CgroupPath: s.CgroupPath(l.Cgroup),
		Time: s.sinceBoot()}
	for kind, inode := range l.Namespaces {
		if ns, ok := container.ParseNamespace(kind); ok {
			task.Namespaces[ns] = inode
		}
	}
	c := s.containerOf(&task)
	d := s.Definitions().Find(container.DefContainer)
	id, m := s.Containers.Judge(d, &task)
	text := ""
	if m == container.Inside {
		text = d.Text(id)
	}
	out := profile.Identity{ID: text, Name: s.containerName(c, m, task.CgroupPath, text)}
	switch name := out.Text(); name {
	case "":
		return profile.Host
	case UnknownContainer:
		return UnknownLoader
	default:
		return name
	}
}

// bpfLine is the line of source of an address in a symbol of a BPF program.
func (s *Session) bpfLine(k *symbol.Ksym, addr uint64) (bpfinfo.Line, bool) {
	if p := s.bpfProgram(k); p != nil {
		return p.Line(addr)
	}
	return bpfinfo.Line{}, false
}

// bpfWarnings tell what of the details could not be read.
func (s *Session) bpfWarnings() []string {
	if s.bpf.err == nil {
		return nil
	}
	return []string{fmt.Sprintf("BPF programs may lack names and lines: %v", s.bpf.err)}
}
