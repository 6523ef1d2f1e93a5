/* SPDX-License-Identifier: Apache-2.0 */

/*
 * System calls without a C library, for programs that are one section of code:
 * they have no data, no strings and no library functions, so that the code runs
 * wherever it is mapped and there is nothing in it to link. Text comes from the
 * Go program that starts them. Numbers, structs and constants are the kernel's
 * ABI (arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h).
 */
#ifndef GANTRY_SYSCALLS_H
#define GANTRY_SYSCALLS_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long u64;
typedef long s64;

#if defined(__x86_64__)

enum {
	SYS_read = 0, SYS_write = 1, SYS_close = 3, SYS_mmap = 9, SYS_rt_sigaction = 13, SYS_rt_sigprocmask = 14,
	SYS_ioctl = 16, SYS_nanosleep = 35, SYS_sendmsg = 46, SYS_recvmsg = 47,
	SYS_clone = 56, SYS_execve = 59, SYS_wait4 = 61, SYS_kill = 62, SYS_chdir = 80,
	SYS_fchdir = 81, SYS_setsid = 112, SYS_setgroups = 116, SYS_setresuid = 117,
	SYS_setresgid = 119, SYS_capset = 126, SYS_pivot_root = 155, SYS_chroot = 161, SYS_openat = 257, SYS_umask = 95,
	 SYS_prctl = 157,
	SYS_mount = 165, SYS_umount2 = 166, SYS_sched_setaffinity = 203, SYS_exit_group = 231, SYS_ppoll = 271,
	SYS_unshare = 272, SYS_dup3 = 292, SYS_perf_event_open = 298, SYS_setns = 308,
	SYS_seccomp = 317,
};

static inline __attribute__((always_inline)) s64 syscall6(s64 n, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f)
{
	register u64 r10 __asm__("r10") = d;
	register u64 r8 __asm__("r8") = e;
	register u64 r9 __asm__("r9") = f;
	s64 ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}

/* The program starts here, at the first byte; the stack is aligned. */
#define START(main)                                                      \
	static __attribute__((noreturn, used)) void main(void);          \
	__attribute__((naked, used)) void _start(void)                   \
	{                                                                \
		__asm__ volatile("xor %ebp, %ebp\n\tcall " #main);       \
	}

#elif defined(__aarch64__)

enum {
	SYS_dup3 = 24, SYS_ioctl = 29, SYS_umount2 = 39, SYS_mount = 40, SYS_pivot_root = 41,
	SYS_chdir = 49, SYS_fchdir = 50, SYS_chroot = 51, SYS_openat = 56, SYS_close = 57, SYS_read = 63,
	SYS_write = 64, SYS_ppoll = 73, SYS_umask = 166, SYS_mmap = 222,
	SYS_capset = 91, SYS_exit_group = 94, SYS_unshare = 97, SYS_nanosleep = 101,
	SYS_kill = 129, SYS_rt_sigaction = 134, SYS_rt_sigprocmask = 135, SYS_setresuid = 147,
	SYS_setresgid = 149, SYS_sched_setaffinity = 122, SYS_setsid = 157, SYS_setgroups = 159, SYS_prctl = 167,
	SYS_sendmsg = 211, SYS_recvmsg = 212, SYS_clone = 220, SYS_execve = 221,
	SYS_perf_event_open = 241, SYS_wait4 = 260, SYS_setns = 268, SYS_seccomp = 277,
};

static inline __attribute__((always_inline)) s64 syscall6(s64 n, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f)
{
	register u64 x8 __asm__("x8") = n;
	register u64 x0 __asm__("x0") = a;
	register u64 x1 __asm__("x1") = b;
	register u64 x2 __asm__("x2") = c;
	register u64 x3 __asm__("x3") = d;
	register u64 x4 __asm__("x4") = e;
	register u64 x5 __asm__("x5") = f;

	__asm__ volatile("svc #0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
}

#define START(main)                                                      \
	static __attribute__((noreturn, used)) void main(void);          \
	__attribute__((naked, used)) void _start(void)                   \
	{                                                                \
		__asm__ volatile("mov x29, #0\n\tbl " #main);            \
	}

#else
#error "no system calls for this machine"
#endif

/* The same on all machines. */
enum {
	SYS_pidfd_send_signal = 424, SYS_move_mount = 429, SYS_fsopen = 430,
	SYS_fsconfig = 431, SYS_fsmount = 432, SYS_pidfd_open = 434, SYS_close_range = 436,
};

#define syscall0(n) syscall6(n, 0, 0, 0, 0, 0, 0)
#define syscall1(n, a) syscall6(n, (u64)(a), 0, 0, 0, 0, 0)
#define syscall2(n, a, b) syscall6(n, (u64)(a), (u64)(b), 0, 0, 0, 0)
#define syscall3(n, a, b, c) syscall6(n, (u64)(a), (u64)(b), (u64)(c), 0, 0, 0)
#define syscall4(n, a, b, c, d) syscall6(n, (u64)(a), (u64)(b), (u64)(c), (u64)(d), 0, 0)
#define syscall5(n, a, b, c, d, e) syscall6(n, (u64)(a), (u64)(b), (u64)(c), (u64)(d), (u64)(e), 0)

enum {
	EINTR = 4, EAGAIN = 11, EINVAL = 22,
	SIGKILL = 9, SIGCHLD = 17,
	AT_FDCWD = -100,
	MSG_NOSIGNAL = 0x4000, MSG_CMSG_CLOEXEC = 0x40000000, MSG_CTRUNC = 8, MSG_TRUNC = 0x20,
	SOL_SOCKET = 1, SCM_RIGHTS = 1,
	PR_SET_PDEATHSIG = 1, PR_SET_DUMPABLE = 4, PR_SET_NAME = 15, PR_CAPBSET_DROP = 24,
	PR_SET_NO_NEW_PRIVS = 38, PR_CAP_AMBIENT = 47, PR_CAP_AMBIENT_RAISE = 2, PR_CAP_AMBIENT_CLEAR_ALL = 4,
	PR_SET_KEEPCAPS = 8,
	CLONE_NEWNS = 0x00020000, CLONE_NEWCGROUP = 0x02000000, CLONE_NEWUTS = 0x04000000,
	CLONE_NEWIPC = 0x08000000, CLONE_NEWUSER = 0x10000000, CLONE_NEWPID = 0x20000000,
	CLONE_NEWNET = 0x40000000, CLONE_PIDFD = 0x1000,
	SECCOMP_SET_MODE_FILTER = 1,
	POLLIN = 1, POLLERR = 8, POLLHUP = 16,
};

struct iovec {
	void *base;
	u64 len;
};

struct msghdr {
	void *name;
	u32 namelen;
	struct iovec *iov;
	u64 iovlen;
	void *control;
	u64 controllen;
	u32 flags;
};

/* One descriptor in a message. */
struct fdmsg {
	u64 len;
	s32 level, type;
	s32 fd, pad;
};

struct pollfd {
	s32 fd;
	u16 events, revents;
};

struct timespec {
	s64 sec, nsec;
};

struct sock_fprog {
	u16 len;
	void *filter;
};

struct capheader {
	u32 version;
	s32 pid;
};

struct capdata {
	u32 effective, permitted, inheritable;
};

enum { CAP_VERSION_3 = 0x20080522 };

static inline __attribute__((always_inline, noreturn)) void quit(int status)
{
	for (;;)
		syscall1(SYS_exit_group, status);
}

/*
 * Sends len bytes, with a descriptor unless that is negative. A message is small
 * and goes whole or not at all.
 */
static __attribute__((noinline)) s64 send_message(int sock, void *data, u64 len, int fd)
{
	struct iovec iov;
	struct fdmsg control;
	struct msghdr m;
	s64 n;

	iov.base = data;
	iov.len = len;
	control.len = 20;
	control.level = SOL_SOCKET;
	control.type = SCM_RIGHTS;
	control.fd = fd;
	control.pad = 0;
	m.name = 0;
	m.namelen = 0;
	m.iov = &iov;
	m.iovlen = 1;
	m.control = fd < 0 ? (void *)0 : &control;
	m.controllen = fd < 0 ? 0 : sizeof(control);
	m.flags = 0;
	do
		n = syscall3(SYS_sendmsg, sock, &m, MSG_NOSIGNAL);
	while (n == -EINTR);
	return n;
}

/*
 * Receives at most len bytes, and a descriptor, or -1, in fd. 0 is the end: the
 * other side closed the socket.
 */
static __attribute__((noinline)) s64 receive_message(int sock, void *data, u64 len, int *fd)
{
	struct iovec iov;
	struct fdmsg control;
	struct msghdr m;
	s64 n;

	do {
		iov.base = data;
		iov.len = len;
		m.name = 0;
		m.namelen = 0;
		m.iov = &iov;
		m.iovlen = 1;
		m.control = &control;
		m.controllen = sizeof(control);
		m.flags = 0;
		n = syscall3(SYS_recvmsg, sock, &m, MSG_CMSG_CLOEXEC);
	} while (n == -EINTR);
	*fd = -1;
	if (n > 0 && m.controllen >= 20 && control.level == SOL_SOCKET && control.type == SCM_RIGHTS)
		*fd = control.fd;
	return n;
}

/* Sets a seccomp filter; returns 0, a descriptor, or an error below 0. */
static __attribute__((noinline)) s64 set_filter(void *filter, u32 len, u32 flags)
{
	struct sock_fprog prog;

	prog.len = len;
	prog.filter = filter;
	return syscall3(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);
}

/* Sets the three sets of capabilities of this process. */
static __attribute__((noinline)) s64 set_capabilities(u64 effective, u64 permitted, u64 inheritable)
{
	struct capheader h;
	struct capdata d[2];

	h.version = CAP_VERSION_3;
	h.pid = 0;
	d[0].effective = (u32)effective;
	d[1].effective = (u32)(effective >> 32);
	d[0].permitted = (u32)permitted;
	d[1].permitted = (u32)(permitted >> 32);
	d[0].inheritable = (u32)inheritable;
	d[1].inheritable = (u32)(inheritable >> 32);
	return syscall2(SYS_capset, &h, &d);
}

/* Takes all capabilities but those of keep out of the bounding set. */
static __attribute__((noinline)) void bound_capabilities(u64 keep)
{
	for (int i = 0; i < 64; i++) {
		if (!(keep >> i & 1) && syscall2(SYS_prctl, PR_CAPBSET_DROP, i) == -EINVAL)
			return; /* the kernel has no more */
	}
}

#endif
