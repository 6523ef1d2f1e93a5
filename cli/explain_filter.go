// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// filterNote is what a recording of chosen containers says about that
// (docs/filter.md).
type filterNote struct {
	Filter struct {
		Selectors []string `json:"selectors"`
		Method    string   `json:"method"`
		Kernel    uint64   `json:"kernel_dropped"`
		Dropped   uint64   `json:"dropped"`
		Undecided uint64   `json:"undecided"`
	} `json:"filter"`
}

// explainFilter says on stderr which containers were recorded: if it is not
// known of all samples whether they are theirs, or with verbose.
func explainFilter(stderr io.Writer, name string, gantry []byte, verbose bool) {
	var n filterNote
	if json.Unmarshal(gantry, &n) != nil || len(n.Filter.Selectors) == 0 {
		return // the whole target was recorded
	}
	f := &n.Filter
	chosen := profile.Printable(strings.Join(f.Selectors, ", "))
	if f.Undecided > 0 {
		fmt.Fprintf(stderr, "gantry: %s: only %s was to be recorded; %s of containers without a name in time, which "+
			"--container leaves out\n",
			name, chosen, plural(int(min(f.Undecided, 1<<62)), "sample is", "samples are"))
	}
	if verbose {
		fmt.Fprintf(stderr, "gantry: %s: only %s was recorded; left out were %s samples in the kernel and %s by the "+
			"recorder\n",
			name, chosen, thousands(f.Kernel), thousands(f.Dropped))
	}
}
