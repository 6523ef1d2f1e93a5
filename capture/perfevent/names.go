// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/perf"
)

// generic is an event that every kernel knows by number.
type generic struct {
	typ    perf.EventType
	config uint64
}

// genericEvent looks up the kernel's own events, in perf's spelling.
func genericEvent(name string) (generic, bool) {
	if config, ok := softwareEvent(name); ok {
		return generic{perf.TypeSoftware, config}, true
	}
	if config, ok := hardwareEvent(name); ok {
		return generic{perf.TypeHardware, config}, true
	}
	if config, ok := cacheEvent(name); ok {
		return generic{perf.TypeHWCache, config}, true
	}
	if config, ok := rawEvent(name); ok {
		return generic{perf.TypeRaw, config}, true
	}
	return generic{}, false
}

func softwareEvent(name string) (uint64, bool) {
	switch name {
	case "cpu-clock":
		return perf.SWCPUClock, true
	case "task-clock":
		return perf.SWTaskClock, true
	case "page-faults", "faults":
		return perf.SWPageFaults, true
	case "context-switches", "cs":
		return perf.SWContextSwitches, true
	case "cpu-migrations", "migrations":
		return perf.SWCPUMigrations, true
	case "minor-faults":
		return perf.SWPageFaultsMin, true
	case "major-faults":
		return perf.SWPageFaultsMaj, true
	case "alignment-faults":
		return perf.SWAlignmentFaults, true
	case "emulation-faults":
		return perf.SWEmulationFaults, true
	case "dummy":
		return perf.SWDummy, true
	case "bpf-output":
		return perf.SWBPFOutput, true
	case "cgroup-switches":
		return perf.SWCgroupSwitches, true
	}
	return 0, false
}

func hardwareEvent(name string) (uint64, bool) {
	switch name {
	case "cycles", "cpu-cycles":
		return perf.HWCPUCycles, true
	case "instructions":
		return perf.HWInstructions, true
	case "cache-references":
		return perf.HWCacheReferences, true
	case "cache-misses":
		return perf.HWCacheMisses, true
	case "branches", "branch-instructions":
		return perf.HWBranchInstructions, true
	case "branch-misses":
		return perf.HWBranchMisses, true
	case "bus-cycles":
		return perf.HWBusCycles, true
	case "stalled-cycles-frontend", "idle-cycles-frontend":
		return perf.HWStalledCyclesFrontend, true
	case "stalled-cycles-backend", "idle-cycles-backend":
		return perf.HWStalledCyclesBackend, true
	case "ref-cycles":
		return perf.HWRefCPUCycles, true
	}
	return 0, false
}

// genericNames are the names in the switches above, for suggestions.
func genericNames() []string {
	names := []string{
		"cpu-clock", "task-clock", "page-faults", "faults", "context-switches", "cs",
		"cpu-migrations", "migrations", "minor-faults", "major-faults", "alignment-faults",
		"emulation-faults", "dummy", "bpf-output", "cgroup-switches",
		"cycles", "cpu-cycles", "instructions", "cache-references", "cache-misses", "branches",
		"branch-instructions", "branch-misses", "bus-cycles", "stalled-cycles-frontend",
		"stalled-cycles-backend", "ref-cycles",
	}
	for _, c := range cacheUnits() {
		for op, words := range cacheOps() {
			if c.ops&(1<<op) != 0 {
				names = append(names, c.names[0]+"-"+words[1], c.names[0]+"-"+words[0]+"-misses")
			}
		}
	}
	return names
}

// rawEvent is rNNN: the number the hardware knows the event by, in hex.
func rawEvent(name string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, "r")
	if !ok || digits == "" || digits[0] == '+' || digits[0] == '-' {
		return 0, false
	}
	config, err := strconv.ParseUint(strings.TrimPrefix(digits, "0x"), 16, 64)
	return config, err == nil
}

// Bits of cacheUnit.ops, and the numbers in enum perf_hw_cache_op_id.
const (
	cacheRead = iota
	cacheWrite
	cachePrefetch
	numCacheOps
)

// cacheUnit is a cache and what can be done with it; its place in the list is
// its number in enum perf_hw_cache_id.
type cacheUnit struct {
	names []string // lower case, perf's first spelling as it shows it
	ops   uint
}

func cacheUnits() []cacheUnit {
	const r, w, p = 1 << cacheRead, 1 << cacheWrite, 1 << cachePrefetch
	return []cacheUnit{
		{[]string{"L1-dcache", "l1-d", "l1d", "L1-data"}, r | w | p},
		{[]string{"L1-icache", "l1-i", "l1i", "L1-instruction"}, r | p},
		{[]string{"LLC", "L2"}, r | w | p},
		{[]string{"dTLB", "d-tlb", "Data-TLB"}, r | w | p},
		{[]string{"iTLB", "i-tlb", "Instruction-TLB"}, r},
		{[]string{"branch", "branches", "bpu", "btb", "bpc"}, r},
		{[]string{"node"}, r | w | p},
	}
}

func cacheOps() [numCacheOps][]string {
	return [numCacheOps][]string{
		cacheRead:     {"load", "loads", "read"},
		cacheWrite:    {"store", "stores", "write"},
		cachePrefetch: {"prefetch", "prefetches", "speculative-read", "speculative-load"},
	}
}

// cacheResults are the spellings of enum perf_hw_cache_op_result_id.
func cacheResults() [2][]string {
	return [2][]string{{"refs", "reference", "ops", "access"}, {"misses", "miss"}}
}

// cacheEvent is CACHE[-OP][-RESULT], as in L1-dcache-load-misses: the
// operation and the result in either order, loads and accesses if left out.
func cacheEvent(name string) (uint64, bool) {
	name = strings.ToLower(name)
	for id, c := range cacheUnits() {
		rest, ok := cutWord(name, c.names)
		if !ok {
			continue
		}
		op, result, ok := cacheAccess(rest)
		if !ok || c.ops&(1<<op) == 0 {
			return 0, false
		}
		return uint64(id) | uint64(op)<<8 | uint64(result)<<16, true
	}
	return 0, false
}

// cacheAccess reads the words behind the name of the cache.
func cacheAccess(rest string) (op, result int, ok bool) {
	op, result = -1, -1
	for rest != "" {
		found := false
		for i, words := range cacheOps() {
			if r, ok := cutWord(rest, words); ok && op < 0 && !found {
				op, rest, found = i, r, true
			}
		}
		for i, words := range cacheResults() {
			if r, ok := cutWord(rest, words); ok && result < 0 && !found {
				result, rest, found = i, r, true
			}
		}
		if !found {
			return 0, 0, false
		}
	}
	return max(op, 0), max(result, 0), true
}

// cutWord cuts the longest of words and a following dash off the front of s,
// which is in lower case.
func cutWord(s string, words []string) (string, bool) {
	best, ok := "", false
	longest := 0
	for _, w := range words {
		rest, has := strings.CutPrefix(s, strings.ToLower(w))
		if !has || len(w) < longest || rest != "" && rest[0] != '-' {
			continue
		}
		best, ok, longest = strings.TrimPrefix(rest, "-"), true, len(w)
	}
	return best, ok
}
