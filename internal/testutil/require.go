// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// RequireEnv names the environment variable that turns skips into failures
// when its value is "all".
const RequireEnv = "GANTRY_TEST_REQUIRE"

// Requirement is something a test needs from the machine.
type Requirement interface {
	// Missing says what is missing and what to do about it, or "".
	Missing() string
	fmt.Stringer
}

// Require skips the test unless the machine meets every requirement. With
// GANTRY_TEST_REQUIRE=all it fails the test, except for what is impossible.
func Require(t testing.TB, reqs ...Requirement) {
	t.Helper()
	for _, req := range reqs {
		missing := req.Missing()
		if missing == "" {
			continue
		}
		if os.Getenv(RequireEnv) == "all" && !impossible(req) {
			t.Fatalf("requires %s: %s (%s=all forbids to skip)", req, missing, RequireEnv)
		}
		t.Skipf("requires %s: %s", req, missing)
	}
}

// impossible is the documented list of what a virtual machine of continuous
// integration cannot offer, so that a skip stays a skip there:
//
//   - a hardware PMU: the machines are virtual and have none;
//   - another architecture than the one they run on.
func impossible(req Requirement) bool {
	switch req := req.(type) {
	case feature:
		return req == HardwarePMU
	case archRequirement:
		return true
	}
	return false
}

// Tool requires programs in PATH.
func Tool(names ...string) Requirement { return toolRequirement(names) }

type toolRequirement []string

func (r toolRequirement) String() string { return strings.Join(r, ", ") }

func (r toolRequirement) Missing() string {
	var missing []string
	for _, name := range r {
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("%s not in PATH; tools/install-deps installs it", strings.Join(missing, ", "))
}

// Arch requires one of the architectures, as GOARCH spells them.
func Arch(names ...string) Requirement { return archRequirement(names) }

type archRequirement []string

func (r archRequirement) String() string { return "architecture " + strings.Join(r, " or ") }

func (r archRequirement) Missing() string {
	for _, name := range r {
		if name == runtime.GOARCH {
			return ""
		}
	}
	return "this machine is " + runtime.GOARCH
}
