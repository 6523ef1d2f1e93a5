// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"bufio"
	"io"
	"os/exec"
	"sync"
	"testing"
)

// Child is a running command that has said it is ready.
type Child struct {
	*exec.Cmd
	First string         // the line it began with
	In    io.WriteCloser // its standard input, whose end it is to take as its own
	Out   *bufio.Reader  // its standard output, behind the first line

	end func() error
}

// StartReady starts a command and waits for its first line. It ends with the
// test, if not before. Its standard error is the test's, unless it is set.
func StartReady(t testing.TB, cmd *exec.Cmd) *Child {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if cmd.Stderr == nil {
		cmd.Stderr = t.Output()
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &Child{Cmd: cmd, In: in, Out: bufio.NewReader(out)}
	c.end = sync.OnceValue(func() error { in.Close(); return cmd.Wait() })
	t.Cleanup(func() { c.end() })
	if c.First, err = c.Out.ReadString('\n'); err != nil {
		t.Fatalf("%s began with %q: %v", cmd, c.First, err)
	}
	return c
}

// End closes the command's standard input, waits until it is over, and gives
// what exec.Cmd.Wait does. Called again, it gives the same.
func (c *Child) End() error { return c.end() }
