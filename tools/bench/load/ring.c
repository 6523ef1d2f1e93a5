/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes user events of 20 bytes in bursts that a reader has time to read, and prints how
 * many nanoseconds an event of each took: usage: ring DIRECTORY BURSTS, where DIRECTORY
 * has user_events_data. It begins when the event is enabled. Built with LTTNG it writes
 * them by LTTng-UST: usage: ring - BURSTS.
 */
#ifdef LTTNG
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng.h"
#else
#include "userevents.h"
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 20000

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000 + t.tv_nsec;
}

#ifndef LTTNG
static struct user_events events;
static struct user_event event;
#endif

int main(int argc, char **argv)
{
	int bursts = argc > 2 ? atoi(argv[2]) : 0;

	if (bursts <= 0)
		return 2;
#ifndef LTTNG
	if (user_events_open(&events, argv[1]) ||
	    user_event_register(&events, &event, "request u32 id; u64 from; u64 to")) {
		perror("register");
		return 1;
	}
	if (!events.ring) {
		fputs("no ring\n", stderr);
		return 1;
	}
	while (!user_event_enabled(&event))
		usleep(1000);
#endif
	for (int burst = 0; burst < bursts; burst++) {
		long begun = now();

		for (uint32_t i = 0; i < EVENTS; i++) {
#ifdef LTTNG
			lttng_ust_tracepoint(gantry_bench, request, i, i, i);
#else
			struct {
				uint32_t id;
				uint64_t from, to;
			} __attribute__((packed)) data = { i, i, i };

			if (user_event_enabled(&event) && user_event_write(&event, &data, sizeof(data)))
				return 1;
#endif
		}
		printf("%.2f\n", (double)(now() - begun) / EVENTS);
		fflush(stdout);
		usleep(50000);
	}
	return 0;
}
