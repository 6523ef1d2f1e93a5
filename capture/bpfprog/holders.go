// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bpfprog

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// Holding is what the descriptors of processes tell of programs, by id.
type Holding struct {
	// Holders have a descriptor of the program, or of a link or perf event
	// that it is attached to, the first by pid in front. The kernel does not tell who
	// loaded a program; it is one of these as a rule.
	Holders map[uint32][]perfdata.BPFLoader
	// Attached is where programs are attached without a link.
	Attached map[uint32][]perfdata.BPFAttachment
}

// maxHolders bounds the holders of one program that are kept.
const maxHolders = 16

// Holders looks at the descriptors of all processes. Processes that cannot be looked
// at are passed over.
func Holders(fsys procfs.FS) (*Holding, error) {
	pids, err := fsys.PIDs()
	if err != nil {
		return nil, err
	}
	h := &Holding{make(map[uint32][]perfdata.BPFLoader), make(map[uint32][]perfdata.BPFAttachment)}
	tasks := newTaskReader(fsys)
	for _, pid := range pids {
		seen := make(map[uint32]bool)
		dir := fsys.Proc(pid).Path("fd")
		for fd, target := range links(dir) {
			id := h.program(fsys, pid, fd, target)
			if id == 0 || seen[id] || len(h.Holders[id]) >= maxHolders {
				continue
			}
			seen[id] = true
			l := perfdata.BPFLoader{PID: int32(pid)}
			tasks.read(&l)
			h.Holders[id] = append(h.Holders[id], l)
		}
	}
	return h, nil
}

// links are the descriptors of a process that may have to do with BPF.
func links(dir string) map[int]string {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	found := make(map[int]string)
	for _, name := range names {
		target, err := os.Readlink(dir + "/" + name)
		fd, e := strconv.Atoi(name)
		if err == nil && e == nil && strings.HasPrefix(target, "anon_inode:") {
			found[fd] = target
		}
	}
	return found
}

// program is the id of the program behind a descriptor, 0 if there is none.
func (h *Holding) program(fsys procfs.FS, pid, fd int, target string) uint32 {
	switch {
	case target == "anon_inode:bpf-prog", strings.HasPrefix(target, "anon_inode:bpf_link"),
		strings.HasPrefix(target, "anon_inode:bpf_iter"):
		f, err := os.Open(fsys.Proc(pid).Path("fdinfo/" + strconv.Itoa(fd)))
		if err != nil {
			return 0
		}
		defer f.Close()
		return progID(f)
	case target == "anon_inode:[perf_event]":
		q, err := sys.BPFQueryTaskFD(pid, fd)
		if err != nil || q.Program == 0 {
			return 0
		}
		h.attached(q)
		return q.Program
	}
	return 0
}

// progID reads the line prog_id of a fdinfo.
func progID(r io.Reader) uint32 {
	lines := bufio.NewScanner(io.LimitReader(r, 64<<10))
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "prog_id:"); ok {
			id, _ := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
			return uint32(id)
		}
	}
	return 0
}

// Kinds of descriptors (enum bpf_task_fd_type of linux/bpf.h).
var taskFDKinds = [...]string{"raw_tracepoint", "tracepoint", "kprobe", "kretprobe", "uprobe", "uretprobe"}

func (h *Holding) attached(q sys.BPFTaskFD) {
	a := perfdata.BPFAttachment{Kind: "perf", Target: q.Name}
	if q.Type < uint32(len(taskFDKinds)) {
		a.Kind = taskFDKinds[q.Type]
	}
	if q.Offset != 0 && a.Target != "" {
		a.Target += "+0x" + strconv.FormatUint(q.Offset, 16)
	}
	list := h.Attached[q.Program]
	if len(list) >= maxLinks {
		return
	}
	for _, had := range list { // one descriptor for each CPU
		if had == a {
			return
		}
	}
	h.Attached[q.Program] = append(list, a)
}
