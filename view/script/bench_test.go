// SPDX-License-Identifier: Apache-2.0

package script

import (
	"io"
	"os"
	"testing"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// BenchmarkFile prints the recording that GANTRY_BENCH_FILE names.
func BenchmarkFile(b *testing.B) {
	name := os.Getenv("GANTRY_BENCH_FILE")
	if name == "" {
		testutil.NotHere(b, "GANTRY_BENCH_FILE names no recording")
	}
	for b.Loop() {
		r, err := perfdata.Open(name, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := Write(io.Discard, r, analysis.NewSession(r, nil), nil); err != nil {
			b.Fatal(err)
		}
		r.Close()
	}
}
