// SPDX-License-Identifier: Apache-2.0

package timeline_test

import (
	"fmt"

	"github.com/gantry-tools/gantry/analysis/timeline"
	"github.com/gantry-tools/gantry/perf"
)

// What was at an address of a process: the records are applied in the order of time.
func ExampleTimeline() {
	t := timeline.New()
	t.Apply(&perf.Mmap2{PID: 12, TID: 12, Addr: 0x400000, Len: 0x2000, Filename: "/usr/sbin/nginx"}, 100)
	t.Apply(&perf.Comm{PID: 12, TID: 12, Comm: "nginx"}, 101)
	t.Apply(&perf.Fork{Task: perf.Task{PID: 13, PPID: 12, TID: 13, PTID: 12}}, 102)
	child := t.Thread(13, 13)
	fmt.Println(child.Comm, child.Process.Maps().Find(0x401000).File.Path, child.Process.Maps().Find(0x500000))
	// Output: nginx /usr/sbin/nginx <nil>
}
