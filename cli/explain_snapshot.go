// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// snapshotNote is what a recording says about its snapshot (docs/snapshot.md).
type snapshotNote struct {
	Snapshot struct {
		Method  string `json:"method"`
		Refused []struct {
			Method string `json:"method"`
			Why    string `json:"why"`
		} `json:"refused"`
		Processes int     `json:"processes"`
		Mappings  int     `json:"mappings"`
		Missed    int     `json:"missed"`
		Dropped   int     `json:"unheeded"`
		HeldUp    []int32 `json:"held_up"`
	} `json:"snapshot"`
}

// explainSnapshot says on stderr how the recorder found out what already ran:
// if it missed processes, or with verbose.
func explainSnapshot(stderr io.Writer, name string, gantry []byte, verbose bool) {
	var n snapshotNote
	if json.Unmarshal(gantry, &n) != nil || n.Snapshot.Method == "" {
		return // perf's file, or no snapshot was needed
	}
	s := &n.Snapshot
	if s.Missed > 0 {
		fmt.Fprintf(stderr, "gantry: %s: %s missed when the recording began: their functions may have no names\n",
			name, plural(s.Missed, "process was", "processes were"))
	}
	if s.Dropped > 0 {
		fmt.Fprintf(stderr, "gantry: %s: so many processes began and ended while the recording began that %s not "+
			"heeded: functions of some may have no names\n",
			name, plural(s.Dropped, "event was", "events were"))
	}
	if len(s.HeldUp) > 0 {
		fmt.Fprintf(stderr, "gantry: %s: what %s had mapped is not known, for it held its memory locked (%s): its "+
			"functions may have no names\n", name, plural(len(s.HeldUp), "process", "processes"), pidList(s.HeldUp))
	}
	if !verbose {
		return
	}
	fmt.Fprintf(stderr, "gantry: %s: what ran when the recording began is known by %s: %s, %s\n", name,
		profile.Printable(s.Method),
		plural(s.Processes, "process", "processes"), plural(s.Mappings, "mapping", "mappings"))
	for _, r := range s.Refused {
		fmt.Fprintf(stderr, "gantry: %s: not by %s: %s\n", name, profile.Printable(r.Method), profile.Printable(r.Why))
	}
}

// maxPIDs bounds how many processes a message names.
const maxPIDs = 8

// pidList is "pid 7, 8, ...".
func pidList(pids []int32) string {
	text := "pid"
	for i, pid := range pids {
		if i == maxPIDs {
			return text + ", ..."
		}
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf(" %d", pid)
	}
	return text
}
