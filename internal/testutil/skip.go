// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"os"
	"testing"
)

// Lacks skips a test for what it found the machine to lack, where no
// Requirement can tell before. With GANTRY_TEST_REQUIRE=all it fails the test.
func Lacks(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv(RequireEnv) == "all" {
		t.Fatalf(format+" ("+RequireEnv+"=all forbids to skip)", args...)
	}
	t.Skipf(format, args...)
}

// NotHere skips a test that has nothing to test on this machine, or needs what
// nobody has to have: another operating system, a setting, a compiler that
// tools/install-deps does not install. It stays a skip, whatever is required.
func NotHere(t testing.TB, format string, args ...any) {
	t.Helper()
	t.Skipf(format, args...)
}
