//go:build ignore

/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Runs a program in a running container, as its runtime would: in the container's
 * namespaces, cgroup and root, with its user and no more capabilities than its own
 * processes, and with a seccomp filter that tells gantry of system calls. It is two
 * processes:
 *
 * - the waiter, which stays in the host's pid namespace and tells how the program
 *   ended, or ends it when gantry is gone;
 * - the child, which becomes the program. What it has of the host's are the three
 *   standard descriptors, and until it is the program a socket.
 */
#include "../syscalls.h"

START(waiter)

/* Descriptors at the start. */
enum { SOCKET = 3, SETUP = 4, TARGET = 5, ROOT = 6, TRACING = 7 };

enum { LISTENER_FLAG = 8, WAIT_KILLABLE_FLAG = 32 };

/*
 * What Go writes to the file SETUP: see setup in join.go. Texts are offsets from
 * the start of the struct, and lists of texts end with 0, which become pointers.
 */
struct setup {
	u64 size;
	u64 label_file, label; /* 0, or what to write where before the namespaces */
	u64 argv, envp, paths; /* lists; the first of paths that can be run is */
	u64 directory;
	u64 groups, filter; /* offsets */
	u64 bounding, permitted, inheritable, ambient;
	u32 ngroups, filter_len;
	u32 uid, gid;
	u32 namespaces; /* CLONE_NEW* to enter */
	u32 no_new_privs, terminal, pad;
	u64 tracing; /* 0, or where the mount TRACING goes */
};

enum { CHILD = 1, LISTENER = 2, ENDED = 3, FAILED = 4, RUN_FAILED = 5 };

/* A FAILED one tells the step in value. */
struct message {
	u32 kind;
	s32 value, error, pad;
};

static __attribute__((noinline)) void tell(u32 kind, s64 value, s64 error, int fd)
{
	struct message m;

	m.kind = kind;
	m.value = (s32)value;
	m.error = (s32)-error;
	m.pad = 0;
	send_message(SOCKET, &m, sizeof(m), fd);
}

static inline __attribute__((always_inline)) s64 must(u32 step, s64 result)
{
	if (result < 0) {
		tell(FAILED, step, result, -1);
		quit(1);
	}
	return result;
}

/* Makes the texts of a list pointers. */
static __attribute__((noinline)) u64 *texts(struct setup *s, u64 offset)
{
	u64 *list = (u64 *)((u8 *)s + offset);

	for (u64 *p = list; *p; p++)
		*p += (u64)s;
	return list;
}

static __attribute__((noinline)) void set_label(struct setup *s)
{
	enum { O_WRONLY = 1 };
	u8 *text = (u8 *)s + s->label;
	s64 fd, len = 0;

	if (!s->label_file)
		return;
	while (text[len])
		len++;
	fd = must(2, syscall4(SYS_openat, AT_FDCWD, (u8 *)s + s->label_file, O_WRONLY, 0));
	must(3, syscall3(SYS_write, fd, text, len));
	syscall1(SYS_close, fd);
}

/*
 * Mounts the tracing directory in a mount namespace of the program's own, in which
 * all else is as in the container's.
 */
static __attribute__((noinline)) void mount_tracing(struct setup *s)
{
	enum { MS_REC = 0x4000, MS_SLAVE = 0x80000, MOVE_MOUNT_F_EMPTY_PATH = 4 };
	u32 empty = 0, root = '/';

	if (!s->tracing)
		return;
	must(21, syscall1(SYS_unshare, CLONE_NEWNS));
	must(22, syscall5(SYS_mount, 0, &root, 0, MS_REC | MS_SLAVE, 0));
	must(23, syscall5(SYS_move_mount, TRACING, &empty, AT_FDCWD, (u8 *)s + s->tracing, MOVE_MOUNT_F_EMPTY_PATH));
}

/* From here on the process is the user's, with the container's capabilities. */
static __attribute__((noinline)) void become_user(struct setup *s)
{
	syscall2(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL);
	bound_capabilities(s->bounding);
	must(13, syscall2(SYS_prctl, PR_SET_KEEPCAPS, 1));
	/* A user namespace may forbid it; this process has no groups then. */
	if (s->ngroups)
		must(14, syscall2(SYS_setgroups, s->ngroups, (u8 *)s + s->groups));
	must(15, syscall3(SYS_setresgid, s->gid, s->gid, s->gid));
	must(16, syscall3(SYS_setresuid, s->uid, s->uid, s->uid));
	must(17, syscall2(SYS_prctl, PR_SET_KEEPCAPS, 0));
	must(18, set_capabilities(s->permitted, s->permitted, s->inheritable));
	for (int i = 0; i < 64; i++) {
		if (s->ambient >> i & 1)
			syscall3(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, i);
	}
}

static __attribute__((noinline)) void set_listener(struct setup *s)
{
	void *filter = (u8 *)s + s->filter;
	s64 fd;

	fd = set_filter(filter, s->filter_len, LISTENER_FLAG | WAIT_KILLABLE_FLAG);
	if (fd == -EINVAL) /* before Linux 5.19 */
		fd = set_filter(filter, s->filter_len, LISTENER_FLAG);
	must(12, fd);
	tell(LISTENER, 0, 0, (int)fd);
	syscall1(SYS_close, fd);
}

static __attribute__((noinline, noreturn)) void child(struct setup *s, u64 *paths, u64 *argv, u64 *envp)
{
	enum { TIOCSCTTY = 0x540e, CLOSE_RANGE_CLOEXEC = 4, ENOENT = 2, EACCES = 13, ENOTDIR = 20 };
	s64 error = -ENOENT;
	struct message go;
	int none;

	/* Gantry moves the child to the container's cgroups first. */
	if (receive_message(SOCKET, &go, sizeof(go), &none) <= 0)
		quit(1);
	/* Of another session, no program can type into gantry's terminal. */
	syscall0(SYS_setsid);
	if (s->terminal)
		must(10, syscall3(SYS_ioctl, 0, TIOCSCTTY, 0));
	if (s->no_new_privs)
		must(11, syscall5(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	/* While the process may: a filter without no_new_privs needs CAP_SYS_ADMIN. */
	set_listener(s);
	become_user(s);
	if (syscall1(SYS_chdir, (u8 *)s + s->directory) < 0) {
		u32 root = '/';

		must(19, syscall1(SYS_chdir, &root));
	}
	syscall1(SYS_umask, 022);
	must(20, syscall3(SYS_close_range, SOCKET, ~0u, CLOSE_RANGE_CLOEXEC));
	for (; *paths; paths++) {
		s64 e = syscall3(SYS_execve, *paths, argv, envp);

		/* As shells do: one that is there and cannot be run is the answer. */
		if (e != -ENOENT && e != -ENOTDIR)
			error = error == -ENOENT || error == -EACCES ? e : error;
		if (e != -ENOENT && e != -ENOTDIR && e != -EACCES)
			break;
	}
	tell(RUN_FAILED, 0, error, -1);
	quit(error == -ENOENT ? 127 : 126);
}

static __attribute__((noreturn, used)) void waiter(void)
{
	enum { PROT_READ_WRITE = 3, MAP_PRIVATE = 2 };
	struct pollfd polled[2];
	struct setup *s;
	u64 size, *paths, *argv, *envp;
	s64 pid, mapped;
	int pidfd = -1, status = 0;

	syscall2(SYS_prctl, PR_SET_DUMPABLE, 0);
	if (syscall3(SYS_read, SETUP, &size, sizeof(size)) != sizeof(size))
		quit(1);
	mapped = must(1, syscall6(SYS_mmap, 0, size, PROT_READ_WRITE, MAP_PRIVATE, SETUP, 0));
	s = (struct setup *)mapped;
	paths = texts(s, s->paths);
	argv = texts(s, s->argv);
	envp = texts(s, s->envp);
	set_label(s);
	must(4, syscall2(SYS_setns, TARGET, s->namespaces));
	syscall2(SYS_prctl, PR_SET_DUMPABLE, 0);
	must(5, syscall1(SYS_fchdir, ROOT));
	{
		u32 here = '.', root = '/';

		must(6, syscall1(SYS_chroot, &here));
		must(7, syscall1(SYS_chdir, &root));
	}
	mount_tracing(s);
	must(8, syscall3(SYS_close_range, SETUP, ~0u, 0));
	pid = must(9, syscall5(SYS_clone, CLONE_PIDFD | SIGCHLD, 0, &pidfd, 0, 0));
	if (pid == 0)
		child(s, paths, argv, envp);
	tell(CHILD, pid, 0, pidfd);
	syscall3(SYS_close_range, 0, 2, 0);
	polled[0].fd = SOCKET;
	polled[0].events = 0;
	polled[1].fd = pidfd;
	polled[1].events = POLLIN;
	polled[0].revents = polled[1].revents = 0;
	while (syscall5(SYS_ppoll, &polled, 2, 0, 0, 0) == -EINTR)
		;
	if (!polled[1].revents)
		syscall4(SYS_pidfd_send_signal, pidfd, SIGKILL, 0, 0);
	while (syscall4(SYS_wait4, pid, &status, 0, 0) == -EINTR)
		;
	tell(ENDED, status, 0, -1);
	quit(0);
}
