// SPDX-License-Identifier: Apache-2.0

package script

import (
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/perf"
)

// kindOf says with which others a record is shown.
func kindOf(t perf.RecordType) Show {
	switch t {
	case perf.RecordMmap, perf.RecordMmap2:
		return ShowMmap
	case perf.RecordComm, perf.RecordFork, perf.RecordExit:
		return ShowTask
	case perf.RecordNamespaces:
		return ShowNamespace
	case perf.RecordLost, perf.RecordLostSamples:
		return ShowLost
	case perf.RecordSwitch, perf.RecordSwitchCPUWide:
		return ShowSwitch
	case perf.RecordKsymbol, perf.RecordBPFEvent:
		return ShowBPF
	case perf.RecordCgroup:
		return ShowCgroup
	case perf.RecordTextPoke:
		return ShowTextPoke
	}
	return 0
}

// sideband prints a record that is not a sample, if it is to be shown.
func (p *printer) sideband(it *analysis.Item) {
	if p.o.Show&kindOf(it.Type) == 0 {
		return
	}
	ev := it.Event
	if ev == nil {
		list := p.r.Events().List()
		if len(list) == 0 {
			return
		}
		ev = list[0]
	}
	t := threadID{misc: it.Misc, typ: it.Type}
	pid, tid := subject(it.Other)
	if id := perf.SampleIDOf(it.Other); id != nil {
		t.pid, t.tid, t.cpu, t.time = id.PID, id.TID, id.CPU, id.Time
	}
	if !ev.Layout.SampleIDAll {
		t.pid, t.tid = pid, tid
	}
	if pid == noTask {
		pid, tid = t.pid, t.tid
	}
	th := p.s.Timeline.Thread(max(pid, 0), tid)
	t.comm = th.Comm
	it.Thread = th
	if !p.selected(it, pid, tid, t.cpu, t.time) {
		return
	}
	pl := *p.plan(ev)
	pl.fields &= head
	dst := p.head(p.buf, &pl, &t)
	p.buf = append(appendRecord(dst, it.Other), '\n')
}

// noTask marks records that are about no task.
const noTask = -2

// subject is the task that a record is about.
func subject(rec perf.Record) (pid, tid int32) {
	switch r := rec.(type) {
	case *perf.Mmap:
		return r.PID, r.TID
	case *perf.Mmap2:
		return r.PID, r.TID
	case *perf.Comm:
		return r.PID, r.TID
	case *perf.Fork:
		return r.PID, r.TID
	case *perf.Exit:
		return r.PID, r.TID
	case *perf.Namespaces:
		return r.PID, r.TID
	}
	return noTask, noTask
}

// appendRecord prints what a record says.
func appendRecord(dst []byte, rec perf.Record) []byte {
	dst = append(append(dst, "PERF_RECORD_"...), rec.RecordType().String()...)
	misc := perf.MiscOf(rec)
	switch r := rec.(type) {
	case *perf.Mmap:
		perm := byte('x')
		if misc&perf.MiscMmapData != 0 {
			perm = 'r'
		}
		dst = fmt.Appendf(dst, " %d/%d: [%#x(%#x) @ %s]: %c ", r.PID, r.TID, r.Addr, r.Len, bareHex(r.PgOff), perm)
		dst = appendText(dst, r.Filename, 0)
	case *perf.Mmap2:
		dst = appendMmap2(dst, r)
	case *perf.Comm:
		if misc&perf.MiscCommExec != 0 {
			dst = append(dst, " exec"...)
		}
		dst = fmt.Appendf(appendText(append(dst, ": "...), r.Comm, 0), ":%d/%d", r.PID, r.TID)
	case *perf.Fork:
		dst = appendTask(dst, &r.Task)
	case *perf.Exit:
		dst = appendTask(dst, &r.Task)
	case *perf.Namespaces:
		dst = appendNamespaces(dst, r)
	case *perf.Lost:
		dst = fmt.Appendf(dst, " lost %d", r.N)
	case *perf.LostSamples:
		dst = fmt.Appendf(dst, " lost %d", r.N)
	case *perf.Switch:
		dst = appendSwitch(dst, misc)
	case *perf.SwitchCPUWide:
		dst = appendSwitch(dst, misc)
		which := "prev"
		if misc&perf.MiscSwitchOut != 0 {
			which = "next"
		}
		dst = fmt.Appendf(dst, "  %s pid/tid: %5d/%-5d", which, r.NextPrevPID, r.NextPrevTID)
	default:
		dst = appendKernelRecord(dst, rec)
	}
	return dst
}

func bareHex(v uint64) string {
	if v == 0 {
		return "0"
	}
	return "0x" + strconv.FormatUint(v, 16)
}

func appendTask(dst []byte, t *perf.Task) []byte {
	return fmt.Appendf(dst, "(%d:%d):(%d:%d)", t.PID, t.TID, t.PPID, t.PTID)
}

func appendSwitch(dst []byte, m perf.Misc) []byte {
	switch {
	case m&perf.MiscSwitchOut == 0:
		return append(dst, " IN         "...)
	case m&perf.MiscSwitchOutPreempt != 0:
		return append(dst, " OUT preempt"...)
	}
	return append(dst, " OUT        "...)
}

// mapShared is MAP_SHARED of sys/mman.h, the others PROT_*.
const (
	protRead  = 1
	protWrite = 2
	protExec  = 4
	mapShared = 1
)

func appendMmap2(dst []byte, r *perf.Mmap2) []byte {
	dst = fmt.Appendf(dst, " %d/%d: [%#x(%#x) @ %s ", r.PID, r.TID, r.Addr, r.Len, bareHex(r.PgOff))
	if r.Misc&perf.MiscMmapBuildID != 0 {
		dst = append(hex.AppendEncode(append(dst, '<'), r.BuildID), '>')
	} else {
		dst = fmt.Appendf(dst, "%02x:%02x %d %d", r.Maj, r.Min, r.Ino, r.InoGen)
	}
	dst = append(dst, "]: "...)
	for _, f := range [...]struct {
		set     bool
		yes, no byte
	}{
		{r.Prot&protRead != 0, 'r', '-'}, {r.Prot&protWrite != 0, 'w', '-'}, {r.Prot&protExec != 0, 'x', '-'},
		{r.Flags&mapShared != 0, 's', 'p'},
	} {
		if f.set {
			dst = append(dst, f.yes)
		} else {
			dst = append(dst, f.no)
		}
	}
	return appendText(append(dst, ' '), r.Filename, 0)
}

// appendNamespaces prints four namespaces to a line.
func appendNamespaces(dst []byte, r *perf.Namespaces) []byte {
	names := [...]string{"net", "uts", "ipc", "pid", "user", "mnt", "cgroup"}
	dst = fmt.Appendf(dst, " %d/%d - nr_namespaces: %d\n\t\t[", r.PID, r.TID, len(r.Links))
	for i, l := range r.Links {
		name := "?"
		if i < len(names) {
			name = names[i]
		}
		if i > 0 {
			dst = append(dst, ", "...)
			if i%4 == 0 {
				dst = append(dst, "\n\t\t "...)
			}
		}
		dst = fmt.Appendf(dst, "%d/%s: %d/%s", i, name, l.Dev, bareHex(l.Ino))
	}
	return append(dst, ']')
}

// appendKernelRecord prints the records about the kernel's own text, and
// cgroups.
func appendKernelRecord(dst []byte, rec perf.Record) []byte {
	switch r := rec.(type) {
	case *perf.Ksymbol:
		dst = fmt.Appendf(dst, " addr %x len %d type %d flags %#x name ", r.Addr, r.Len, r.KsymType, r.Flags)
		return appendText(dst, r.Name, 0)
	case *perf.BPFEvent:
		return fmt.Appendf(dst, " type %d, flags %d, id %d", r.EventType, r.Flags, r.ID)
	case *perf.Cgroup:
		return appendText(fmt.Appendf(dst, " cgroup: %d ", r.ID), r.Path, 0)
	case *perf.TextPoke:
		dst = fmt.Appendf(dst, " %x  old len %d new len %d", r.Addr, len(r.Old), len(r.New))
		dst = appendBytes(append(dst, "\n            Old bytes:"...), r.Old)
		return appendBytes(append(dst, "\n            New bytes:"...), r.New)
	}
	return dst
}

func appendBytes(dst, b []byte) []byte {
	for i := range b {
		dst = hex.AppendEncode(append(dst, ' '), b[i:i+1])
	}
	return dst
}
