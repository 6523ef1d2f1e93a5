// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// perfTries is how often the real perf may abort before a test fails.
const perfTries = 5

// RunPerf runs a command of the real perf, made anew for each try. If perf
// itself aborts it is tried again: perf 6.1 does when it meets a build-id of
// more than 20 bytes, or takes for one what is none, because another recording
// on the machine asked for build-ids (see package capture/snapshot).
func RunPerf(t testing.TB, newCmd func() *exec.Cmd) (stdout []byte, stderr string, err error) {
	t.Helper()
	for try := 1; ; try++ {
		var e bytes.Buffer
		cmd := newCmd()
		cmd.Stderr = &e
		stdout, err = cmd.Output()
		if try == perfTries || !perfAborted(err, e.String()) {
			return stdout, e.String(), err
		}
		t.Logf("%v: %v, tried again\n%s", cmd.Args, err, e.Bytes())
	}
}

// perfAborted: perf died of its own checks.
func perfAborted(err error, stderr string) bool {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return ws.Signal() == syscall.SIGABRT || ws.Signal() == syscall.SIGSEGV
		}
	}
	return strings.Contains(stderr, "assertion failed at util/build-id.c")
}
