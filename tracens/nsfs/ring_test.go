// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nsfs

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/tracens/events"
)

// ringSource registers an event and does with its ring what its second argument says.
const ringSource = `
#include <stdlib.h>
#include <pthread.h>
#include <sys/wait.h>
#include "userevents.h"

static struct user_events events;
static struct user_event event;

static void put(uint32_t n)
{
	if (user_event_write(&event, &n, sizeof(n))) {
		perror("write");
		exit(1);
	}
}

static void *thread(void *unused)
{
	put(2);
	return unused;
}

int main(int argc, char **argv)
{
	const char *what = argv[2];
	uint64_t *words;
	pthread_t t;

	if (user_events_open(&events, argv[1]) || user_event_register(&events, &event, "event u32 n")) {
		perror("register");
		return 1;
	}
	if (!events.ring) {
		puts("no ring");
		return 1;
	}
	puts("ready");
	fflush(stdout);
	while (!user_event_enabled(&event))
		usleep(1000);
	put(1);
	words = (uint64_t *)events.ring;
	if (!strcmp(what, "threads")) {
		pthread_create(&t, NULL, thread, NULL);
		pthread_join(t, NULL);
		if (fork() == 0) {
			put(3);
			_exit(0);
		}
		wait(NULL);
		put(4);
	} else if (!strcmp(what, "scribble")) {
		for (int i = 0; i < 100000; i++) {
			words[8 * (i % 64)] = (uint64_t)random() << (i % 40);
			words[512 + random() % 4096] = (uint64_t)random() << 32 | (uint64_t)random();
		}
		memset(events.ring, 0xff, 4096);
	} else if (!strcmp(what, "die")) {
		/* Room that is taken, and never written. */
		__atomic_fetch_add(&words[8], 64, __ATOMIC_SEQ_CST);
		put(5);
		kill(getpid(), 9);
	} else if (!strcmp(what, "flood")) {
		for (uint32_t i = 0; i < 1000000; i++)
			user_event_write(&event, &i, sizeof(i));
	} else if (!strcmp(what, "wrong")) {
		event.index = 9;
		put(6);
		event.index = 0;
		user_event_write(&event, "", 1);
		put(7);
	}
	puts("end");
	fflush(stdout);
	getchar();
	return 0;
}
`

// ringProgram compiles it.
func ringProgram(t *testing.T) string {
	t.Helper()
	header, err := filepath.Abs("../userevents")
	if err != nil {
		t.Fatal(err)
	}
	return testutil.CompileC(t, ringSource, "-static", "-pthread", "-I"+header)
}

// ringReader makes a namespace and listens to it.
func ringReader(t *testing.T, f *FS, name string) *events.Reader {
	t.Helper()
	if err := os.Mkdir(filepath.Join(f.Dir(), name), 0o755); err != nil {
		t.Fatal(err)
	}
	if f.noPassthrough != nil {
		testutil.Poll(t, "the socket is there", func() bool {
			conn, err := net.Dial("unix", filepath.Join(f.Dir(), name, "root/ring.socket"))
			if err == nil {
				conn.Close()
			}
			return err == nil
		})
	}
	ns, err := f.Registry().Find(name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.Events(ns).ListenHost(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		testutil.Poll(t, "the namespace is free", func() bool { return os.Remove(filepath.Join(f.Dir(), name)) == nil })
	})
	return r
}

// numbers are the values of the next n events.
func numbers(t *testing.T, r *events.Reader, n int) []events.Record {
	t.Helper()
	var list []events.Record
	for len(list) < n {
		more, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, more...)
	}
	return list
}

func number(r *events.Record) uint32 { return binary.NativeEndian.Uint32(r.Data) }

// untilEnd waits until a program has said that it came to its end.
func untilEnd(t *testing.T, p *testutil.Child) {
	t.Helper()
	if line, err := p.Out.ReadString('\n'); line != "end\n" {
		t.Fatalf("%q, %v, %v", line, err, p.End())
	}
}

// TestRings: what programs do with their rings.
func TestRings(t *testing.T) {
	checkLeaks(t)
	program := ringProgram(t)
	for _, way := range []Options{{}, {NoPassthrough: true}} {
		f := mountWith(t, &way)
		neighbour := ringReader(t, f, "neighbour")
		for _, tt := range []struct {
			what string
			want []uint32
			lost uint64
		}{
			{"threads", []uint32{1, 2, 3, 4}, 0}, {"die", []uint32{1, 5}, 1}, {"wrong", []uint32{1, 7}, 2},
		} {
			r := ringReader(t, f, tt.what)
			p := testutil.StartReady(t, exec.Command(program, filepath.Join(f.Dir(), tt.what, "root"), tt.what))
			var got []uint32
			last := uint64(0)
			for _, rec := range numbers(t, r, len(tt.want)) {
				got = append(got, number(&rec))
				if rec.Time < last || rec.PID != p.Process.Pid {
					t.Errorf("%s: %+v behind %d", tt.what, rec.Writer, last)
				}
				last = rec.Time
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("%s: %d, want %d", tt.what, got, tt.want)
			}
			if err := p.End(); (err != nil) != (tt.what == "die") {
				t.Errorf("%s: %v", tt.what, err)
			}
			testutil.Poll(t, "the loss is counted", func() bool { return r.Lost() == tt.lost })
		}
		scribble := ringReader(t, f, "scribble")
		p := testutil.StartReady(t, exec.Command(program, filepath.Join(f.Dir(), "scribble/root"), "scribble"))
		untilEnd(t, p)
		wants(t, "the program", p.End(), nil)
		testutil.Poll(t, "what was scribbled is counted", func() bool { return scribble.Lost() > 0 })
		flood := ringReader(t, f, "flood")
		p = testutil.StartReady(t, exec.Command(program, filepath.Join(f.Dir(), "flood/root"), "flood"))
		untilEnd(t, p)
		wants(t, "the program", p.End(), nil)
		got := uint64(0)
		testutil.Poll(t, "all are read or counted", func() bool {
			got += uint64(len(flood.Take()))
			return got+flood.Lost() == 1000001
		})
		if list := neighbour.Take(); len(list) > 0 || neighbour.Lost() > 0 {
			t.Errorf("the neighbour has %+v, %d lost", list, neighbour.Lost())
		}
	}
}

// TestRingInContainer: a user of a container with its own pid and user namespaces.
func TestRingInContainer(t *testing.T) {
	checkLeaks(t)
	testutil.Require(t, testutil.CgroupV2, testutil.Tool("runc", "gcc"))
	program := ringProgram(t)
	for _, way := range []Options{{}, {NoPassthrough: true}} {
		f := mountWith(t, &way)
		r := ringReader(t, f, "box")
		options := fmt.Sprintf("owner %d\nmode 0700\n", testutil.UserNSBase)
		if err := os.WriteFile(filepath.Join(f.Dir(), "box/options"), []byte(options), 0); err != nil {
			t.Fatal(err)
		}
		c := testutil.StartContainer(t, testutil.ContainerSpec{Name: "ringbox",
			Files: map[string]string{"/app/ring": program},
			Args:  []string{"/app/ring", "/events", "threads"}, Ready: "ready",
			Namespaces:     []string{"user", "pid", "mount", "ipc", "uts", "network", "cgroup"},
			WritableMounts: map[string]string{"/events": filepath.Join(f.Dir(), "box/root")}})
		list := numbers(t, r, 4)
		if list[0].PID != c.PID || list[0].TID != c.PID {
			t.Errorf("%+v, want process %d", list[0].Writer, c.PID)
		}
		if text, err := os.ReadFile(filepath.Join(f.Dir(), "box/options")); err != nil ||
			!strings.Contains(string(text), "# ring: 1 rings, 0 records lost\n") ||
			strings.Contains(string(text), "root/ring.socket") != way.NoPassthrough {
			t.Errorf("%v\n%s", err, text)
		}
		c.Delete(t)
	}
}

func TestRingOptions(t *testing.T) {
	f := mount(t)
	space := filepath.Join(f.Dir(), "ns")
	wants(t, "mkdir", os.Mkdir(space, 0o755), nil)
	write := func(text string) error { return os.WriteFile(filepath.Join(space, "options"), []byte(text), 0) }
	wants(t, "a size", write("ring.size 65536\nring.max-rings 1\n"), nil)
	wants(t, "no size", write("ring.size 65537\n"), syscall.EINVAL)
	wants(t, "no number", write("ring.size big\n"), syscall.EINVAL)
	wants(t, "unknown", write("ring.colour 1\n"), syscall.EINVAL)
	ring := filepath.Join(space, "root/ring")
	one, err := os.OpenFile(ring, os.O_RDWR, 0)
	wants(t, "open", err, nil)
	_, err = os.OpenFile(ring, os.O_RDWR, 0)
	wants(t, "one too many", err, syscall.EMFILE)
	wants(t, "rmdir while a ring is open", os.Remove(space), syscall.EBUSY)
	one.Close()
	_, err = os.ReadFile(ring)
	wants(t, "open to read", err, syscall.EINVAL)
	wants(t, "make a node", syscall.Mknod(filepath.Join(space, "root/x"), syscall.S_IFSOCK|0o600, 0), syscall.EPERM)
	testutil.Poll(t, "the namespace is free", func() bool { return os.Remove(space) == nil })
}
