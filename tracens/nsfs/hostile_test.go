// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nsfs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/tracens/userevents"
)

// hostileSource does with the files of a namespace whatever comes to its mind, in threads
// and forked children: usage: hostile DIRECTORY SEED NUMBER.
const hostileSource = `
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const names[] = { "user_events_data", "user_events_status", "ring", "ring.socket", "marker",
	"trace_pipe", "events", "events/e/enable", "events/e/format", "events/e/id", "events/x.0/enable", ".", "..",
	"../options", "../records" };
static const char *const texts[] = { "e u32 a", "e u64 a", "e", "f __rel_loc char[] s; u8 b", "g struct s t 4096", "",
	"x char[1024] a", "h u32", "e:flag u32 a", "k u32 a;u32 a;u32 a" };
static const char *dir;
static long rounds;
static char memory[1 << 16];

static void *pointer(unsigned *seed)
{
	switch (rand_r(seed) % 6) {
	case 0: return NULL;
	case 1: return (void *)(uintptr_t)rand_r(seed);
	case 2: return (void *)-4096;
	case 3: return (void *)hostile_page;
	default: return memory + rand_r(seed) % (sizeof(memory) - 64);
	}
}

static void *work(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	int fds[8];
	char path[512];

	memset(fds, -1, sizeof(fds));
	for (long i = 0; i < rounds; i++) {
		int *fd = &fds[rand_r(&seed) % 8];
		struct { uint32_t size; uint8_t bit, width; uint16_t flags; uint64_t addr, text; uint32_t index; }
			__attribute__((packed)) *r = (void *)(memory + rand_r(&seed) % 4096);
		struct iovec v[3];
		struct pollfd p;
		struct stat st;
		void *m;

		snprintf(path, sizeof(path), "%s/%s", dir, names[rand_r(&seed) % (sizeof(names) / sizeof(*names))]);
		switch (rand_r(&seed) % 22) {
		case 0: case 1: case 2:
			if (*fd >= 0)
				close(*fd);
			*fd = open(path, (rand_r(&seed) % 3) | O_NONBLOCK | O_CLOEXEC | (rand_r(&seed) % 9 ? 0 : O_TRUNC | O_APPEND));
			break;
		case 3: case 4: case 5: case 6:
			r->size = rand_r(&seed) % 9 ? 28 : rand_r(&seed) % 9000;
			r->bit = rand_r(&seed) % 9 ? rand_r(&seed) % 32 : rand_r(&seed);
			r->width = rand_r(&seed) % 9 ? 4 : rand_r(&seed);
			r->flags = rand_r(&seed) % 5 ? 0 : rand_r(&seed) % 4;
			r->addr = (uint64_t)pointer(&seed) & (rand_r(&seed) % 9 ? ~3ull : ~0ull);
			r->text = rand_r(&seed) % 5 ? (uint64_t)texts[rand_r(&seed) % 10] : (uint64_t)pointer(&seed);
			ioctl(*fd, 0xc0082a00, rand_r(&seed) % 9 ? r : pointer(&seed));
			break;
		case 7: ioctl(*fd, 0x40082a01, rand_r(&seed) % 2 ? texts[rand_r(&seed) % 10] : pointer(&seed)); break;
		case 8: ioctl(*fd, 0x40082a02, pointer(&seed)); break;
		case 9: ioctl(*fd, 0x40084701, pointer(&seed)); break;
		case 10: ioctl(*fd, rand_r(&seed) * 2u, pointer(&seed)); break;
		case 11: case 12: case 13:
			*(uint32_t *)memory = rand_r(&seed) % 8;
			for (int j = 0; j < 3; j++)
				v[j] = (struct iovec){ memory, rand_r(&seed) % 5 ? rand_r(&seed) % 64 : rand_r(&seed) % sizeof(memory) };
			writev(*fd, v, 1 + rand_r(&seed) % 3);
			break;
		case 14: read(*fd, memory, rand_r(&seed) % sizeof(memory)); break;
		case 15:
			m = mmap(NULL, 8192, PROT_READ | PROT_WRITE, rand_r(&seed) % 2 ? MAP_SHARED : MAP_PRIVATE, *fd, 0);
			if (m != MAP_FAILED) {
				for (int j = 0; j < 1024 && fstat(*fd, &st) == 0 && st.st_ino >> 32 == 1; j++)
					((uint64_t *)m)[j] = (uint64_t)rand_r(&seed) << (j % 40);
				munmap(m, 8192);
			}
			break;
		case 16: lseek(*fd, rand_r(&seed), rand_r(&seed) % 5); pread(*fd, memory, 64, rand_r(&seed)); break;
		case 17: ftruncate(*fd, rand_r(&seed)); fchmod(*fd, 0777); fsync(*fd); break;
		case 18: p = (struct pollfd){ .fd = *fd, .events = POLLIN | POLLOUT }; poll(&p, 1, 0); break;
		case 19: unlink(path); mkdir(path, 0777); rename(path, dir); rmdir(path); symlink("x", path); break;
		case 20: stat(path, &st); chmod(path, rand_r(&seed)); truncate(path, 0); access(path, 7); break;
		case 21:
			if (rand_r(&seed) % 50 == 0 && fork() == 0) {
				for (int j = 0; j < 8; j++)
					ioctl(fds[j], 0xc0082a00, r);
				_exit(0);
			}
			break;
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned seed = atoi(argv[2]);
	pthread_t threads[4];

	dir = argv[1];
	rounds = atol(argv[3]);
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(seed * 4 + i));
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	while (wait(NULL) > 0)
		;
	puts("end");
	return 0;
}
`

// TestHostile: programs that do anything, some of which are killed; a neighbour's events
// are right meanwhile, and nothing stays.
func TestHostile(t *testing.T) {
	checkLeaks(t)
	testutil.Require(t, testutil.Tool("gcc"))
	source := "static char hostile_page[4096] __attribute__((aligned(4096)));\n" + hostileSource
	program := testutil.CompileC(t, source, "-pthread", "-w")
	f := mount(t)
	bad := ringReader(t, f, "bad")
	good := ringReader(t, f, "good")
	for _, name := range []string{"bad", "good"} {
		err := os.WriteFile(filepath.Join(f.Dir(), name, "options"), []byte("user_events.max-rate 0\n"), 0)
		wants(t, "options", err, nil)
	}
	root := filepath.Join(f.Dir(), "bad/root")
	p, err := userevents.Open(filepath.Join(f.Dir(), "good/root"))
	wants(t, "open", err, nil)
	defer p.Close()
	event, err := p.Register("e u32 n")
	wants(t, "register", err, nil)
	rounds := 2000
	if os.Getenv("GANTRY_TEST_LONG") != "" {
		rounds = 20000
	}
	var wg sync.WaitGroup
	for seed := range 6 {
		wg.Go(func() {
			cmd := exec.Command(program, root, fmt.Sprint(seed), fmt.Sprint(rounds))
			if err := cmd.Start(); err != nil {
				t.Error(err)
				return
			}
			if seed%2 == 0 {
				for range 200 { // some of what it does
					if err := event.Write(userevents.Append(nil).Uint32(uint32(seed))); err != nil {
						t.Error(err)
					}
				}
				_ = cmd.Process.Kill()
				_ = cmd.Wait() // it was killed
			} else if err := cmd.Wait(); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
	wg.Wait()
	bad.Take()
	n := 0
	testutil.Poll(t, "the neighbour has all of its events", func() bool {
		for _, rec := range good.Take() {
			if rec.Event.Name != "e" || len(rec.Data) != 4 {
				t.Errorf("%+v of %s", rec, rec.Event.Name)
			}
			n++
		}
		return n == 3*200
	})
	if good.Lost() != 0 {
		t.Errorf("the neighbour has lost %d", good.Lost())
	}
}
