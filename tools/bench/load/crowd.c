/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A crowd of users of tracing namespaces. Usage: crowd spin: uses the CPU and nothing
 * else. crowd write FILE: writes an event of user_events_data without a pause, enabled or
 * not. crowd register DIR SPACES EVENTS: registers so many events in each of the
 * namespaces space0, space1 and so on. Each says "ready" and goes on until its input ends.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct user_reg {
	uint32_t size;
	uint8_t enable_bit, enable_size;
	uint16_t flags;
	uint64_t enable_addr, name_args;
	uint32_t write_index;
} __attribute__((packed));

static uint32_t *bits;

static void *end(void *unused)
{
	while (getchar() != EOF)
		;
	exit(0);
	return unused;
}

static int add(int fd, const char *name, uint32_t *bit)
{
	struct user_reg r = { .size = sizeof(r), .enable_size = 4, .enable_addr = (uint64_t)bit,
		.name_args = (uint64_t)name };

	if (ioctl(fd, _IOWR('*', 0, struct user_reg *), &r)) {
		perror(name);
		exit(1);
	}
	return r.write_index;
}

static int data_of(const char *path)
{
	int fd = open(path, O_RDWR);

	if (fd < 0) {
		perror(path);
		exit(1);
	}
	return fd;
}

static void add_all(const char *dir, int spaces, int events)
{
	bits = calloc((size_t)spaces * events, sizeof(*bits));
	for (int s = 0; s < spaces; s++) {
		char path[4096], name[64];
		int fd;

		snprintf(path, sizeof(path), "%s/space%d/root/user_events_data", dir, s);
		fd = data_of(path);
		for (int e = 0; e < events; e++) {
			snprintf(name, sizeof(name), "event%d u32 id; u64 from", e);
			add(fd, name, &bits[s * events + e]);
		}
	}
}

int main(int argc, char **argv)
{
	char data[20] = "";
	int fd = -1, index;
	uint32_t bit = 0;
	pthread_t t;

	if (argc == 5 && !strcmp(argv[1], "register")) {
		add_all(argv[2], atoi(argv[3]), atoi(argv[4]));
	} else if (argc == 3 && !strcmp(argv[1], "write")) {
		fd = data_of(argv[2]);
		index = add(fd, "crowd u64 a; u64 b", &bit);
		memcpy(data, &index, 4);
	} else if (argc != 2 || strcmp(argv[1], "spin")) {
		return 2;
	}
	puts("ready");
	fflush(stdout);
	if (pthread_create(&t, NULL, end, NULL))
		return 1;
	if (argc == 5)
		pthread_join(t, NULL);
	for (;;)
		if (fd >= 0)
			(void)!write(fd, data, sizeof(data));
}
