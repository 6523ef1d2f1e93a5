// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"encoding/json"
	"fmt"
)

// A BPFProgramLife is what perf's sections have no place for: the life of one BPF
// program, and who loaded it. It is in gantry's own section of the file, in the
// list "bpf". ID refers to [BPFProgram]; the kernel gives no id twice before it
// has used two billions.
type BPFProgramLife struct {
	ID   uint32 `json:"id"`
	Tag  string `json:"tag,omitempty"` // 16 hex digits
	Name string `json:"name,omitempty"`
	Type uint32 `json:"type,omitempty"` // enum bpf_prog_type
	UID  uint32 `json:"uid,omitempty"`
	// Loaded and Unloaded are ns of the recording's clock. Before: it was
	// loaded before the recording, Loaded is then what the kernel says.
	// Unloaded is 0 if it was still there at the end.
	Loaded   uint64 `json:"loaded,omitempty"`
	Unloaded uint64 `json:"unloaded,omitempty"`
	Before   bool   `json:"before,omitempty"`
	// Loader is nil if nobody saw who loaded it, as with those of before.
	Loader *BPFLoader `json:"loader,omitempty"`
	// Attached is where it was attached, as far as the kernel tells.
	Attached []BPFAttachment `json:"attached,omitempty"`
	// Route is how the details were taken, "" if they were not: Missed then
	// says why.
	Route  BPFRoute `json:"route,omitempty"`
	Missed string   `json:"missed,omitempty"`
}

// BPFRoute is a way to the details of a program.
type BPFRoute string

// The routes.
const (
	// BPFRouteStatus: it ran already and was asked for.
	BPFRouteStatus BPFRoute = "status"
	// BPFRouteEvent: asked for after the record of its load.
	BPFRouteEvent BPFRoute = "event"
	// BPFRouteKernel: a BPF program copied them before the loader went on.
	BPFRouteKernel BPFRoute = "kernel"
)

// A BPFLoader is the task that loaded a program, when it did.
type BPFLoader struct {
	PID    int32  `json:"pid"` // in gantry's pid namespace
	TID    int32  `json:"tid,omitempty"`
	Comm   string `json:"comm,omitempty"`
	Cgroup uint64 `json:"cgroup,omitempty"` // id, as in samples
	// Namespaces are inode numbers by kind, as those of containers.
	Namespaces map[string]uint64 `json:"namespaces,omitempty"`
}

// A BPFAttachment is one place where a program is attached.
type BPFAttachment struct {
	// Kind is the kernel's word for the kind of link: "tracing",
	// "perf_event", "cgroup"; "perf" where there is no link.
	Kind string `json:"kind"`
	Link uint32 `json:"link,omitempty"` // id of the link
	// Target says where: a tracepoint, a symbol with its offset, a path with
	// an offset, an interface, a cgroup's path.
	Target string `json:"target,omitempty"`
	Cgroup uint64 `json:"cgroup,omitempty"` // id
}

// GantryBPF is the part of gantry's section ([Features.Gantry]) that tells of
// BPF programs. Readers of other parts skip it.
type GantryBPF struct {
	Programs []BPFProgramLife `json:"bpf,omitempty"`
}

// DecodeGantryBPF reads the lives of BPF programs from gantry's section; there
// are none in a section of an older gantry, or in none.
func DecodeGantryBPF(section []byte) ([]BPFProgramLife, error) {
	if len(section) == 0 {
		return nil, nil
	}
	var g GantryBPF
	if err := json.Unmarshal(section, &g); err != nil {
		return nil, fmt.Errorf("read BPF programs of gantry's section: %w: %w", ErrFormat, err)
	}
	return g.Programs, nil
}
