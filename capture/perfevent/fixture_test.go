// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"testing/fstest"
)

// fixtureFS makes a file system of names and texts.
func fixtureFS(files map[string]string) fstest.MapFS {
	m := fstest.MapFS{}
	for name, text := range files {
		m[name] = &fstest.MapFile{Data: []byte(text + "\n"), Mode: 0o444}
	}
	return m
}

// fixturePMUs is a machine with a core PMU, uncore devices and tracepoints.
func fixturePMUs() *PMUs {
	const dev = "bus/event_source/devices/"
	return NewPMUs(&PMUOptions{
		Sysfs: fixtureFS(map[string]string{
			dev + "cpu/type":                             "4",
			dev + "cpu/format/event":                     "config:0-7",
			dev + "cpu/format/umask":                     "config:8-15",
			dev + "cpu/format/inv":                       "config:23",
			dev + "cpu/format/ldlat":                     "config1:0-15",
			dev + "cpu/format/split":                     "config:0-3,32-35",
			dev + "cpu/format/broken":                    "config9:0",
			dev + "cpu/events/cache-misses":              "event=0x2e,umask=0x41",
			dev + "cpu/events/mem-loads":                 "event=0xcd,umask=0x1,ldlat=3",
			dev + "cpu/events/topdown":                   "event=0x00,umask=0x4",
			dev + "cpu/events/topdown.scale":             "2.5",
			dev + "cpu/events/topdown.unit":              "slots",
			dev + "software/type":                        "1",
			dev + "kprobe/type":                          "8",
			dev + "kprobe/format/retprobe":               "config:0",
			dev + "uprobe/type":                          "9",
			dev + "uprobe/format/retprobe":               "config:0",
			dev + "uprobe/format/ref_ctr_offset":         "config:32-63",
			dev + "msr/type":                             "10",
			dev + "msr/format/event":                     "config:0-63",
			dev + "msr/events/tsc":                       "event=0x00",
			dev + "uncore_imc_0/type":                    "20",
			dev + "uncore_imc_0/cpumask":                 "0,8",
			dev + "uncore_imc_0/format/event":            "config:0-7",
			dev + "uncore_imc_1/type":                    "21",
			dev + "uncore_imc_1/cpumask":                 "0,8",
			dev + "uncore_imc_1/format/event":            "config:0-7",
			dev + "uncore_imc_1/events/cas_count_read":   "event=0x04",
			dev + "uncore_imc_free_running/type":         "22",
			dev + "uncore_imc_free_running/format/event": "config:0-7",
		}),
		Tracefs: fixtureTracefs(),
	})
}

func fixtureTracefs() fstest.MapFS {
	return fixtureFS(map[string]string{
		"events/header_page":                           "field: u64 timestamp;",
		"events/header_event":                          "# compressed entry header",
		"events/enable":                                "0",
		"events/sched/enable":                          "0",
		"events/sched/sched_switch/id":                 "316",
		"events/sched/sched_switch/format":             "name: sched_switch",
		"events/sched/sched_wakeup/id":                 "318",
		"events/sched/sched_wakeup/format":             "name: sched_wakeup",
		"events/raw_syscalls/sys_enter/id":             "20",
		"events/raw_syscalls/sys_enter/format":         "name: sys_enter",
		"events/raw_syscalls/sys_exit/id":              "19",
		"events/raw_syscalls/sys_exit/format":          "name: sys_exit",
		"events/ftrace/function/id":                    "1",
		"events/ftrace/function/format":                "name: function",
		"events/probe/uk/id":                           "1500",
		"events/probe/uk/format":                       "name: uk",
		"printk_formats":                               "0xffff : \"text\"",
		"saved_cmdlines":                               "1 init",
		"events/hyperv/hyperv_send_ipi_mask/id":        "600",
		"events/hyperv/hyperv_send_ipi_mask/format":    "name: hyperv_send_ipi_mask",
		"events/syscalls/sys_enter_openat/id":          "700",
		"events/syscalls/sys_enter_openat/format":      "name: sys_enter_openat",
		"events/syscalls/sys_enter_openat2/id":         "701",
		"events/syscalls/sys_enter_openat2/format":     "name: sys_enter_openat2",
		"events/syscalls/sys_exit_openat/id":           "702",
		"events/syscalls/sys_exit_openat/format":       "name: sys_exit_openat",
		"events/syscalls/sys_enter_openat/not_a_field": "",
	})
}

// hybridPMUs is a machine with two kinds of core.
func hybridPMUs() *PMUs {
	const dev = "bus/event_source/devices/"
	return NewPMUs(&PMUOptions{
		Sysfs: fixtureFS(map[string]string{
			dev + "cpu_core/type":         "4",
			dev + "cpu_core/cpus":         "0-7",
			dev + "cpu_core/format/event": "config:0-7",
			dev + "cpu_atom/type":         "10",
			dev + "cpu_atom/cpus":         "8-15",
			dev + "cpu_atom/format/event": "config:0-7",
		}),
		Tracefs: fixtureTracefs(),
	})
}
