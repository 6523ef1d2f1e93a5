// SPDX-License-Identifier: Apache-2.0

//go:build linux

package uprobes

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/tracens"
	"github.com/gantry-tools/gantry/tracens/events"
)

// hitSource calls a function once a millisecond.
const hitSource = `
#include <stdio.h>
#include <unistd.h>

__attribute__((noinline)) void hit(void)
{
	__asm__ volatile("" ::: "memory");
}

int main(void)
{
	puts("ready");
	fflush(stdout);
	for (;;) {
		hit();
		usleep(1000);
	}
}
`

// set makes a namespace with the system.
func set(t *testing.T) (*System, *tracens.Registry, *tracens.Namespace, *events.Set) {
	t.Helper()
	users := new(events.System)
	s, r := &System{Events: users.Of}, tracens.NewRegistry()
	for _, system := range []tracens.System{users, s} {
		if err := r.Register(system); err != nil {
			t.Fatal(err)
		}
	}
	ns, err := r.Create("shop")
	if err != nil {
		t.Fatal(err)
	}
	return s, r, ns, users.Of(ns)
}

// TestProbe: a probe on a container's binary fires for that container only, and for
// nobody while nobody listens.
func TestProbe(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.CgroupV2, testutil.Tool("runc", "gcc"))
	testutil.CheckLeaks(t)
	program := testutil.CompileC(t, hitSource, "-static")
	start := func(name string) *testutil.Container {
		return testutil.StartContainer(t, testutil.ContainerSpec{Name: name, Files: map[string]string{"/app/hit": program},
			Args: []string{"/app/hit"}, Ready: "ready", Namespaces: []string{"pid", "mount", "ipc", "uts", "network", "cgroup"}})
	}
	one, two := start("probed"), start("neighbour")
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	id := buildIDOf(t, program)
	_, r, ns, events := set(t)
	command := fmt.Sprintf("uprobe hit %s /app/hit:hit %s", one.CgroupPath, id)
	if err := r.Configure(ns, command); err != nil {
		t.Fatal(err)
	}
	if text, err := r.Show(ns); err != nil || !strings.Contains(text, command) {
		t.Errorf("%v\n%s", err, text)
	}
	reader, err := events.ListenHost(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	want, n := symbol(t, file, "hit"), 0
	for last := uint64(0); n < 50; {
		list, err := reader.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range list {
			if rec.PID != one.PID || rec.Event.Name != "hit" || rec.Event.System != SystemName || rec.Time < last ||
				binary.NativeEndian.Uint64(rec.Data) != want {
				t.Fatalf("%+v of %s behind %d; the container is %d, its neighbour %d", rec, rec.Event.Name, last, one.PID,
					two.PID)
			}
			last = rec.Time
			n++
		}
	}
	for what, tt := range map[string]struct {
		command string
		want    error
	}{
		"again":            {command, syscall.EEXIST},
		"another build-id": {fmt.Sprintf("uprobe x %s /app/hit:hit 00", one.CgroupPath), syscall.ESTALE},
		"no such function": {fmt.Sprintf("uprobe x %s /app/hit:miss", one.CgroupPath), syscall.EINVAL},
		"no such file":     {fmt.Sprintf("uprobe x %s /bin/none:hit", one.CgroupPath), syscall.ENOENT},
		"a host's file":    {fmt.Sprintf("uprobe x %s /../../%s:hit", one.CgroupPath, program), syscall.ENOENT},
		"no such cgroup":   {"uprobe x /gantry/none /app/hit:hit", syscall.ENOENT},
		"the root cgroup":  {"uprobe x /.. /app/hit:hit", syscall.EINVAL},
		"no such probe":    {"uprobe -x", syscall.ENOENT},
		"no place":         {fmt.Sprintf("uprobe x %s /app/hit", one.CgroupPath), syscall.EINVAL},
		"too little":       {"uprobe x", syscall.EINVAL},
	} {
		if err := r.Configure(ns, tt.command); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", what, err, tt.want)
		}
	}
	if err := r.Configure(ns, "uprobe -hit"); err != nil {
		t.Error(err)
	}
	if reader.Lost() != 0 {
		t.Errorf("%d lost", reader.Lost())
	}
	reader.Close()
	if err := r.Remove("shop"); err != nil {
		t.Error(err)
	}
}

func buildIDOf(t *testing.T, name string) string {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	id, err := buildid.FromFile(file, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return id.String()
}

func symbol(t *testing.T, file *elf.File, name string) uint64 {
	t.Helper()
	list, err := file.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.Name == name {
			return s.Value
		}
	}
	t.Fatalf("no symbol %s", name)
	return 0
}
