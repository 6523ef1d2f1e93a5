// SPDX-License-Identifier: Apache-2.0

// Package testutil is what gantry's tests share: requirements that skip with a
// reason, goldens, leak checks, C programs and OCI containers.
//
// A test starts by saying what it needs:
//
//	testutil.Require(t, testutil.Root, testutil.Kernel("5.8"), testutil.Tool("perf"))
//
// What is missing skips the test, by name. Where GANTRY_TEST_REQUIRE=all is
// set (continuous integration), a missing requirement is a failure instead,
// so that a skip can never hide a broken machine; the few things no such
// machine has are listed in impossible (require.go).
//
// Everything a helper makes is removed by t.Cleanup, also when the test fails.
package testutil
