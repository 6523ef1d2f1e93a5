// SPDX-License-Identifier: Apache-2.0

//go:build linux

package broker

import (
	"fmt"

	"github.com/gantry-tools/gantry/perf"
)

// eventName is what the audit log calls an event: perf's words as far as there are.
func eventName(a *perf.Attr, tracepoint func(uint64) string) string {
	name := ""
	switch a.Type {
	case perf.TypeSoftware:
		if a.Config < uint64(len(softwareEvents)) {
			name = softwareEvents[a.Config]
		}
	case perf.TypeHardware:
		if a.Config < uint64(len(hardwareEvents)) {
			name = hardwareEvents[a.Config]
		}
	case perf.TypeTracepoint:
		name = orNumber(tracepoint(a.Config), a.Config)
	}
	if name == "" {
		name = fmt.Sprintf("type=%d,config=%#x", a.Type, a.Config)
	}
	if a.Flags.Has(perf.AttrExcludeKernel) {
		name += ":u"
	}
	return name
}

// Names by attr.config, see perf.SWCPUClock and perf.HWCPUCycles.
var (
	softwareEvents = [...]string{
		"cpu-clock", "task-clock", "page-faults", "context-switches", "cpu-migrations", "minor-faults",
		"major-faults", "alignment-faults", "emulation-faults", "dummy", "bpf-output", "cgroup-switches",
	}
	hardwareEvents = [...]string{
		"cycles", "instructions", "cache-references", "cache-misses", "branches", "branch-misses", "bus-cycles",
		"stalled-cycles-frontend", "stalled-cycles-backend", "ref-cycles",
	}
)
