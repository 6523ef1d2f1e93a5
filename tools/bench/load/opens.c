/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Opens events, one after the other, and prints the median of how many nanoseconds
 * that took: usage: opens all|self|task NUMBER [one], on one CPU or anywhere.
 */
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int smaller(const void *a, const void *b)
{
	long x = *(const long *)a, y = *(const long *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	struct perf_event_attr a;
	struct timespec from, to;
	int pid = 0, cpu = -1, n = argc > 2 ? atoi(argv[2]) : 0;
	long *took = calloc(n > 0 ? n : 1, sizeof(*took));

	if (n <= 0 || !took)
		return 2;
	if (argc > 3) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(0, &set);
		if (sched_setaffinity(0, sizeof(set), &set))
			return 2;
	}
	if (!strcmp(argv[1], "all")) {
		pid = -1;
		cpu = 0;
	} else if (!strcmp(argv[1], "task")) {
		pid = fork();
		if (pid == 0) {
			pause();
			return 0;
		}
	}
	memset(&a, 0, sizeof(a));
	a.size = sizeof(a);
	a.type = PERF_TYPE_SOFTWARE;
	a.config = PERF_COUNT_SW_TASK_CLOCK;
	a.disabled = 1;
	a.exclude_kernel = 1;
	for (int i = 0; i < n; i++) {
		clock_gettime(CLOCK_MONOTONIC, &from);
		int fd = syscall(SYS_perf_event_open, &a, pid, cpu, -1, 0);
		clock_gettime(CLOCK_MONOTONIC, &to);
		if (fd < 0) {
			perror("perf_event_open");
			return 1;
		}
		close(fd);
		took[i] = (to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec;
	}
	if (pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, 0, 0);
	}
	qsort(took, n, sizeof(*took), smaller);
	printf("%ld\n", took[n / 2]);
	return 0;
}
