// SPDX-License-Identifier: Apache-2.0

//go:build linux

package userevents

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/tracens/events"
	"github.com/gantry-tools/gantry/tracens/nsfs"
	"github.com/gantry-tools/gantry/tracens/ring"
)

// mount mounts the directory of namespaces for a test.
func mount(t *testing.T, o *nsfs.Options) *nsfs.FS {
	t.Helper()
	f, err := nsfs.Mount(t.TempDir(), o)
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

// records are the next ones of a reader.
func records(t *testing.T, r *events.Reader, n int) []events.Record {
	t.Helper()
	var list []events.Record
	for len(list) < n {
		more, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, more...)
	}
	if len(list) > n {
		t.Fatalf("%d records: %+v", len(list), list)
	}
	return list
}

// makeNamespace makes a namespace that has rings.
func makeNamespace(t *testing.T, f *nsfs.FS, o *nsfs.Options, name string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(f.Dir(), name), 0o755); err != nil {
		t.Fatal(err)
	}
	if o.NoPassthrough {
		testutil.Poll(t, "the socket is there", func() bool {
			conn, err := net.Dial("unix", filepath.Join(f.Dir(), name, "root/ring.socket"))
			if err == nil {
				conn.Close()
			}
			return err == nil
		})
	}
}

func monotonic(t *testing.T) uint64 {
	t.Helper()
	now, err := sys.ClockMonotonic.Now()
	if err != nil {
		t.Fatal(err)
	}
	return uint64(now)
}

// ways are how programs give their events away.
var ways = map[string]nsfs.Options{"by a ring": {}, "by a ring from a socket": {NoPassthrough: true}}

func TestEvents(t *testing.T) {
	testutil.Require(t, testutil.Root)
	for name, o := range ways {
		t.Run(name, func(t *testing.T) { testEvents(t, mount(t, &o), &o) })
	}
}

func testEvents(t *testing.T, f *nsfs.FS, o *nsfs.Options) {
	dir := f.Dir()
	makeNamespace(t, f, o, "go")
	p, err := Open(filepath.Join(dir, "go/root"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.ring == nil {
		t.Fatal("no ring")
	}
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
	buf, before := make([]byte, 0, 128), monotonic(t)
	for _, err := range []error{
		request.Write(Append(buf).Uint32(7).String("/cart").Uint64(1 << 40).String("")),
		other.Write(Append(buf).Uint8(200).Bytes([]byte("GET\x00"))),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Write(Append(nil).Uint8(1)); err != nil {
		t.Errorf("less than the fields: %v", err)
	}
	want := []string{`id=7 path="/cart" size=1099511627776 from=""`, `n=200 verb="GET"`}
	list := records(t, r, len(want))
	if now := monotonic(t); list[0].Time < before || list[1].Time < list[0].Time || now < list[1].Time {
		t.Errorf("times %d and %d are not between %d and %d", list[0].Time, list[1].Time, before, now)
	}
	testutil.Poll(t, "what has too few data is lost", func() bool { return r.Lost() == 1 })
	for i := range list {
		if got := list[i].Text(); got != want[i] {
			t.Errorf("%s, want %s", got, want[i])
		}
	}
}

// BenchmarkRing writes events of 20 bytes in bursts that are read in between: what they
// cost the program, whose reader is another process as a rule.
func BenchmarkRing(b *testing.B) {
	mem, err := sys.Memory(ring.Header+2<<20, ring.Header+2<<20)
	if err != nil {
		b.Fatal(err)
	}
	if err := ring.Format(mem.Bytes(), ring.TSC); err != nil {
		b.Fatal(err)
	}
	r, err := ring.NewReader(mem.Bytes())
	if err != nil {
		b.Fatal(err)
	}
	w, err := ring.NewWriter(mem.Bytes())
	if err != nil {
		b.Fatal(err)
	}
	on := uint32(1)
	request := &Event{p: &Provider{ring: w, begin: time.Now()}, word: &on}
	const burst = 20000
	var took []float64
	buf := make([]byte, 0, 64)
	for b.Loop() {
		begin := time.Now()
		for i := range uint64(burst) {
			if request.Enabled() {
				if err := request.Write(Append(buf).Uint32(uint32(i)).Uint64(i).Uint64(i)); err != nil {
					b.Fatal(err)
				}
			}
		}
		took = append(took, float64(time.Since(begin).Nanoseconds())/burst)
		if n := r.Read(false, func(*ring.Record) {}); n != burst {
			b.Fatalf("%d records", n)
		}
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], "ns/event")
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

static struct user_events events;
static struct user_event request;

int main(int argc, char **argv)
{
	struct { uint32_t id; int64_t size; } __attribute__((packed)) data = { 7, -1024 };

	if (user_events_open(&events, argv[1]) ||
	    user_event_register(&events, &request, "request u32 id; s64 size")) {
		perror("register");
		return 1;
	}
	puts(events.ring ? "ring" : "no ring");
	fflush(stdout);
	while (!user_event_enabled(&request))
		;
	if (user_event_write(&request, &data, sizeof(data)) || user_event_unregister(&request)) {
		perror("write");
		return 1;
	}
	user_events_close(&events);
	return user_event_enabled(&request);
}
`

func TestHeader(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.Tool("gcc"))
	for name, o := range ways {
		t.Run(name, func(t *testing.T) { testHeader(t, mount(t, &o), &o) })
	}
}

func testHeader(t *testing.T, f *nsfs.FS, o *nsfs.Options) {
	makeNamespace(t, f, o, "c")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	prog := testutil.CompileC(t, headerSource, "-I"+here, "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror")
	child := testutil.StartReady(t, exec.Command(prog, filepath.Join(f.Dir(), "c/root")))
	if child.First != "ring\n" {
		t.Errorf("%q", child.First)
	}
	ns, err := f.Registry().Find("c")
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.Events(ns).Listen(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if list := records(t, r, 1); list[0].Text() != "id=7 size=-1024" || list[0].TID != child.Process.Pid {
		t.Errorf("%v", list)
	}
	if err := child.End(); err != nil {
		t.Error(err)
	}
}
