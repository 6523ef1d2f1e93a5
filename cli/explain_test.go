// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/analysis/symbol"
)

// TestWorthNaming: binaries that hardly matter are left out, those that matter
// most come first.
func TestWorthNaming(t *testing.T) {
	var failures []symbol.Failure
	for _, path := range []string{"/few", "/none", "/some", "/most", "/same"} {
		failures = append(failures, symbol.Failure{Ref: symbol.Ref{Path: path}})
	}
	var got []string
	for _, f := range worthNaming(failures, map[string]uint64{"/few": 9, "/some": 10, "/most": 500, "/same": 10}, 1000) {
		got = append(got, f.Ref.Path)
	}
	if diff := cmp.Diff([]string{"/most", "/some", "/same"}, got); diff != "" {
		t.Error(diff)
	}
}
