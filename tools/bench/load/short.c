// SPDX-License-Identifier: Apache-2.0

// A short life: 20 ms of work, then a fifth of a second of waiting. PAD makes the
// file as large as that of a small service, NUMBER makes it another one.
#include <time.h>

static const char pad[PAD] = { 1 };
static volatile unsigned long sink = NUMBER;

static long now(void) {
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int main(int argc, char **argv) {
	struct timespec rest = { 0, 200000000 };
	while (now() < 20)
		sink += pad[argc];
	nanosleep(&rest, 0);
	return 0;
}
