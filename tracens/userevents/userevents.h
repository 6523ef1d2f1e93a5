/* SPDX-License-Identifier: Apache-2.0 */

/*
 * User events of a C program, in one header: to a tracing namespace that is mounted into
 * its container, or to the kernel's own user_events, which have the same files.
 *
 *	static struct user_events events;
 *	static struct user_event request;
 *
 *	user_events_open(&events, NULL);
 *	user_event_register(&events, &request, "request u32 id; s64 size");
 *	...
 *	if (user_event_enabled(&request)) {
 *		struct { uint32_t id; int64_t size; } __attribute__((packed)) data = { 7, 1024 };
 *
 *		user_event_write(&request, &data, sizeof(data));
 *	}
 *
 * In a tracing namespace events are written to a ring in shared memory, without a system
 * call; elsewhere by one. Neither structure may move or go while it is registered. Any
 * thread may call any function. Functions that return int give 0, or -1 with errno:
 * EADDRINUSE is an event that exists with other fields, EINVAL a description that is
 * none, EBADF a write to which nobody listens any more, ENOBUFS a write that found no
 * room, because more comes than is read. A forked child has the events too.
 *
 * It takes GNU C and Linux, and _GNU_SOURCE, which it defines where it is included first.
 */
#ifndef GANTRY_USEREVENTS_H
#define GANTRY_USEREVENTS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* The files of a directory. */
struct user_events {
	int fd;
	uint64_t ring_size;
	char *ring; /* NULL: there is none */
	uint64_t *forked; /* 0 after a fork */
	int tsc; /* the ring's times are of the CPU's counter */
};

struct user_event {
	uint32_t enabled; /* not 0: somebody listens */
	uint32_t index;
	struct user_events *events;
};

/* Offsets in a ring's page, and sizes, of gantry's tracens/ring. */
#define USER_EVENTS_RING_SIZE 16
#define USER_EVENTS_RING_CLOCK 24
#define USER_EVENTS_RING_HEAD 64
#define USER_EVENTS_RING_LOST 128
#define USER_EVENTS_RING_TAIL 192
#define USER_EVENTS_RING_DATA 4096
#define USER_EVENTS_RING_RECORD 20

/* Receives a ring and its number from a socket: its file, or -1. */
static inline int user_events_receive(int sock, uint64_t *id)
{
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec part = { id, sizeof(*id) };
	struct msghdr message;
	struct cmsghdr *c;
	int fd = -1;

	memset(&message, 0, sizeof(message));
	message.msg_iov = &part;
	message.msg_iovlen = 1;
	message.msg_control = control.space;
	message.msg_controllen = sizeof(control.space);
	if (recvmsg(sock, &message, MSG_CMSG_CLOEXEC) != sizeof(*id))
		return -1;
	for (c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	return fd;
}

/* Opens a ring: its file, or -1. *sock is closed when the ring has its events. */
static inline int user_events_open_ring(const char *dir, uint64_t *id, int *sock)
{
	struct sockaddr_un address;
	char path[4096];
	struct stat st;
	int n = snprintf(path, sizeof(path), "%s/ring", dir), fd;

	*sock = -1;
	if (n < 0 || (size_t)n >= sizeof(path))
		return -1;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && fstat(fd, &st) == 0) {
		*id = st.st_ino;
		return fd;
	}
	if (fd >= 0)
		close(fd);
	memset(&address, 0, sizeof(address));
	address.sun_family = AF_UNIX;
	n = snprintf(address.sun_path, sizeof(address.sun_path), "%s/ring.socket", dir);
	if (n < 0 || (size_t)n >= sizeof(address.sun_path))
		return -1;
	*sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (*sock < 0 || connect(*sock, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -1;
	return user_events_receive(*sock, id);
}

/* Maps a ring for the events of p->fd, if there is one. */
static inline void user_events_map_ring(struct user_events *p, const char *dir)
{
	int sock, fd;
	uint64_t id = 0, *size;
	char *page = (char *)MAP_FAILED;

	fd = user_events_open_ring(dir, &id, &sock);
	if (fd >= 0)
		page = (char *)mmap(NULL, USER_EVENTS_RING_DATA, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page != (char *)MAP_FAILED) {
		size = (uint64_t *)(page + USER_EVENTS_RING_SIZE);
		p->ring_size = memcmp(page, "gantryrg\1\0\0\0", 12) ? 0 : *size;
		p->tsc = *(uint64_t *)(page + USER_EVENTS_RING_CLOCK) == 1;
		munmap(page, USER_EVENTS_RING_DATA);
	}
	if (p->ring_size && !(p->ring_size & (p->ring_size - 1))) {
		page = (char *)mmap(NULL, USER_EVENTS_RING_DATA + p->ring_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		p->forked = (uint64_t *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (page != (char *)MAP_FAILED && p->forked != MAP_FAILED && !madvise(p->forked, 4096, MADV_WIPEONFORK) &&
		    ioctl(p->fd, _IOW('G', 1, uint64_t), &id) == 0)
			p->ring = page;
		else if (page != (char *)MAP_FAILED)
			munmap(page, USER_EVENTS_RING_DATA + p->ring_size);
	}
	/* The memory stays with p->fd. */
	if (fd >= 0)
		close(fd);
	if (sock >= 0)
		close(sock);
}

/* Opens the files in a directory, NULL for /sys/kernel/tracing. */
static inline int user_events_open(struct user_events *p, const char *dir)
{
	char path[4096];
	int n;

	dir = dir ? dir : "/sys/kernel/tracing";
	memset(p, 0, sizeof(*p));
	p->fd = -1;
	n = snprintf(path, sizeof(path), "%s/user_events_data", dir);
	if (n < 0 || (size_t)n >= sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	p->fd = open(path, O_RDWR | O_CLOEXEC);
	if (p->fd < 0)
		return -1;
	user_events_map_ring(p, dir);
	return 0;
}

/* Registers an event: "NAME TYPE FIELD; TYPE FIELD", with types such as u32 and char[8]. */
static inline int user_event_register(struct user_events *p, struct user_event *e, const char *description)
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
	e->events = p;
	if (ioctl(p->fd, _IOWR('*', 0, void *), &reg) < 0)
		return -1;
	e->index = reg.write_index;
	return 0;
}

/* Whether somebody listens. */
static inline int user_event_enabled(const struct user_event *e)
{
	return __atomic_load_n(&e->enabled, __ATOMIC_RELAXED) != 0;
}

/* The number of this thread, which a fork changes. */
static inline uint32_t user_events_thread(struct user_events *p)
{
	static __thread uint64_t of;
	static __thread uint32_t thread;
	uint64_t process = __atomic_load_n(p->forked, __ATOMIC_RELAXED);

	if (__builtin_expect(!process, 0)) {
		process = (uint64_t)getpid();
		__atomic_store_n(p->forked, process, __ATOMIC_RELAXED);
	}
	if (__builtin_expect(of != process, 0)) {
		thread = (uint32_t)syscall(SYS_gettid);
		of = process;
	}
	return thread;
}

/* Copies into a ring, in two parts where it ends. */
static inline void user_events_put(struct user_events *p, uint64_t at, const void *from, size_t n)
{
	char *data = p->ring + USER_EVENTS_RING_DATA;
	size_t here;

	at &= p->ring_size - 1;
	here = p->ring_size - at < n ? p->ring_size - at : n;
	memcpy(data + at, from, here);
	memcpy(data, (const char *)from + here, n - here);
}

/* Writes a record to the ring. */
static inline int user_events_write_ring(const struct user_event *e, const void *data, size_t n)
{
	struct user_events *p = e->events;
	uint64_t *head = (uint64_t *)(p->ring + USER_EVENTS_RING_HEAD);
	uint64_t *tail = (uint64_t *)(p->ring + USER_EVENTS_RING_TAIL);
	uint64_t at, size = USER_EVENTS_RING_RECORD + n, room = (size + 7) & ~7ull, mask = p->ring_size - 1;
	struct {
		uint64_t time;
		uint32_t thread;
	} __attribute__((packed)) begin;
	struct timespec now;
	char *record;

	begin.thread = user_events_thread(p);
#ifdef __x86_64__
	if (p->tsc) {
		begin.time = __builtin_ia32_rdtsc();
	} else
#endif
	{
		clock_gettime(CLOCK_MONOTONIC, &now);
		begin.time = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	}
	at = __atomic_load_n(head, __ATOMIC_RELAXED);
	do {
		if (__builtin_expect(at + room - __atomic_load_n(tail, __ATOMIC_ACQUIRE) > p->ring_size, 0)) {
			__atomic_fetch_add((uint64_t *)(p->ring + USER_EVENTS_RING_LOST), 1, __ATOMIC_RELAXED);
			errno = ENOBUFS;
			return -1;
		}
	} while (!__atomic_compare_exchange_n(head, &at, at + room, 1, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
	record = p->ring + USER_EVENTS_RING_DATA + (at & mask);
	if (__builtin_expect((at & mask) + size <= p->ring_size, 1)) {
		memcpy(record + 8, &begin, sizeof(begin));
		memcpy(record + USER_EVENTS_RING_RECORD, data, n);
	} else {
		user_events_put(p, at + 8, &begin, sizeof(begin));
		user_events_put(p, at + USER_EVENTS_RING_RECORD, data, n);
	}
	__atomic_store_n((uint64_t *)record, (uint32_t)(at / 8) | size << 32 | (uint64_t)e->index << 48,
		__ATOMIC_RELEASE);
	return 0;
}

/* Writes an event with its data. */
static inline int user_event_write(const struct user_event *e, const void *data, size_t size)
{
	struct iovec parts[2] = { { (void *)&e->index, sizeof(e->index) }, { (void *)data, size } };

	if (e->events->ring && size <= 0xffff - USER_EVENTS_RING_RECORD && e->index <= 0xffff) {
		if (user_event_enabled(e))
			return user_events_write_ring(e, data, size);
		errno = EBADF;
		return -1;
	}
	return writev(e->events->fd, parts, 2) < 0 ? -1 : 0;
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
	return ioctl(e->events->fd, _IOW('*', 2, void *), &unreg) < 0 ? -1 : 0;
}

/* Ends the files. Their events are unregistered before. */
static inline void user_events_close(struct user_events *p)
{
	if (p->ring)
		munmap(p->ring, USER_EVENTS_RING_DATA + p->ring_size);
	if (p->forked && p->forked != (uint64_t *)MAP_FAILED)
		munmap(p->forked, 4096);
	close(p->fd);
	memset(p, 0, sizeof(*p));
	p->fd = -1;
}

#endif
