//go:build ignore

/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Opens perf events in the pid namespace of a container, because records have the
 * pids of the namespace in which their event was opened. It is two processes:
 *
 * - the starter, which stays in the host's pid namespace. It leaves all that could
 *   be used against the host, and starts the opener anew when that was killed;
 * - the opener, which the container sees among its processes. It is born with an
 *   empty read-only root, two descriptors, CAP_PERFMON and nothing else.
 *
 * The starter's children are reaped by the kernel, so that a container whose
 * processes end never waits for anyone.
 */
#include "../syscalls.h"

START(starter)

/* Descriptors at the start; PIDNS is closed when it was entered. */
enum { SOCKET = 3, CGROUP = 4, PIDNS = 5, FIRST_OTHER = 6 };

enum { MAX_ATTR = 4096, MAX_FILTER = 64 };

/* What Go sends first: see setup in opener.go. */
struct setup {
	u64 tmpfs, proc;  /* "tmpfs", "/proc" */
	u8 name[16];      /* of the processes */
	u64 capabilities; /* those to keep */
	u32 has_cgroup;
	u32 starter_len, opener_len;
	u32 pad;
	u64 starter_filter[MAX_FILTER], opener_filter[MAX_FILTER];
};

enum { OPEN = 1, PIN = 2 };

struct request {
	u32 kind, serial;
	s32 pid, cpu;
	u32 flags;
	u32 run_on; /* the CPU that asks, for the two work in turns */
	u8 attr[MAX_ATTR];
};

enum { READY = 1, DONE = 2, FAILED = 3 };

/* A FAILED one tells the step of the set-up in serial. */
struct reply {
	u32 kind, serial;
	s32 error, pad;
};

static __attribute__((noinline, noreturn)) void fail(u32 step, s64 error)
{
	struct reply r;

	r.kind = FAILED;
	r.serial = step;
	r.error = (s32)-error;
	r.pad = 0;
	send_message(SOCKET, &r, sizeof(r), -1);
	quit(1);
}

static inline __attribute__((always_inline)) s64 must(u32 step, s64 result)
{
	if (result < 0)
		fail(step, result);
	return result;
}

/* The root becomes an empty file system that cannot be written. */
static __attribute__((noinline)) void leave_files(struct setup *s)
{
	enum { MS_REC = 0x4000, MS_PRIVATE = 0x40000, FSCONFIG_CMD_CREATE = 6,
	       MOUNT_ATTR_RDONLY = 1, MOUNT_ATTR_NOSUID = 2, MOUNT_ATTR_NODEV = 4, MOUNT_ATTR_NOEXEC = 8,
	       MOVE_MOUNT_F_EMPTY_PATH = 4, MNT_DETACH = 2 };
	u32 empty = 0, root = '/', here = '.';
	s64 fs, mount;

	must(1, syscall1(SYS_unshare, CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWCGROUP));
	must(2, syscall5(SYS_mount, 0, &root, 0, MS_REC | MS_PRIVATE, 0));
	fs = must(3, syscall2(SYS_fsopen, &s->tmpfs, 0));
	must(4, syscall5(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, 0, 0, 0));
	mount = must(5, syscall3(SYS_fsmount, fs, 0,
				 MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
	must(6, syscall5(SYS_move_mount, mount, &empty, AT_FDCWD, &s->proc, MOVE_MOUNT_F_EMPTY_PATH));
	must(7, syscall1(SYS_fchdir, mount));
	must(8, syscall2(SYS_pivot_root, &here, &here));
	must(9, syscall2(SYS_umount2, &here, MNT_DETACH));
	must(10, syscall1(SYS_chdir, &root));
}

/* Opens what a request asks for: a descriptor or an error below 0. */
static __attribute__((noinline)) s64 answer(struct request *q, s64 len, int group)
{
	enum { HEADER = 24, PIDFD_THREAD = 0200, PID_CGROUP = 4 };
	s64 pid = q->pid;

	if (q->kind == PIN)
		return syscall2(SYS_pidfd_open, pid, q->flags);
	if (q->kind != OPEN || len < HEADER + 64)
		return -EINVAL;
	if (q->flags & PID_CGROUP)
		pid = CGROUP;
	return syscall5(SYS_perf_event_open, q->attr, pid, (s64)q->cpu, (s64)group, q->flags);
}

/* Where the asker is, no CPU must be woken up, which takes longer than all the rest. */
static __attribute__((noinline)) void run_on(u32 cpu)
{
	enum { WORD = 64, WORDS = 128 };
	u64 mask[WORDS];

	for (u32 i = 0; i < WORDS; i++)
		mask[i] = i == cpu / WORD ? 1ul << cpu % WORD : 0;
	syscall3(SYS_sched_setaffinity, 0, sizeof(mask), mask);
}

static __attribute__((noinline, noreturn)) void opener(struct setup *s)
{
	struct request q;
	struct reply r;
	u32 cpu = ~0u;
	int group;

	/* Without the starter nobody is left to start or end it. */
	must(30, syscall2(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL));
	must(31, set_filter(s->opener_filter, s->opener_len, 0));
	r.kind = READY;
	r.serial = 0;
	r.error = 0;
	r.pad = 0;
	send_message(SOCKET, &r, sizeof(r), -1);
	for (;;) {
		s64 len = receive_message(SOCKET, &q, sizeof(q), &group);
		s64 fd;

		if (len <= 0)
			quit(0);
		if (q.run_on != cpu)
			run_on(cpu = q.run_on);
		fd = answer(&q, len, group);
		r.kind = DONE;
		r.serial = q.serial;
		r.error = fd < 0 ? (s32)-fd : 0;
		send_message(SOCKET, &r, sizeof(r), fd < 0 ? -1 : (int)fd);
		if (fd >= 0)
			syscall1(SYS_close, fd);
		if (group >= 0)
			syscall1(SYS_close, group);
	}
}

/* Leaves all but what opening events needs. */
static __attribute__((noinline)) void leave_host(struct setup *s)
{
	u64 ignore[4]; /* struct sigaction: SIG_IGN */

	leave_files(s);
	must(20, syscall2(SYS_setns, PIDNS, CLONE_NEWPID));
	must(21, syscall3(SYS_close_range, 0, 2, 0));
	must(22, syscall3(SYS_close_range, s->has_cgroup ? PIDNS : CGROUP, ~0u, 0));
	syscall2(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL);
	bound_capabilities(s->capabilities);
	must(23, set_capabilities(s->capabilities, s->capabilities, 0));
	must(24, syscall5(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	/* The kernel reaps children whose parent ignores SIGCHLD. */
	ignore[0] = 1;
	ignore[1] = ignore[2] = ignore[3] = 0;
	must(25, syscall4(SYS_rt_sigaction, SIGCHLD, &ignore, 0, 8));
	must(26, set_filter(s->starter_filter, s->starter_len, 0));
}

static __attribute__((noreturn, used)) void starter(void)
{
	struct setup s;
	struct timespec pause;
	int pidfd, none;

	syscall2(SYS_prctl, PR_SET_DUMPABLE, 0);
	if (receive_message(SOCKET, &s, sizeof(s), &none) != sizeof(s))
		quit(1);
	syscall2(SYS_prctl, PR_SET_NAME, s.name);
	leave_host(&s);
	for (;;) {
		struct pollfd polled[2];
		s64 pid;

		pidfd = -1;
		pid = syscall5(SYS_clone, CLONE_PIDFD | SIGCHLD, 0, &pidfd, 0, 0);
		if (pid == 0)
			opener(&s);
		/* The namespace ended, or its processes are too many. */
		if (pid < 0)
			fail(27, pid);
		polled[0].fd = SOCKET;
		polled[0].events = 0;
		polled[1].fd = pidfd;
		polled[1].events = POLLIN;
		polled[0].revents = polled[1].revents = 0;
		while (syscall5(SYS_ppoll, &polled, 2, 0, 0, 0) == -EINTR)
			;
		if (polled[0].revents) {
			/* Also one that the container has stopped. */
			syscall4(SYS_pidfd_send_signal, pidfd, SIGKILL, 0, 0);
			/* Until it is gone, or the container's first process inherits it. */
			syscall4(SYS_wait4, -1, 0, 0, 0);
			quit(0);
		}
		syscall1(SYS_close, pidfd);
		/* Whoever kills it again and again must not keep a CPU busy. */
		pause.sec = 0;
		pause.nsec = 10 * 1000 * 1000;
		syscall2(SYS_nanosleep, &pause, 0);
	}
}
