// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"syscall"

	"github.com/gantry-tools/gantry/capture/snapshot"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/perf"
)

// snapshotView is a snapshot as JSON has it; docs/snapshot.md describes it.
type snapshotView struct {
	snapshot.Stats
	List []*processView `json:"list"`

	choice *taskChoice
	at     map[int32]*processView
}

// processView is one process.
type processView struct {
	PID       int32         `json:"pid"`
	PPID      int32         `json:"ppid"`
	Kernel    bool          `json:"kernel,omitempty"`
	Zombie    bool          `json:"zombie,omitempty"`
	Container string        `json:"container"`
	Threads   []threadView  `json:"threads"`
	Mappings  []mappingView `json:"mappings"`
}

// threadView is one thread.
type threadView struct {
	TID        int32                `json:"tid"`
	Comm       string               `json:"comm"`
	Start      uint64               `json:"start_time"` // ns of CLOCK_BOOTTIME
	Cgroup     string               `json:"cgroup,omitempty"`
	Namespaces container.Namespaces `json:"namespaces"`
}

// mappingView is one executable mapping.
type mappingView struct {
	Start   uint64 `json:"start"`
	End     uint64 `json:"end"`
	Offset  uint64 `json:"offset"`
	Prot    string `json:"prot"` // as r-x
	Shared  bool   `json:"shared"`
	Device  string `json:"device,omitempty"` // as 8:1
	Inode   uint64 `json:"inode,omitempty"`
	BuildID string `json:"build_id,omitempty"`
	Path    string `json:"path"`
}

// sink gathers.
func (v *snapshotView) sink() snapshot.Sink {
	return snapshot.Sink{
		Want: func(t *snapshot.Task) bool {
			if !v.choice.wants(t) {
				return false
			}
			v.task(t)
			return true
		},
		Record: func(rec perf.Record) error {
			if m, ok := rec.(*perf.Mmap2); ok {
				v.mapping(m)
			}
			return nil
		},
	}
}

func (v *snapshotView) task(t *snapshot.Task) {
	place := v.choice.place(t)
	p := v.at[t.PID]
	if p == nil {
		in := hostName // where the kernel's threads are
		if !t.Kernel {
			in = v.choice.name(&place)
		}
		p = &processView{PID: t.PID, PPID: t.PPID, Kernel: t.Kernel, Container: in, Threads: []threadView{},
			Mappings: []mappingView{}}
		v.at[t.PID] = p
		v.List = append(v.List, p)
	}
	if t.PID == t.TID {
		p.Zombie = t.Zombie
	}
	th := threadView{TID: t.TID, Comm: t.Comm, Start: t.Start, Cgroup: place.CgroupPath, Namespaces: place.Namespaces}
	if i := slices.IndexFunc(p.Threads, func(o threadView) bool { return o.TID == t.TID }); i >= 0 {
		p.Threads[i] = th // read again, since its number was another's before
		return
	}
	p.Threads = append(p.Threads, th)
}

func (v *snapshotView) mapping(m *perf.Mmap2) {
	p := v.at[m.PID]
	if p == nil {
		return
	}
	view := mappingView{
		Start: m.Addr, End: m.Addr + m.Len, Offset: m.PgOff, Shared: m.Flags&syscall.MAP_SHARED != 0,
		Prot: protText(m.Prot), Path: m.Filename, BuildID: hex.EncodeToString(m.BuildID),
	}
	if m.Ino != 0 {
		view.Device, view.Inode = fmt.Sprintf("%d:%d", m.Maj, m.Min), m.Ino
	}
	p.Mappings = append(p.Mappings, view)
}

// in is the container in text.
func (p *processView) in() string { return container.Printable(cmp.Or(p.Container, "-")) }

// protText is PROT_* as /proc/PID/maps has it.
func protText(prot uint32) string {
	b := []byte("---")
	for i, c := range []byte("rwx") {
		if prot&(1<<i) != 0 {
			b[i] = c
		}
	}
	return string(b)
}

// sort puts processes and threads in the order of their numbers, the first
// thread of each first.
func (v *snapshotView) sort() {
	slices.SortFunc(v.List, func(a, b *processView) int { return cmp.Compare(a.PID, b.PID) })
	for _, p := range v.List {
		slices.SortFunc(p.Threads, func(a, b threadView) int {
			return cmp.Or(cmp.Compare(btoi(a.TID != p.PID), btoi(b.TID != p.PID)), cmp.Compare(a.TID, b.TID))
		})
		slices.SortStableFunc(p.Mappings, func(a, b mappingView) int { return cmp.Compare(a.Start, b.Start) })
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (v *snapshotView) writeJSON(w io.Writer) error {
	b := bufio.NewWriter(w)
	enc := json.NewEncoder(b)
	enc.SetIndent("", "  ")
	if v.List == nil {
		v.List = []*processView{}
	}
	if err := enc.Encode(v); err != nil {
		return err
	}
	return b.Flush()
}

// name is the process's, as ps has it.
func (p *processView) name() string {
	comm := "?"
	if len(p.Threads) > 0 {
		comm = container.Printable(p.Threads[0].Comm)
	}
	switch {
	case p.Kernel:
		return "[" + comm + "]"
	case p.Zombie:
		return comm + " <defunct>"
	}
	return comm
}

// writeText writes a table of processes, each with its mappings behind if
// those are asked for.
func (v *snapshotView) writeText(w io.Writer, maps bool) error {
	width := tableWidth(w)
	if maps {
		return v.writeMaps(w, width)
	}
	cols := []column{
		{title: "PID", right: true}, {title: "PPID", right: true}, {title: "THREADS", right: true},
		{title: "MAPS", right: true}, {title: "CONTAINER", cut: cutEnd, keep: 12}, {title: "COMM", cut: cutEnd},
	}
	for _, p := range v.List {
		for i, s := range []string{
			strconv.Itoa(int(p.PID)), strconv.Itoa(int(p.PPID)), strconv.Itoa(len(p.Threads)),
			strconv.Itoa(len(p.Mappings)), p.in(), p.name(),
		} {
			cols[i].cells = append(cols[i].cells, s)
		}
	}
	return writeColumns(w, cols, width)
}

// shortID is how many digits of a build-id are shown.
const shortID = 12

func (v *snapshotView) writeMaps(w io.Writer, width int) error {
	b := bufio.NewWriter(w)
	for _, p := range v.List {
		if len(p.Mappings) == 0 {
			continue
		}
		line := fmt.Sprintf("%d %s in %s", p.PID, p.name(), p.in())
		fmt.Fprintln(b, shorten(line, width, cutEnd))
		for i := range p.Mappings {
			m := &p.Mappings[i]
			head := fmt.Sprintf("  %12x %8x %s %-*s ", m.Start, m.End-m.Start, m.Prot, shortID,
				m.BuildID[:min(shortID, len(m.BuildID))])
			columns := 0
			if width > 0 {
				columns = max(width-len(head), minCut)
			}
			fmt.Fprintln(b, head+shorten(container.Printable(m.Path), columns, cutBegin))
		}
	}
	return b.Flush()
}
