// SPDX-License-Identifier: Apache-2.0

package perftext

import "github.com/gantry-tools/gantry/perf"

// The names in this file are those of the kernel's header, in lower case and
// without their common prefix.

func cpuModes() []name {
	return []name{
		{uint64(perf.MiscKernel), "kernel"}, {uint64(perf.MiscUser), "user"},
		{uint64(perf.MiscHypervisor), "hypervisor"},
		{uint64(perf.MiscGuestKernel), "guest_kernel"}, {uint64(perf.MiscGuestUser), "guest_user"},
	}
}

func cpuMode(m perf.Misc) string {
	for _, n := range cpuModes() {
		if n.bits == uint64(m) {
			return n.name
		}
	}
	return ""
}

// miscNames are the flags in the misc field of records of type t.
func miscNames(t perf.RecordType) []name {
	names := []name{{uint64(perf.MiscStatusOnly), "status_only"},
		{uint64(perf.MiscProcMapParseTimout), "proc_map_parse_timeout"}}
	add := func(m perf.Misc, s string) { names = append(names, name{uint64(m), s}) }
	switch t {
	case perf.RecordMmap:
		add(perf.MiscMmapData, "mmap_data")
	case perf.RecordMmap2:
		add(perf.MiscMmapData, "mmap_data")
		add(perf.MiscMmapBuildID, "build_id")
	case perf.RecordComm:
		add(perf.MiscCommExec, "exec")
	case perf.RecordFork:
		add(perf.MiscForkExec, "exec")
	case perf.RecordSwitch, perf.RecordSwitchCPUWide:
		add(perf.MiscSwitchOut, "out")
		add(perf.MiscSwitchOutPreempt, "preempt")
	case perf.RecordSample:
		add(perf.MiscExactIP, "exact_ip")
	case perf.RecordHeaderBuildID:
		add(perf.MiscBuildIDSize, "size")
	}
	return names
}

func typeNames() []name {
	return numbered(uint64(perf.TypeHardware), "hardware", "software", "tracepoint", "hw_cache", "raw", "breakpoint")
}

// configNames are the events of the types that have an enum.
func configNames(t perf.EventType) []name {
	switch t {
	case perf.TypeHardware:
		return numbered(perf.HWCPUCycles, "cycles", "instructions", "cache-references", "cache-misses", "branches",
			"branch-misses", "bus-cycles", "stalled-cycles-frontend", "stalled-cycles-backend", "ref-cycles")
	case perf.TypeSoftware:
		return numbered(perf.SWCPUClock, "cpu-clock", "task-clock", "page-faults", "context-switches", "cpu-migrations",
			"minor-faults", "major-faults", "alignment-faults", "emulation-faults", "dummy", "bpf-output",
			"cgroup-switches")
	}
	return nil
}

// numbered gives the names the numbers from first on.
func numbered(first uint64, names ...string) []name {
	out := make([]name, len(names))
	for i, s := range names {
		out[i] = name{first + uint64(i), s}
	}
	return out
}

// bits gives the names the bits from the lowest on; "" has no name.
func bits(names ...string) []name {
	out := make([]name, 0, len(names))
	for i, s := range names {
		if s != "" {
			out = append(out, name{1 << i, s})
		}
	}
	return out
}

func sampleNames() []name {
	return bits("ip", "tid", "time", "addr", "read", "callchain", "id", "cpu", "period", "stream_id", "raw",
		"branch_stack", "regs_user", "stack_user", "weight", "data_src", "identifier", "transaction", "regs_intr",
		"phys_addr", "aux", "cgroup", "data_page_size", "code_page_size", "weight_struct")
}

func readNames() []name {
	return bits("total_time_enabled", "total_time_running", "id", "group", "lost")
}

func branchNames() []name {
	return bits("user", "kernel", "hv", "any", "any_call", "any_return", "ind_call", "abort_tx", "in_tx", "no_tx",
		"cond", "call_stack", "ind_jump", "call", "no_flags", "no_cycles", "type_save", "hw_index", "priv_save",
		"counters")
}

// attrNames leaves out freq and precise_ip, which are fields of their own.
func attrNames() []name {
	return bits("disabled", "inherit", "pinned", "exclusive", "exclude_user", "exclude_kernel", "exclude_hv",
		"exclude_idle", "mmap", "comm", "", "inherit_stat", "enable_on_exec", "task", "watermark", "", "", "mmap_data",
		"sample_id_all", "exclude_host", "exclude_guest", "exclude_callchain_kernel", "exclude_callchain_user", "mmap2",
		"comm_exec", "use_clockid", "context_switch", "write_backward", "namespaces", "ksymbol", "bpf_event",
		"aux_output",
		"cgroup", "text_poke", "build_id", "inherit_thread", "remove_on_exec", "sigtrap", "defer_callchain",
		"defer_output")
}

func protNames() []name { return bits("read", "write", "exec") }

func mapNames() []name {
	return []name{
		{0x3, "shared_validate"}, {0x1, "shared"}, {0x2, "private"}, {0x10, "fixed"}, {0x20, "anonymous"},
		{0x100, "growsdown"},
		{0x800, "denywrite"}, {0x1000, "executable"}, {0x2000, "locked"}, {0x4000, "noreserve"}, {0x8000, "populate"},
		{0x10000, "nonblock"}, {0x20000, "stack"}, {0x40000, "hugetlb"}, {0x80000, "sync"},
	}
}

func ksymbolTypes() []name { return numbered(0, "unknown", "bpf", "ool") }

func ksymbolFlags() []name { return bits("unregister") }

func bpfEventTypes() []name { return numbered(0, "unknown", "prog_load", "prog_unload") }

func updateKinds() []name {
	return numbered(0, "unit", "scale", "name", "cpus")
}

// contexts are the marks in callchains.
func contexts() []name {
	return []name{
		{perf.ContextHV, "hv"}, {perf.ContextKernel, "kernel"}, {perf.ContextUser, "user"},
		{perf.ContextUserDeferred, "user_deferred"}, {perf.ContextGuest, "guest"},
		{perf.ContextGuestKernel, "guest_kernel"}, {perf.ContextGuestUser, "guest_user"},
	}
}

// nsNames are the namespaces by their index in a record.
func nsNames() []string { return []string{"net", "uts", "ipc", "pid", "user", "mnt", "cgroup"} }
