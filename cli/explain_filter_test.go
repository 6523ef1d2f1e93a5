// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

func TestExplainFilter(t *testing.T) {
	for _, tt := range []struct {
		gantry  string
		verbose bool
		want    string
	}{
		{``, true, ""},
		{`{"filter":null}`, true, ""},
		{`{"filter":[1]}`, true, ""},
		{`{"filter":{"selectors":["web"],"method":"kernel","kernel_dropped":1234,"dropped":5}}`, false, ""},
		{`{"filter":{"selectors":["web","d\u001b[2Jb"],"method":"kernel","kernel_dropped":1234,"dropped":5}}`, true,
			"gantry: x: only web, d\\x1b[2Jb was recorded; left out were 1,234 samples in the kernel and 5 by the " +
				"recorder\n"},
		{`{"filter":{"selectors":["web"],"undecided":1}}`, false,
			"gantry: x: only web was to be recorded; 1 sample is of containers without a name in time, which " +
				"--container leaves out\n"},
	} {
		var b strings.Builder
		explainFilter(&b, "x", []byte(tt.gantry), tt.verbose)
		if b.String() != tt.want {
			t.Errorf("%s: %q, want %q", tt.gantry, b.String(), tt.want)
		}
	}
}
