// SPDX-License-Identifier: Apache-2.0

package perf

import "testing"

func TestArchOf(t *testing.T) {
	for name, want := range map[string]Arch{"x86_64": AMD64, "aarch64": ARM64, "amd64": AMD64, "arm64": ARM64, "riscv64": NoArch, "": NoArch} {
		got := ArchOf(name)
		if got != want {
			t.Errorf("%q is %v", name, got)
		}
		if again := ArchOf(got.String()); again != got {
			t.Errorf("%v calls itself %q", got, got.String())
		}
	}
}
