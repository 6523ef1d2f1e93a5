// SPDX-License-Identifier: Apache-2.0

package perftext

import "github.com/gantry-tools/gantry/perf"

// user walks the body of a record of perf itself.
func (f *fields) user(rec perf.Record) {
	switch r := rec.(type) {
	case *perf.HeaderAttr:
		f.all = false
		f.attr(&r.Attr)
		f.words("ids", 10, &r.IDs)
	case *perf.TracingData:
		num(f, "size", &r.Size)
	case *perf.BuildID:
		num(f, "pid", &r.PID)
		f.buildID(&r.ID)
		f.str(&r.Filename)
	case *perf.IDIndex:
		tuples(f, "entries", 10, &r.Entries, func(e *perf.IDIndexEntry) []*uint64 {
			return []*uint64{&e.ID, &e.Idx, &e.CPU, &e.TID}
		})
		f.all = false
		f.bytes("extra", &r.Extra)
	case *perf.AuxtraceInfo:
		num(f, "type", &r.InfoType)
		f.bytes("priv", &r.Priv)
		f.all = false
		hexa(f, "reserved", &r.Reserved)
	case *perf.Auxtrace:
		f.auxtrace(r)
	case *perf.ThreadMap:
		f.threadMap(&r.Threads)
	case *perf.CPUMap:
		num(f, "type", &r.MapType)
		f.bytes("data", &r.Data)
	case *perf.EventUpdate:
		f.eventUpdate(r)
	case *perf.TimeConv:
		f.timeConv(r)
	case *perf.HeaderFeature:
		num(f, "feature", &r.Feature)
		f.bytes("data", &r.Data)
	case *perf.Compressed:
		f.bytes("data", &r.Data)
	case *perf.Compressed2:
		f.bytes("data", &r.Data)
	}
}

func (f *fields) buildID(id *[]byte) {
	f.bytes("build_id", id)
	if len(*id) > 20 {
		f.fail(syntaxError(f.end, "a build-id has at most 20 bytes"))
	}
}

func (f *fields) auxtrace(r *perf.Auxtrace) {
	hexa(f, "size", &r.Size)
	hexa(f, "offset", &r.Offset)
	hexa(f, "reference", &r.Reference)
	num(f, "idx", &r.Idx)
	num(f, "tid", &r.TID)
	num(f, "cpu", &r.CPU)
	f.all = false
	hexa(f, "reserved", &r.Reserved)
}

// threadMap is a list of pids and as many names.
func (f *fields) threadMap(list *[]perf.ThreadMapEntry) {
	var pids []uint64
	var comms []string
	for _, t := range *list {
		pids, comms = append(pids, t.PID), append(comms, t.Comm)
	}
	f.words("pids", 10, &pids)
	f.strs(&comms)
	if !f.parse {
		return
	}
	if len(pids) != len(comms) {
		f.fail(syntaxError(f.end, "%d pids and %d names", len(pids), len(comms)))
		return
	}
	for i := range pids {
		*list = append(*list, perf.ThreadMapEntry{PID: pids[i], Comm: comms[i]})
	}
}

func (f *fields) eventUpdate(r *perf.EventUpdate) {
	enum(f, "kind", &r.Kind, updateKinds())
	num(f, "id", &r.ID)
	switch r.Kind {
	case perf.EventUpdateUnit, perf.EventUpdateName:
		f.str(&r.Text)
	case perf.EventUpdateScale:
		f.float("scale", &r.Scale)
	default:
		f.bytes("data", &r.Data)
	}
}

func (f *fields) timeConv(r *perf.TimeConv) {
	num(f, "shift", &r.TimeShift)
	num(f, "mult", &r.TimeMult)
	num(f, "zero", &r.TimeZero)
	f.all = false
	f.boolean("short", &r.Short)
	if r.Short {
		return
	}
	f.all = true
	num(f, "cycles", &r.TimeCycles)
	hexa(f, "mask", &r.TimeMask)
	num(f, "cap_user_time_zero", &r.CapUserTimeZero)
	num(f, "cap_user_time_short", &r.CapUserTimeShort)
}
