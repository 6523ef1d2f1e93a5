// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bpfprog

import (
	"encoding/hex"

	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// maxSymbol is the longest name that the kernel gives a symbol, with its end
// (KSYM_NAME_LEN of Linux 6.1).
const maxSymbol = 512

// Symbols are the records that say where the program's code is, as the kernel
// writes them when it is loaded: one KSYMBOL for each subprogram and one
// BPF_EVENT. They have no time and no id.
func (d *Details) Symbols() []perf.Record {
	var list []perf.Record
	btf := d.types()
	for i, addr := range d.KSyms {
		if addr == 0 || i >= len(d.FuncLens) {
			continue
		}
		rec := &perf.Ksymbol{Addr: addr, Len: d.FuncLens[i], KsymType: perf.KsymbolBPF, Name: d.symbolName(i, btf)}
		list = append(list, rec)
	}
	return append(list, &perf.BPFEvent{EventType: BPFLoad, ID: d.ID, Tag: d.Tag})
}

// Types of a BPF_EVENT (enum perf_bpf_event_type of linux/perf_event.h).
const (
	BPFLoad   = 1
	BPFUnload = 2
)

// SymbolName is the name of a subprogram's symbol, as the kernel makes it
// (bpf_get_prog_name): bpf_prog_TAG_NAME, the name being that of the function,
// or the program's if that is not known.
func (d *Details) SymbolName(sub int) string { return d.symbolName(sub, d.types()) }

// types is the program's BTF, nil if there is none or it makes no sense.
func (d *Details) types() *perfdata.BTF {
	f, _ := perfdata.ParseBTF(d.BTF, nativeOrder)
	return f
}

func (d *Details) symbolName(sub int, btf *perfdata.BTF) string {
	// The kernel names the main program by the program's tag, which is not
	// always that of its function, the first of Tags.
	tag := d.Tag
	if sub > 0 && sub < len(d.Tags) {
		tag = d.Tags[sub]
	}
	name := ""
	if sub < len(d.Funcs) {
		name = btf.Func(d.Funcs[sub].Type)
	}
	if name == "" && (sub == 0 || len(d.KSyms) == 1) {
		name = d.Name
	}
	s := "bpf_prog_" + hex.EncodeToString(tag[:])
	if name == "" {
		// Before it was told of functions, the kernel called them F.
		name = "F"
		if len(d.KSyms) <= 1 {
			return s
		}
	}
	s += "_" + name
	return s[:min(len(s), maxSymbol-1)]
}
