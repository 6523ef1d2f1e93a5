/* SPDX-License-Identifier: Apache-2.0 */

/*
 * User events of a C program, in one header: to a tracing namespace that is mounted into
 * its container, or to the kernel's own user_events, which have the same files.
 *
 *	static struct user_event request;
 *
 *	int fd = user_events_open(NULL);
 *	user_event_register(fd, &request, "request u32 id; s64 size");
 *	...
 *	if (user_event_enabled(&request)) {
 *		struct { uint32_t id; int64_t size; } __attribute__((packed)) data = { 7, 1024 };
 *
 *		user_event_write(&request, &data, sizeof(data));
 *	}
 *
 * An event must not move or go while it is registered. Functions that return int give 0,
 * or -1 with errno: EADDRINUSE is an event that exists with other fields, EINVAL a
 * description that is none, EBADF a write to which nobody listens any more.
 */
#ifndef GANTRY_USEREVENTS_H
#define GANTRY_USEREVENTS_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

struct user_event {
	uint32_t enabled; /* not 0: somebody listens */
	uint32_t index;
	int fd;
};

/* Opens the files in a directory, NULL for /sys/kernel/tracing: a descriptor or -1. */
static inline int user_events_open(const char *dir)
{
	char path[4096];
	int n = snprintf(path, sizeof(path), "%s/user_events_data", dir ? dir : "/sys/kernel/tracing");

	if (n < 0 || (size_t)n >= sizeof(path))
		return -1;
	return open(path, O_RDWR | O_CLOEXEC);
}

/* Registers an event: "NAME TYPE FIELD; TYPE FIELD", with types such as u32 and char[8]. */
static inline int user_event_register(int fd, struct user_event *e, const char *description)
{
	/* struct user_reg of linux/user_events.h */
	struct {
		uint32_t size;
		uint8_t enable_bit, enable_size;
		uint16_t flags;
		uint64_t enable_addr, name_args;
		uint32_t write_index;
	} __attribute__((packed)) reg;

	memset(&reg, 0, sizeof(reg));
	reg.size = sizeof(reg);
	reg.enable_size = sizeof(e->enabled);
	reg.enable_addr = (uint64_t)(uintptr_t)&e->enabled;
	reg.name_args = (uint64_t)(uintptr_t)description;
	if (ioctl(fd, _IOWR('*', 0, void *), &reg) < 0)
		return -1;
	e->index = reg.write_index;
	e->fd = fd;
	return 0;
}

/* Whether somebody listens. */
static inline int user_event_enabled(const struct user_event *e)
{
	return __atomic_load_n(&e->enabled, __ATOMIC_RELAXED) != 0;
}

/* Writes an event with its data. */
static inline int user_event_write(const struct user_event *e, const void *data, size_t size)
{
	struct iovec parts[2] = { { (void *)&e->index, sizeof(e->index) }, { (void *)data, size } };

	return writev(e->fd, parts, 2) < 0 ? -1 : 0;
}

/* Ends a registration: the event may go afterwards. */
static inline int user_event_unregister(struct user_event *e)
{
	/* struct user_unreg of linux/user_events.h */
	struct {
		uint32_t size;
		uint8_t disable_bit, reserved;
		uint16_t reserved2;
		uint64_t disable_addr;
	} __attribute__((packed)) unreg;

	memset(&unreg, 0, sizeof(unreg));
	unreg.size = sizeof(unreg);
	unreg.disable_addr = (uint64_t)(uintptr_t)&e->enabled;
	return ioctl(e->fd, _IOW('*', 2, void *), &unreg) < 0 ? -1 : 0;
}

#endif
