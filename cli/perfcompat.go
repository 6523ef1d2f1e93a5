// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/gantry-tools/gantry/internal/hint"
)

// What gantry says to users of perf, kubectl or docker: the words that
// they write and gantry does not have, with what does the same.

const (
	hintAlways = "gantry always records that: leave it out"
	hintLeave  = "leave it out: gantry needs no such flag"
	hintPerf   = "gantry does not have it, but reads what 'perf record' writes"
	hintText   = "gantry report prints text only: leave it out, or --format svg -o FILE is a picture for a browser"
	hintNoPerf = "gantry does not have it, but 'perf report' reads the file too"
	hintRaw    = "'gantry script --raw' prints all that is in a file"
)

// perfFlags are flags of perf that a command of gantry does not have: by
// command, by what to do, their names, short ones included.
var perfFlags = map[string]map[string]string{
	"record": {
		hintAlways: "namespaces all-cgroups timestamp T period P sample-cpu sample-identifier buildid-all " +
			"buildid-mmap bpf-event",
		hintLeave: "f force B no-buildid proc-map-timeout synth tail-synthesize R raw-samples kcore no-buffering r " +
			"realtime mmap-flush affinity threads y",
		"an older file becomes FILE.old by itself: leave it out":       "A append",
		"write --no-buildid-cache":                                     "N",
		"write u behind the event, as in -e cycles:u":                  "all-user",
		"write k behind the event, as in -e cycles:k":                  "all-kernel",
		"choose by --container, --cgroup or -p":                        "u uid",
		"write --cgroup PATH; it counts for all events":                "G",
		"leave it out: -p and -t follow their threads from CPU to CPU": "per-thread",
		"gantry does not wait: start it later":                         "D delay",
		"--switch-output=30s --max-files 2 keeps the last minute":      "S snapshot overwrite",
		"files of --switch-output have their time: leave it out": "timestamp-filename " +
			"timestamp-boundary",
		"write --max-files": "switch-max-files",
		"take it with 'gantry report --comm', '--dso' or '--symbol' when the report is made": "filter comm",
		hintPerf: "b branch-any j branch-filter i no-inherit d data W weight phys-data data-page-size " +
			"code-page-size I intr-regs user-regs " +
			"user-callchains kernel-callchains exclude-perf transaction clang-path aio k clockid off-cpu control " +
			"strict-freq vmlinux no-samples s stat",
	},
	"top": {
		hintLeave: "f force g call-graph z zero num-threads-synthesize D dump-symtab",
		"space freezes the screen, and / filters it: leave it out": "E entries c count-filter",
		"write --by function, or press f":                          "s sort sort-by",
		"write --batch":                                            "stdio tui",
		"'gantry record' takes it":                                 "i no-inherit m mmap-pages count r realtime u uid",
		"write --kallsyms FILE, or --symfs DIR":                    "k vmlinux",
	},
	"report": {
		hintLeave:         "f force asm-raw demangle",
		hintText:          "tui gtk stdio2",
		hintRaw:           "D dump-raw-trace header header-only I show-info stats",
		"write -g caller": "G inverted",
		"write --event":   "e",
		"write --comm":    "comms",
		"write --dso":     "d dsos",
		"write --symbol":  "S symbols symbol-filter",
		"--sort chooses the columns; the shares always come first": "F fields",
		"write --sort pid,tid":                  "T threads",
		"write --width":                         "w column-widths",
		"write --kallsyms FILE, or --symfs DIR": "k vmlinux m modules",
		"write --sort ...,srcline":              "full-source-path",
		"each event has a table of its own; --sort event,... shows all in one":   "group",
		"'gantry script --time FROM,TO' prints a part":                           "time",
		"'gantry script --show-task-events' and '--show-mmap-events' print them": "tasks mmaps",
		"write 2>/dev/null":             "q quiet",
		"--format json is for programs": "field-separator",
		hintNoPerf: "H hierarchy U hide-unresolved max-stack no-demangle x exclude-other parent ignore-callees " +
			"ignore-vmlinux b branch-stack " +
			"branch-history total-cycles mem-mode itrace raw-ip samples ns socket-filter show-total-period " +
			"show-cpu-utilization " +
			"show-ref-call-graph M disassembler-style objdump prefix latency",
	},
	"script": {
		hintLeave: "f force a all-cpus show-kernel-path",
		hintRaw:   "D dump-raw-trace header header-only I show-info show-round-events",
		"pipe it: gantry script | PROGRAM; the text is that of perf script": "s script g gen-script list",
		"write --comm":                          "comms",
		"write --kallsyms FILE, or --symfs DIR": "k vmlinux",
		hintNoPerf: "S symbols dsos no-demangle reltime deltatime per-event-dump max-blocks stop-bt xed itrace " +
			"insn-trace call-trace call-ret-trace " +
			"d debug-mode L Latency switch-on switch-off graph-function addr2line dlfilter dlarg guestmount",
	},
	"annotate": {
		hintLeave: "f force P full-paths q quiet v verbose",
		hintText:  "tui gtk stdio2",
		hintRaw:   "D dump-raw-trace",
		"source lines are always shown: leave it out": "print-line",
		"write --kallsyms FILE, or --symfs DIR":       "k vmlinux m modules",
		"write -s":                                    "S",
		hintNoPerf: "M disassembler-style asm-raw show-total-period percent-type " +
			"group skip-missing prefix prefix-strip",
	},
}

// perfFlagHint says what to write for the flags of perf that err names, "" if
// it names none.
func perfFlagHint(command string, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	name := unknown.GetSpecifiedName()
	for _, text := range slices.Sorted(maps.Keys(perfFlags[command])) {
		if slices.Contains(strings.Fields(perfFlags[command][text]), name) {
			return text
		}
	}
	return ""
}

// otherCommands are what other tools call what gantry calls otherwise, or does
// not do.
var otherCommands = map[string]string{
	"stat":          "gantry samples; perf stat counts",
	"trace":         "'gantry record -e \"raw_syscalls:*\" -- COMMAND', then 'gantry script'",
	"probe":         "'gantry record -e uprobe:FILE:FUNCTION'",
	"list":          "'perf list' names events; 'gantry containers' lists containers",
	"ls":            "'gantry containers' lists containers",
	"ps":            "'gantry containers' lists containers, 'gantry snapshot' processes",
	"evlist":        "'gantry script --raw' prints the events of a file",
	"buildid-list":  "'gantry buildid list' shows the store; 'gantry script --raw' what a file has",
	"buildid-cache": "'gantry buildid add', 'remove', 'verify' and others look after the store",
	"data":          "'gantry convert' and 'gantry report --format pprof' write for other tools",
}

// withHint attaches what to do, if something is known, to err.
func withHint(err error, text string) error {
	if text == "" {
		return err
	}
	return hint.Wrap(err, text)
}

// checkNamespaces refuses what is no name: perf's -n is a switch, behind which
// the next flag is taken for one.
func checkNamespaces(list []string) error {
	for _, name := range list {
		if strings.HasPrefix(name, "-") {
			return withHint(errors.New("-n is a Kubernetes namespace here, and takes a name"),
				"perf's -n of reports is -N, --show-nr-samples")
		}
	}
	return nil
}

// perfKeyHint says what to do about what perf takes for a sort key.
func perfKeyHint(keys string) string {
	for key := range strings.SplitSeq(keys, ",") {
		switch strings.TrimSpace(key) {
		case "overhead", "overhead_self", "overhead_children", "overhead_sys", "overhead_us":
			return "the shares are always the first columns: leave " + strings.TrimSpace(key) + " out"
		case "sample":
			return "--show-nr-samples (-N) adds the number of samples"
		case "cgroup_id":
			return "the key is cgroup"
		case "thread":
			return "the keys are comm and tid"
		}
	}
	return ""
}
