// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestNothingBinaryOnTerminal has a terminal that does not tell its size.
func TestNothingBinaryOnTerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	for _, args := range []string{
		"record -o - -- true", "report --format pprof", "archive -o -", "snapshot -o -",
	} {
		var stderr bytes.Buffer
		status := Main(strings.NewReader(""), terminal, &stderr, strings.Fields(args))
		if status != 1 || !strings.HasPrefix(stderr.String(), "gantry: standard output is a terminal\nhint: ") {
			t.Errorf("gantry %s: status %d, %s", args, status, stderr.String())
		}
	}
}
