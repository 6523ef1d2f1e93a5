// SPDX-License-Identifier: Apache-2.0

package gantry_test

// goStatements are the files of libraries that may start a goroutine, and who awaits it.
var goStatements = map[string]string{
	"agent/broker/target.go":            "closes a descriptor that may never close; there are at most sixteen",
	"agent/processes.go":                "waits for a process's end; endProcess bounds how long",
	"tracens/nsfs/remount.go":           "mounts below a path that may never answer; replaceOne bounds its wait",
	"agent/supervisor.go":               "listens to a worker and waits for its end; runWorker and stop wait for both",
	"agent/worker.go":                   "listens to the supervisor, serve awaits it; await bounds its wait",
	"capture/binaries/collector.go":     "copies binaries while the rings are read; Collector.Wait ends and awaits it",
	"capture/binaries/jit.go":           "keeps perf maps while the rings are read; Collector.Wait ends and awaits it",
	"capture/bpf.go":                    "reads BPF programs as they are loaded; bpfWatch.wait ends and awaits it",
	"internal/linux/bpf/tasks/tasks.go": "reads an iterator, which a process may hold up; worker.Read waits for it up to a deadline, and a signal to kill ends it",
	"internal/testutil/fuse_linux.go":   "serves a file system to a test; the cleanup of FUSE ends and awaits it",
	"internal/linux/procroot/access.go": "runs an operation on files whose file system may never answer; Op.wait waits for it up to a deadline",
	"capture/realtime.go":               "empties rings into memory while the recorder is held up; ringDrainer.start gives what ends and awaits it",
	"tracens/ftrace/ftrace.go":          "reads an instance's pipe; space.off ends and awaits it",
	"tracens/lttng/lttng.go":            "awaits a daemon; end awaits both",
	"tracens/uprobes/uprobes.go":        "reads the rings of a probe; probes.remove ends and awaits it",
	"internal/linux/sys/bind.go":        "makes a socket on a thread of its own; onThread awaits it",
	"view/terminal/run.go":              "hands slices to the screen; Run ends and awaits it",
	"capture/names.go":                  "asks runtimes for names, and listens to them, while the rings are read; names.wait ends and awaits both",
}
