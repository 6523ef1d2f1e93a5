// SPDX-License-Identifier: Apache-2.0

package perftext

import (
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/perf"
)

// record walks the fields of rec behind its misc field: body and sample_id.
func (f *fields) record(rec perf.Record, ev *perf.Event) {
	if s, ok := rec.(*perf.Sample); ok {
		if ev == nil {
			f.fail(syntaxError(f.end, "a sample needs an event line before it"))
			return
		}
		f.sample(s, ev)
		return
	}
	f.all = true
	if rec.RecordType().Kernel() {
		f.kernel(rec, ev)
	} else {
		f.user(rec)
	}
	f.all = false
	if u, ok := rec.(*perf.Unknown); ok {
		f.all = true
		f.bytes("bytes", &u.Data)
		f.all = false
	}
	if id := perf.SampleIDOf(rec); id != nil && ev != nil {
		f.sampleID(id, ev)
	}
}

// kernel walks the body of a record of the kernel.
func (f *fields) kernel(rec perf.Record, ev *perf.Event) {
	switch r := rec.(type) {
	case *perf.Mmap:
		f.task(&r.PID, &r.TID)
		f.extent(&r.Addr, &r.Len, &r.PgOff)
		f.str(&r.Filename)
	case *perf.Mmap2:
		f.mmap2(r)
	case *perf.Lost:
		num(f, "id", &r.ID)
		num(f, "lost", &r.N)
	case *perf.Comm:
		f.task(&r.PID, &r.TID)
		f.str(&r.Comm)
	case *perf.Fork:
		f.fork(&r.Task)
	case *perf.Exit:
		f.fork(&r.Task)
	case *perf.Throttle:
		num(f, "time", &r.Time)
		num(f, "id", &r.ID)
		num(f, "stream", &r.StreamID)
	case *perf.Read:
		f.task(&r.PID, &r.TID)
		if ev != nil {
			f.counts(&r.Values, ev.Attr.ReadFormat)
		}
	case *perf.Aux:
		hexa(f, "offset", &r.Offset)
		hexa(f, "size", &r.Size)
		hexa(f, "flags", &r.Flags)
	case *perf.ItraceStart:
		f.task(&r.PID, &r.TID)
	case *perf.LostSamples:
		num(f, "lost", &r.N)
	case *perf.SwitchCPUWide:
		num(f, "next_prev_pid", &r.NextPrevPID)
		num(f, "next_prev_tid", &r.NextPrevTID)
	case *perf.Namespaces:
		f.task(&r.PID, &r.TID)
		f.namespaces(&r.Links)
	default:
		f.kernelText(rec)
	}
}

// kernelText walks the records about the kernel's own text, and cgroups.
func (f *fields) kernelText(rec perf.Record) {
	switch r := rec.(type) {
	case *perf.Ksymbol:
		hexa(f, "addr", &r.Addr)
		num(f, "len", &r.Len)
		enum(f, "type", &r.KsymType, ksymbolTypes())
		flags(f, "flags", &r.Flags, ksymbolFlags())
		f.str(&r.Name)
	case *perf.BPFEvent:
		enum(f, "type", &r.EventType, bpfEventTypes())
		hexa(f, "flags", &r.Flags)
		num(f, "id", &r.ID)
		tag := r.Tag[:]
		f.bytes("tag", &tag)
		if len(tag) != len(r.Tag) {
			f.fail(syntaxError(f.end, "a tag has %d bytes", len(r.Tag)))
		}
		copy(r.Tag[:], tag)
	case *perf.Cgroup:
		num(f, "id", &r.ID)
		f.str(&r.Path)
	case *perf.TextPoke:
		hexa(f, "addr", &r.Addr)
		f.bytes("old", &r.Old)
		f.bytes("new", &r.New)
	case *perf.AuxOutputHWID:
		hexa(f, "hw_id", &r.HWID)
	case *perf.CallchainDeferred:
		hexa(f, "cookie", &r.Cookie)
		f.chain("callchain", &r.IPs)
	}
}

func (f *fields) task(pid, tid *int32) {
	num(f, "pid", pid)
	num(f, "tid", tid)
}

func (f *fields) extent(addr, length, pgoff *uint64) {
	hexa(f, "addr", addr)
	hexa(f, "len", length)
	hexa(f, "pgoff", pgoff)
}

func (f *fields) fork(t *perf.Task) {
	num(f, "pid", &t.PID)
	num(f, "ppid", &t.PPID)
	num(f, "tid", &t.TID)
	num(f, "ptid", &t.PTID)
	num(f, "time", &t.Time)
}

func (f *fields) mmap2(r *perf.Mmap2) {
	f.task(&r.PID, &r.TID)
	f.extent(&r.Addr, &r.Len, &r.PgOff)
	if r.Misc&perf.MiscMmapBuildID != 0 {
		f.bytes("build_id", &r.BuildID)
		if len(r.BuildID) > 20 {
			f.fail(syntaxError(f.end, "a build-id has at most 20 bytes"))
		}
	} else {
		num(f, "maj", &r.Maj)
		num(f, "min", &r.Min)
		num(f, "ino", &r.Ino)
		num(f, "ino_gen", &r.InoGen)
	}
	flags(f, "prot", &r.Prot, protNames())
	flags(f, "flags", &r.Flags, mapNames())
	f.str(&r.Filename)
}

// namespaces are links=net:3/4026531840,uts:... in the order of the indexes.
func (f *fields) namespaces(links *[]perf.NSLink) {
	if !f.parse {
		for i, l := range *links {
			if i == 0 {
				f.key("links")
			} else {
				f.b = append(f.b, ',')
			}
			f.b = append(append(f.b, nsName(i)...), ':')
			f.b = strconv.AppendUint(f.b, l.Dev, 10)
			f.b = strconv.AppendUint(append(f.b, '/'), l.Ino, 10)
		}
		return
	}
	t := f.take("links")
	if t == nil || t.val == "" {
		return
	}
	for entry := range strings.SplitSeq(t.val, ",") {
		want := nsName(len(*links))
		name, rest, _ := strings.Cut(entry, ":")
		dev, ino, _ := strings.Cut(rest, "/")
		d, err1 := strconv.ParseUint(dev, 0, 64)
		i, err2 := strconv.ParseUint(ino, 0, 64)
		if name != want || err1 != nil || err2 != nil {
			f.fail(syntaxError(t.col, "links: %q is not %s:DEV/INODE", entry, want))
			return
		}
		*links = append(*links, perf.NSLink{Dev: d, Ino: i})
	}
}

func nsName(i int) string {
	if names := nsNames(); i < len(names) {
		return names[i]
	}
	return strconv.Itoa(i)
}

// chain is a callchain: addresses, and marks by their names.
func (f *fields) chain(key string, ips *[]uint64) {
	if !f.parse {
		for i, ip := range *ips {
			if i == 0 {
				f.key(key)
			} else {
				f.b = append(f.b, ',')
			}
			f.b = appendAddr(f.b, ip)
		}
		return
	}
	t := f.take(key)
	if t == nil || t.val == "" {
		return
	}
	names := contexts()
	for word := range strings.SplitSeq(t.val, ",") {
		ip, ok := valueOf(word, names)
		if !ok {
			f.fail(syntaxError(t.col, "%s: %q is neither an address nor a mark", key, word))
			return
		}
		*ips = append(*ips, ip)
	}
}

func appendAddr(b []byte, ip uint64) []byte {
	if ip >= perf.ContextMax {
		for _, n := range contexts() {
			if n.bits == ip {
				return append(b, n.name...)
			}
		}
	}
	return appendNumber(b, ip, 16)
}
