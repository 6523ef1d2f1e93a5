// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"bytes"
	"errors"
	"os/exec"
	"regexp"
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

// RecordPerf is RunPerf for a perf record into file, whose path is as the test
// sees it. It records again also what perf itself cannot read: it aborts at the
// same foreign build-ids, and stops, with exit status 0, at the record of a BPF
// program that was loaded while there was another recording, whose end the kernel
// leaves unwritten (see package perf, grown.go).
func RecordPerf(t testing.TB, file string, newCmd func() *exec.Cmd) (stdout []byte, stderr string, err error) {
	t.Helper()
	for try := 1; ; try++ {
		stdout, stderr, err = RunPerf(t, newCmd)
		if err != nil || try == perfTries {
			return stdout, stderr, err
		}
		var e bytes.Buffer
		cmd := exec.Command("perf", "report", "--stats", "-i", file)
		cmd.Stderr = &e
		counts, readErr := cmd.Output()
		if !perfAborted(readErr, e.String()) && someEvents.Match(counts) {
			return stdout, stderr, err
		}
		t.Logf("%v: %v, recorded again\n%s%s", cmd.Args, readErr, counts, e.Bytes())
	}
}

// someEvents finds the number of all records in what perf report --stats says.
var someEvents = regexp.MustCompile(`(?m)^ *TOTAL events: +[1-9]`)

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
