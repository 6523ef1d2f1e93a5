// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// policy is the scheduling policy of a thread, 0 for the calling one.
func policy(t *testing.T, tid int) uint32 {
	t.Helper()
	a, err := unix.SchedGetAttr(tid, 0)
	if err != nil {
		t.Fatal(err)
	}
	return a.Policy
}

func TestMemory(t *testing.T) {
	m, err := Memory(3*PageSize(), 2*PageSize())
	if err != nil {
		t.Fatal(err)
	}
	b := m.Bytes()
	b[0], b[len(b)-1] = 1, 2
	if len(b) != 3*PageSize() || b[1] != 0 || b[len(b)-1] != 2 {
		t.Errorf("%d bytes", len(b))
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSetRealtime: the thread is urgent until that is undone, what it starts is not.
func TestSetRealtime(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.Tool("sh"))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	undo, err := SetRealtime(1)
	if err != nil {
		t.Fatal(err)
	}
	if p := policy(t, 0); p != unix.SCHED_FIFO {
		t.Errorf("policy %d", p)
	}
	// The 41st field of /proc/PID/stat is the policy.
	out, err := exec.Command("sh", "-c", "read -r stat </proc/$$/stat; echo $stat").Output()
	if err != nil {
		t.Error(err)
	}
	if f := strings.Fields(string(out)); len(f) < 41 || f[40] != strconv.Itoa(unix.SCHED_NORMAL) {
		t.Errorf("a child has %q", out)
	}
	if err := undo(); err != nil {
		t.Error(err)
	}
	if p := policy(t, 0); p != unix.SCHED_NORMAL {
		t.Errorf("policy %d afterwards in process %d", p, os.Getpid())
	}
}
