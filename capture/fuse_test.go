// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/capture/binaries"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// againSource burns in a function of a child that executes its own program again
// and again, which it does not look up by a path.
const againSource = `
#include <poll.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
	struct timespec t;
	if (argc > 1) {
		do
			clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
		while (t.tv_nsec < 10000000);
		return 0;
	}
	puts("ready");
	fflush(stdout);
	char c;
	struct pollfd in = {0, POLLIN, 0};
	while (poll(&in, 1, 0) == 0 || read(0, &c, 1) > 0) {
		if (fork() == 0) {
			execl("/proc/self/exe", "again", "child", (char *)0);
			_exit(1);
		}
		wait(0);
	}
	return 0;
}
`

// A file system whose server never answers, mounted over the directories of
// mapped files in a container and on the host, or with a mapped file itself, is
// not even asked. Everything else is named and kept.
func TestHangingFUSE(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc", "gcc"))
	testutil.CheckLeaks(t)
	// Nobody else's have these names.
	inContainer, besides := "/app/"+testutil.RandomHex(16), "/app/"+testutil.RandomHex(16)
	covered := testutil.CompileC(t, againSource, "-static", "-Wl,--build-id=0x"+testutil.RandomHex(40))
	c := testutil.StartContainer(t, testutil.ContainerSpec{
		Name: "covered", Files: map[string]string{inContainer: covered}, Args: []string{inContainer}, Ready: "ready"})
	open := testutil.SpinProgram(t, "open_hot")
	testutil.StartContainer(t, testutil.ContainerSpec{
		Name: "open", Files: map[string]string{besides: open}, Args: []string{besides}, Ready: "ready"})
	onHost := testutil.CompileC(t, againSource, "-static", "-Wl,--build-id=0x"+testutil.RandomHex(40))
	testutil.StartReady(t, exec.Command(onHost))
	text, err := os.ReadFile(testutil.SpinProgram(t, "served_hot"))
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string][]byte{inContainer: idOfFile(t, covered), besides: idOfFile(t, open), onHost: idOfFile(t, onHost)}
	dir := t.TempDir()
	served := testutil.MountFUSE(t, 0, dir, text)
	// By way of a shell: a Go program that starts another stands still until that
	// is executed, and so would the server.
	testutil.StartReady(t, exec.Command("sh", "-c", `exec "$0"`, filepath.Join(dir, testutil.FUSEFile)))
	all := map[string]*testutil.FUSE{"in the container": testutil.MountFUSE(t, c.PID, "/app", nil),
		"on the host": testutil.MountFUSE(t, 0, filepath.Dir(onHost), nil), "of a program": served}
	// Without this a failure would never end.
	abort := time.AfterFunc(time.Minute, func() {
		for _, f := range all {
			f.Abort()
		}
	})
	defer abort.Stop()
	for _, f := range all {
		f.Silence()
	}

	store := t.TempDir()
	r, err := Open(Options{Target: Target{All: true}, Groups: groups(t, "cpu-clock"), Store: store, Resolver: resolver(t), Duration: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f := newOutput(t)
	res, err := r.Run(context.Background(), Output{File: f})
	if err != nil {
		t.Fatal(err)
	}
	if !abort.Stop() {
		t.Error("the recording did not end")
	}
	for where, f := range all {
		if n := f.Asked(); n > 0 {
			t.Errorf("the one %s was asked %d times", where, n)
		}
	}
	checkKept(t, store, covered, open)
	checkMapped(t, f.Name(), ids)
	if n := res.Binaries.Missing[binaries.ErrOnFUSE.Error()]; n < 1 {
		t.Errorf("what was not looked at is not told: %+v", res.Binaries)
	}
}

// checkMapped asserts that the mappings of each path have the wanted build-id,
// those of programs that began meanwhile too. A program that has ended before it
// is looked at may have none, if the machine is too busy to look at that in time
// which still has the file.
func checkMapped(t *testing.T, path string, want map[string][]byte) {
	t.Helper()
	seen, without := map[string]int{}, map[string]int{}
	for _, rec := range read(t, path).records {
		m, ok := rec.(*perf.Mmap2)
		if !ok || want[m.Filename] == nil {
			continue
		}
		if len(m.BuildID) == 0 {
			without[m.Filename]++
		} else if !bytes.Equal(m.BuildID, want[m.Filename]) {
			t.Errorf("mapping of %s in process %d: build-id %x, want %x", m.Filename, m.PID, m.BuildID, want[m.Filename])
		}
		seen[m.Filename]++
	}
	for at := range want {
		if seen[at] == 0 {
			t.Errorf("no mapping of %s", at)
		}
		if without[at] > seen[at]/4 {
			t.Errorf("%d of %d mappings of %s have no build-id", without[at], seen[at], at)
		}
	}
}

func idOfFile(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	id, err := buildid.FromFile(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	return id.Bytes()
}
