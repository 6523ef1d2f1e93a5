// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gantry-tools/gantry/buildid"
)

// The lines that a store has kept are those of the file, for addresses that the
// run before asked for and for others.
func TestLinesKept(t *testing.T) {
	path, dir := buildGo(t), t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".build-id"), 0o755); err != nil {
		t.Fatal(err)
	}
	store, err := buildid.OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	addrs := randomAddresses(t, path, 2000)
	whole := NewResolver(files{}).Lines(Ref{Path: path})
	for _, n := range []int{20, 500, len(addrs), len(addrs)} {
		r := NewResolver(files{})
		r.UseCache(store)
		lines := r.Lines(Ref{Path: path})
		for _, a := range addrs[:n] {
			if want, got := whole.Calls(nil, a), lines.Calls(nil, a); !slices.Equal(got, want) {
				t.Fatalf("at %#x: kept %v, read %v", a, got, want)
			}
		}
		r.SaveLines()
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := filepath.Glob(filepath.Join(dir, "[[]derived]", "*", "derived"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("the store has %q, %v", kept, err)
	}
}
