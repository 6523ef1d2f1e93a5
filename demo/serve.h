// SPDX-License-Identifier: Apache-2.0
//
// The request loop that both demo services share.
#include <time.h>

#define NOINLINE __attribute__((noipa))

// gcc leaves the frame out of small leaf functions even when told not to, and
// then their callers are missing in the stacks.
#define KEEP_FRAME __asm__ volatile("" : : "r"(__builtin_frame_address(0)))

static long now_us(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

// serve handles requests for percent of one CPU, for ever.
NOINLINE static int serve(void (*handle)(void), long percent)
{
	const long period_us = 50000;
	// glibc's start-up code has no frames: end the chain at main, which never
	// returns, or a profiler follows what it finds there.
	void **frame = __builtin_frame_address(0), **caller = *frame;
	*caller = 0;
	for (;;) {
		long start = now_us(CLOCK_MONOTONIC);
		long busy = now_us(CLOCK_THREAD_CPUTIME_ID);
		while (now_us(CLOCK_THREAD_CPUTIME_ID) - busy < period_us * percent / 100)
			handle();
		long rest = period_us - (now_us(CLOCK_MONOTONIC) - start);
		if (rest > 0) {
			struct timespec t = { .tv_nsec = rest * 1000 };
			nanosleep(&t, 0);
		}
	}
	return 0;
}
