/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes a user event of 20 bytes, one after the other, and prints the median of how
 * many nanoseconds that took, and how many the test of its bit takes while it is
 * disabled: usage: userevents FILE NUMBER, where FILE is user_events_data. It says
 * "ready" when the event is registered, and begins when it is enabled.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

struct user_reg {
	uint32_t size;
	uint8_t enable_bit, enable_size;
	uint16_t flags;
	uint64_t enable_addr, name_args;
	uint32_t write_index;
} __attribute__((packed));

static volatile uint32_t enabled;

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000 + t.tv_nsec;
}

static int smaller(const void *a, const void *b)
{
	long x = *(const long *)a, y = *(const long *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	struct user_reg r = { .size = sizeof(r), .enable_size = 4, .enable_addr = (uint64_t)&enabled,
		.name_args = (uint64_t)"bench u64 a; u64 b" };
	int n = argc > 2 ? atoi(argv[2]) : 0;
	long *took = calloc(n > 0 ? n : 1, sizeof(*took)), begun;
	const long tests = 100 * 1000 * 1000;
	char data[20] = "";
	double idle;
	int fd;

	if (n <= 0 || !took)
		return 2;
	fd = open(argv[1], O_RDWR);
	if (fd < 0 || ioctl(fd, _IOWR('*', 0, struct user_reg *), &r)) {
		perror("register");
		return 1;
	}
	begun = now();
	for (long i = 0; i < tests; i++)
		if (enabled)
			return 1;
	idle = (double)(now() - begun) / tests;
	puts("ready");
	fflush(stdout);
	while (!enabled)
		;
	memcpy(data, &r.write_index, 4);
	for (int i = 0; i < n; i++) {
		begun = now();
		if (write(fd, data, sizeof(data)) != sizeof(data)) {
			perror("write");
			return 1;
		}
		took[i] = now() - begun;
	}
	qsort(took, n, sizeof(*took), smaller);
	printf("%ld %.2f\n", took[n / 2], idle);
	return 0;
}
