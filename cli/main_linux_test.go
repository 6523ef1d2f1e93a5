// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// gantryName is the name of gantry in containers of tests.
const gantryName = "gantry-inside"

// TestMain lets the program of the tests be gantry, as the agent starts itself, and
// gantry-runc, and what tests run in containers.
func TestMain(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == runcName,
		len(os.Args) > 1 && slices.Contains([]string{"agent", "ns"}, os.Args[1]):
		os.Exit(Main(os.Stdin, os.Stdout, os.Stderr, Args(os.Args)))
	case filepath.Base(os.Args[0]) == gantryName:
		os.Exit(Main(os.Stdin, os.Stdout, os.Stderr, os.Args[1:]))
	case filepath.Base(os.Args[0]) == attackName:
		os.Exit(attack(os.Args[1:]))
	}
	os.Exit(m.Run())
}
