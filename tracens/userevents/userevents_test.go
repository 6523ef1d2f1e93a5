// SPDX-License-Identifier: Apache-2.0

//go:build linux

package userevents

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/tracens/nsfs"
)

// mount mounts the directory of namespaces for a test.
func mount(t *testing.T) *nsfs.FS {
	t.Helper()
	f, err := nsfs.Mount(t.TempDir(), &nsfs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Unmount(); err != nil {
			t.Error(err)
		}
		f.Wait()
	})
	return f
}

func TestEvents(t *testing.T) {
	testutil.Require(t, testutil.Root)
	f := mount(t)
	dir := f.Dir()
	if err := os.Mkdir(filepath.Join(dir, "go"), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := Open(filepath.Join(dir, "go/root"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	request, err := p.Register("request u32 id; __rel_loc char[] path; s64 size; __rel_loc char[] from")
	if err != nil {
		t.Fatal(err)
	}
	other, err := p.Register("other u8 n; char[4] verb")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Register("other u64 n"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("other fields: %v", err)
	}
	if _, err := p.Register("nonsense nothing"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("nonsense: %v", err)
	}
	if request.Enabled() || (*Event)(nil).Enabled() {
		t.Error("enabled without a reader")
	}
	if err := other.Write(Append(nil).Uint8(1).Bytes([]byte("GET\x00"))); !errors.Is(err, syscall.EBADF) {
		t.Errorf("write while disabled: %v", err)
	}
	ns, err := f.Registry().Find("go")
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.Events(ns).Listen(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if !request.Enabled() || !other.Enabled() {
		t.Fatal("not enabled with a reader")
	}
	buf := make([]byte, 0, 128)
	for _, err := range []error{
		request.Write(Append(buf).Uint32(7).String("/cart").Uint64(1 << 40).String("")),
		other.Write(Append(buf).Uint8(200).Bytes([]byte("GET\x00"))),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Write(Append(nil).Uint8(1)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("less than the fields: %v", err)
	}
	list := r.Take()
	want := []string{`id=7 path="/cart" size=1099511627776 from=""`, `n=200 verb="GET"`}
	if len(list) != len(want) {
		t.Fatalf("%d records", len(list))
	}
	for i := range list {
		if got := list[i].Text(); got != want[i] {
			t.Errorf("%s, want %s", got, want[i])
		}
	}
}

func BenchmarkDisabled(b *testing.B) {
	e := &Event{word: new(uint32)}
	for b.Loop() {
		if e.Enabled() {
			b.Fatal("enabled")
		}
	}
}

// headerSource uses the header as its comment says.
const headerSource = `
#include "userevents.h"

static struct user_event request;

int main(int argc, char **argv)
{
	int fd = user_events_open(argv[1]);
	struct { uint32_t id; int64_t size; } __attribute__((packed)) data = { 7, -1024 };

	if (fd < 0 || user_event_register(fd, &request, "request u32 id; s64 size")) {
		perror("register");
		return 1;
	}
	puts("ready");
	fflush(stdout);
	while (!user_event_enabled(&request))
		;
	if (user_event_write(&request, &data, sizeof(data)) || user_event_unregister(&request)) {
		perror("write");
		return 1;
	}
	return user_event_enabled(&request);
}
`

func TestHeader(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.Tool("gcc"))
	f := mount(t)
	if err := os.Mkdir(filepath.Join(f.Dir(), "c"), 0o755); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	prog := testutil.CompileC(t, headerSource, "-I"+here, "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror")
	child := testutil.StartReady(t, exec.Command(prog, filepath.Join(f.Dir(), "c/root")))
	ns, err := f.Registry().Find("c")
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.Events(ns).Listen(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	list, err := r.Next(t.Context())
	if err != nil || len(list) != 1 || list[0].Text() != "id=7 size=-1024" {
		t.Errorf("%v, %v", list, err)
	}
	if err := child.End(); err != nil {
		t.Error(err)
	}
}
