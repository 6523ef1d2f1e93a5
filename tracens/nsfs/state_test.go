// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nsfs

import (
	"encoding/binary"
	"errors"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// TestRestart: the next server has the namespaces and their options again, and programs
// use them.
func TestRestart(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.Tool("gcc"))
	dir, state := t.TempDir(), filepath.Join(t.TempDir(), "state")
	start := func() *FS {
		f, err := Mount(dir, &Options{State: state})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	end := func(f *FS) {
		wants(t, "unmount", f.Unmount(), nil)
		f.Wait()
	}
	f := start()
	for _, name := range []string{"one", "two", "gone"} {
		wants(t, "mkdir", os.Mkdir(filepath.Join(dir, name), 0o755), nil)
	}
	set := func(name, text string) error {
		return os.WriteFile(filepath.Join(dir, name, "options"), []byte(text), 0)
	}
	wants(t, "options", set("one", "owner 1000\nuser_events.max-events 7\nring.size 65536\n"), nil)
	if err := set("two", "mode 0750\nnonsense\nowner 5\n"); err == nil {
		t.Error("nonsense is taken")
	}
	wants(t, "rmdir", os.Remove(filepath.Join(dir, "gone")), nil)
	end(f)
	f = start()
	for name, want := range map[string]string{
		"one": "owner 1000\ngroup 0\nmode 0700\nuser_events.max-events 7\n", "two": "owner 0\ngroup 0\nmode 0750\n",
	} {
		text, err := os.ReadFile(filepath.Join(dir, name, "options"))
		if err != nil || !strings.HasPrefix(string(text), want) {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was removed is there again: %v", err)
	}
	wants(t, "mkdir", os.Mkdir(filepath.Join(dir, "one"), 0o755), os.ErrExist)
	wants(t, "a line", os.WriteFile(filepath.Join(dir, "one/root/marker"), []byte("here\n"), 0), nil)
	wants(t, "rmdir", os.Remove(filepath.Join(dir, "one")), nil)
	wants(t, "rmdir", os.Remove(filepath.Join(dir, "two")), nil)
	end(f)
	if _, err := os.Stat(state); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something is kept: %v", err)
	}
}

// loopSource writes numbers while its event is enabled, until its input ends.
const loopSource = `
#include <poll.h>
#include "userevents.h"

static struct user_events events;
static struct user_event event;

int main(int argc, char **argv)
{
	struct pollfd in = { .fd = 0, .events = POLLIN };
	uint32_t n = 0;

	if (user_events_open(&events, argv[1]) || user_event_register(&events, &event, "event u32 n") || !events.ring)
		return 1;
	puts("ready");
	fflush(stdout);
	while (poll(&in, 1, 1) == 0)
		if (user_event_enabled(&event) && user_event_write(&event, &n, sizeof(n)) == 0)
			n++;
	return 0;
}
`

// TestServe is no test: a server for other tests to kill, or to end with SIGTERM.
func TestServe(t *testing.T) {
	dir, state := os.Getenv("GANTRY_TEST_SERVE"), os.Getenv("GANTRY_TEST_STATE")
	if dir == "" {
		return
	}
	f, err := Mount(dir, &Options{State: state, Log: log.Default()})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan os.Signal, 2)
	signal.Notify(ended, syscall.SIGTERM)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
		ended <- syscall.SIGTERM
	}()
	os.Stdout.WriteString("ready\n")
	<-ended
	_, err = f.Leave()
	wants(t, "leave", err, nil)
}

// TestKilledServer: a program that has a ring does not notice that another server reads it,
// and what it wrote meanwhile is there.
func TestKilledServer(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.Tool("gcc"))
	// Rings stay where files are in memory.
	state, err := os.MkdirTemp("/dev/shm", "gantry-test-state")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(state) })
	dir := t.TempDir()
	before := serveApart(t, dir, state)
	wants(t, "mkdir", os.Mkdir(filepath.Join(dir, "shop"), 0o755), nil)
	header, err := filepath.Abs("../userevents")
	wants(t, "header", err, nil)
	program := testutil.CompileC(t, loopSource, "-I"+header)
	p := testutil.StartReady(t, exec.Command(program, filepath.Join(dir, "shop/root")))
	ended := testutil.StartReady(t, exec.Command(program, filepath.Join(dir, "shop/root")))
	enable := filepath.Join(dir, "shop/root/events/event/enable")
	wants(t, "enable", os.WriteFile(enable, []byte("1"), 0), nil)
	wants(t, "kill", before.Process.Kill(), nil)
	before.End()
	wants(t, "the end of a program without a server", ended.End(), nil)
	rings, err := filepath.Glob(filepath.Join(state, "shop/rings/*[0-9]"))
	if err != nil || len(rings) != 2 {
		t.Fatalf("%v, %v", rings, err)
	}
	testutil.Poll(t, "something is written to a ring that nobody reads", func() bool {
		for _, name := range rings {
			b, err := os.ReadFile(name)
			ne := binary.NativeEndian
			if err == nil && ne.Uint64(b[64:]) > ne.Uint64(b[192:]) && ended.ProcessState != nil {
				return true
			}
		}
		return false
	})
	f, err := Mount(dir, &Options{State: state})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		wants(t, "unmount", f.Unmount(), nil)
		f.Wait()
	})
	mounted := monotonic()
	ns, err := f.Registry().Find("shop")
	wants(t, "find", err, nil)
	if e := f.Events(ns).Find("event"); e == nil || e.Text() != "event u32 n" {
		t.Fatalf("the event is %v", e)
	}
	r, err := f.Events(ns).ListenHost(nil)
	wants(t, "listen", err, nil)
	defer r.Close()
	next, meanwhile := uint32(0), 0
	for n := 0; n < 50; {
		for _, rec := range numbers(t, r, 1) {
			if rec.PID != p.Process.Pid {
				continue
			}
			if n > 0 && number(&rec) != next {
				t.Fatalf("%d behind %d", number(&rec), next-1)
			}
			if rec.Time < mounted {
				meanwhile++
			}
			next = number(&rec) + 1
			if rec.Time > mounted {
				n++
			} else {
				n = max(n, 1)
			}
		}
	}
	if meanwhile == 0 || r.Lost() != 0 {
		t.Errorf("%d events from before, %d lost", meanwhile, r.Lost())
	}
	if err := os.Remove(filepath.Join(dir, "shop")); err == nil {
		t.Error("removed while a program has its ring")
	}
	wants(t, "the program's end", p.End(), nil)
	r.Close()
	testutil.Poll(t, "the namespace is free", func() bool { return os.Remove(filepath.Join(dir, "shop")) == nil })
	if left, err := os.ReadDir(state); err == nil && len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
