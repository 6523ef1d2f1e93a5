// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/internal/hint"
)

// TestWorthNaming: binaries that hardly matter are left out, those that matter
// most come first.
func TestWorthNaming(t *testing.T) {
	var failures []symbol.Failure
	for _, path := range []string{"/few", "/none", "/some", "/most", "/same"} {
		failures = append(failures, symbol.Failure{Ref: symbol.Ref{Path: path}})
	}
	var got []string
	for _, f := range worthNaming(failures, map[string]uint64{"/few": 9, "/some": 10, "/most": 500, "/same": 10},
		1000) {
		got = append(got, f.Ref.Path)
	}
	if diff := cmp.Diff([]string{"/most", "/some", "/same"}, got); diff != "" {
		t.Error(diff)
	}
}

// Errors and hints name what is called as a container likes.
func TestExplainHostile(t *testing.T) {
	var b strings.Builder
	err := errors.Join(errors.New("open \x1b[2J"), errors.New("second"))
	code := explain(&b, hint.Wrap(err, "did you mean /a\x1b]0;x\a\u202e?"))
	want := "gantry: open \\x1b[2J\nsecond\nhint: did you mean /a\\x1b]0;x\\x07\\u202e?\n"
	if code != 1 || b.String() != want {
		t.Errorf("%d: %q", code, b.String())
	}
}
