// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// TestAgentNamespaces: the agent serves tracing namespaces, again when their server was
// killed, and the worker's restarts are no matter of theirs.
func TestAgentNamespaces(t *testing.T) {
	testutil.Require(t, testutil.Root)
	dir := filepath.Join(t.TempDir(), "namespaces")
	a := startAgentFor(t, "", dir)
	mounted := func() bool { return (&nsFlags{dir: dir}).mounted() }
	testutil.Poll(t, "tracing namespaces are mounted", mounted)
	first := a.server(t, dir)
	gantry(t, "ns", "--dir", dir, "create", "shop")
	gantry(t, "ns", "--dir", dir, "options", "shop", "owner 7")
	_ = a.cmd.Process.Signal(syscall.SIGHUP)
	a.awaitReady(t, 2)
	if again := a.server(t, dir); again != first {
		t.Errorf("the server of namespaces is %d, was %d", again, first)
	}
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testutil.Poll(t, "another server serves", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "shop/options"))
		return err == nil && strings.HasPrefix(string(text), "owner 7\n")
	})
	if again := a.server(t, dir); again == first {
		t.Error("the server was not killed")
	}
	gantry(t, "ns", "--dir", dir, "remove", "shop")
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	testutil.Poll(t, "tracing namespaces are unmounted", func() bool { return !mounted() })
	if strings.Count(a.text(), "tracing namespaces ended") != 1 {
		t.Errorf("the agent said:\n%s", a.text())
	}
}

// server is the process that serves tracing namespaces.
func (a *testAgent) server(t *testing.T, dir string) (pid int) {
	t.Helper()
	testutil.Poll(t, "the agent has a server of namespaces", func() bool {
		list, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", a.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range list {
			text, _ := os.ReadFile(file) // a thread may have ended
			for _, child := range bytes.Fields(text) {
				args, err := os.ReadFile("/proc/" + string(child) + "/cmdline")
				if err == nil && bytes.HasSuffix(args, []byte("ns\x00mount\x00"+dir+"\x00")) {
					pid, err = strconv.Atoi(string(child))
					return err == nil
				}
			}
		}
		return false
	})
	return pid
}
