/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Uses user_events in every way that Documentation/trace/user_events.rst of Linux has, and
 * prints what a program sees of it:
 *
 *	user_events FILES EVENTS
 *
 * FILES is the directory of user_events_data and user_events_status, EVENTS the one that
 * has a directory for each event. As the first process of a machine it mounts tracefs,
 * uses the kernel's, and turns the machine off.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* struct user_reg and user_unreg of linux/user_events.h */
struct user_reg {
	uint32_t size;
	uint8_t enable_bit, enable_size;
	uint16_t flags;
	uint64_t enable_addr, name_args;
	uint32_t write_index;
} __attribute__((packed));

struct user_unreg {
	uint32_t size;
	uint8_t disable_bit, reserved;
	uint16_t reserved2;
	uint64_t disable_addr;
} __attribute__((packed));

#define REG _IOWR('*', 0, struct user_reg *)
#define DEL _IOW('*', 1, char *)
#define UNREG _IOW('*', 2, struct user_unreg *)

static const char *files, *events;
static uint32_t enabled[16];
static uint64_t wide;

static void result(const char *what, long r)
{
	printf("%s: %ld %s\n", what, r < 0 ? -1 : r, r < 0 ? strerror(errno) : "ok");
	fflush(stdout);
}

static void title(const char *what)
{
	memset(enabled, 0, sizeof(enabled));
	printf("\n== %s\n", what);
	fflush(stdout);
}

static int open_data(int flags)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/user_events_data", files);
	return open(path, flags);
}

static long reg_as(int fd, struct user_reg *r, const char *text, void *addr, int size, int bit, int flags)
{
	memset(r, 0, sizeof(*r));
	r->size = sizeof(*r);
	r->enable_size = size;
	r->enable_bit = bit;
	r->flags = flags;
	r->enable_addr = (uint64_t)addr;
	r->name_args = (uint64_t)text;
	return ioctl(fd, REG, r);
}

static long reg(int fd, struct user_reg *r, const char *text, void *addr)
{
	return reg_as(fd, r, text, addr, 4, 0, 0);
}

static long unreg(int fd, void *addr, int bit)
{
	struct user_unreg u = { .size = sizeof(u), .disable_bit = bit, .disable_addr = (uint64_t)addr };

	return ioctl(fd, UNREG, &u);
}

static long put(int fd, uint32_t index, uint32_t value)
{
	struct iovec v[] = { { &index, sizeof(index) }, { &value, sizeof(value) } };

	return writev(fd, v, 2);
}

/*
 * Prints a text file of an event, without its number, and without the types of arrays,
 * whose sizes Linux 6.12 has from memory that it never set.
 */
static void show_event(const char *name, const char *file)
{
	char path[512], line[4096], *from;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s/%s", events, name, file);
	f = fopen(path, "r");
	if (!f) {
		printf("%s\n", strerror(errno));
		return;
	}
	while (fgets(line, sizeof(line), f)) {
		if (!strncmp(line, "ID: ", 4) || strstr(line, "field:") && strstr(line, " common_"))
			continue;
		from = strstr(line, "field:") && strchr(line, '[') ? strstr(line, "offset:") : line;
		fputs(from ? from : line, stdout);
	}
	fclose(f);
	fflush(stdout);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* Prints user_events_status, sorted, and without who uses an event. */
static void show_status(void)
{
	static char lines[64][1024];
	char path[512];
	int n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/user_events_status", files);
	f = fopen(path, "r");
	while (f && n < 64 && fgets(lines[n], sizeof(lines[n]), f)) {
		char *who = strstr(lines[n], " by ");

		if (who)
			strcpy(who, "\n");
		n++;
	}
	if (f)
		fclose(f);
	qsort(lines, n, sizeof(*lines), by_text);
	for (int i = 0; i < n; i++)
		fputs(lines[i], stdout);
	fflush(stdout);
}

static void enable(const char *name, const char *value)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/%s/enable", events, name);
	fd = open(path, O_WRONLY);
	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		result("enable", -1);
	if (fd >= 0)
		close(fd);
}

/* Waits until a word has a value, and prints what it has at last. */
static void word(const char *what, volatile uint32_t *w, uint32_t want)
{
	for (int i = 0; i < 500 && *w != want; i++)
		usleep(10000);
	printf("%s: %#x\n", what, *w);
	fflush(stdout);
}

/* The same where nothing is to happen: for a moment. */
static void still(const char *what, volatile uint32_t *w)
{
	usleep(200000);
	printf("%s: %#x\n", what, *w);
	fflush(stdout);
}

/* Waits until an event is there, or not. */
static void exists(const char *name, int want)
{
	struct stat st;
	char path[512];
	int got = -1;

	snprintf(path, sizeof(path), "%s/%s", events, name);
	for (int i = 0; i < 500 && (got = stat(path, &st) == 0) != want; i++)
		usleep(10000);
	printf("%s is %sthere\n", name, got ? "" : "not ");
	fflush(stdout);
}

/* Prints the field id of the next line of trace_pipe, which is to be of an event. */
static void next_line(int pipe, const char *name)
{
	char line[4096], want[128], *at;
	int n = 0;

	snprintf(want, sizeof(want), " %s: id=", name);
	for (int i = 0; i < 500; i++) {
		ssize_t got = read(pipe, line + n, sizeof(line) - 1 - n);

		if (got > 0)
			n += got;
		line[n] = 0;
		if (strchr(line, '\n'))
			break;
		usleep(10000);
	}
	at = strstr(line, want);
	printf("traced %ld\n", at ? strtol(at + strlen(want), NULL, 0) : -1);
	fflush(stdout);
}

static void registers(void)
{
	struct user_reg r, tail[2];
	void *read_only = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *end = (char *)mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + 4096;
	int fd = open_data(O_RDWR);

	title("register");
	result("open", fd < 0 ? -1 : 0);
	result("register", reg(fd, &r, "request u32 id", &enabled[0]));
	printf("index %u\n", r.write_index);
	result("register again", reg(fd, &r, "request u32 id", &enabled[1]));
	printf("index %u\n", r.write_index);
	result("register the bit again", reg(fd, &r, "request u32 id", &enabled[0]));
	result("the bit for another event", reg(fd, &r, "response u32 id", &enabled[0]));
	result("another bit of the word", reg_as(fd, &r, "request u32 id", &enabled[0], 4, 31, 0));
	result("other fields", reg(fd, &r, "request u64 id", &enabled[2]));
	result("other fields' names", reg(fd, &r, "request u32 number", &enabled[2]));
	result("more fields", reg(fd, &r, "request u32 id; u32 more", &enabled[2]));
	result("without fields", reg(fd, &r, "request", &enabled[2]));
	result("no text", reg(fd, &r, (char *)8, &enabled[2]));
	result("no address", reg(fd, &r, "request u32 id", (void *)16));
	result("address 0", reg(fd, &r, "request u32 id", NULL));
	result("not aligned", reg(fd, &r, "request u32 id", (char *)enabled + 1));
	result("read only", reg(fd, &r, "request u32 id", read_only));
	result("size 8, bit 63", reg_as(fd, &r, "request u32 id", &wide, 8, 63, 0));
	result("size 8, bit 64", reg_as(fd, &r, "request u32 id", &wide, 8, 64, 0));
	result("size 4, bit 32", reg_as(fd, &r, "request u32 id", &enabled[2], 4, 32, 0));
	result("size 2", reg_as(fd, &r, "request u32 id", &enabled[2], 2, 0, 0));
	result("size 0", reg_as(fd, &r, "request u32 id", &enabled[2], 0, 0, 0));
	result("unknown flags", reg_as(fd, &r, "request u32 id", &enabled[2], 4, 0, 0x80));
	result("second", reg(fd, &r, "second __rel_loc char[] msg", &enabled[3]));
	printf("index %u\n", r.write_index);
	munmap(end, 4096);
	memcpy(end - 16, "last u32 num; \0", 16);
	result("text at the end of the memory", reg(fd, &r, end - 16, &enabled[4]));
	memcpy(end - 4, "end ", 4);
	result("text without an end", reg(fd, &r, end - 4, &enabled[5]));

	title("structs");
	memset(&r, 0, sizeof(r));
	r.size = 8;
	result("short", ioctl(fd, REG, &r));
	r.size = 0;
	result("size 0", ioctl(fd, REG, &r));
	r.size = 1 << 20;
	result("too long", ioctl(fd, REG, &r));
	memset(tail, 0, sizeof(tail));
	tail[0] = (struct user_reg){ .size = sizeof(tail), .enable_size = 4, .enable_addr = (uint64_t)&enabled[6],
		.name_args = (uint64_t)"longer u32 id" };
	result("longer with zeros", ioctl(fd, REG, tail));
	tail[0].enable_addr = (uint64_t)&enabled[7];
	((char *)tail)[sizeof(tail) - 1] = 1;
	result("longer with more", ioctl(fd, REG, tail));
	result("no struct", ioctl(fd, REG, 8));
	result("unknown command", ioctl(fd, _IO('*', 9), 0));
	result("another's command", ioctl(fd, TCGETS, tail));

	title("write while disabled");
	result("write", put(fd, 0, 1));
	result("unknown index", put(fd, 77, 1));
	result("negative index", put(fd, -1, 1));
	result("read", read(fd, tail, sizeof(tail)));
	show_status();
	for (int i = 0; i < 8; i++)
		unreg(fd, &enabled[i], 0);
	unreg(fd, &enabled[0], 31);
	unreg(fd, &wide, 63);
	close(fd);
	exists("request", 0);
	exists("longer", 0);
}

static void toggles(void)
{
	struct user_reg r;
	char path[512];
	int pipe, fd = open_data(O_RDWR), read_only = open_data(O_RDONLY), write_only = open_data(O_WRONLY);

	title("toggle and write");
	result("register", reg_as(fd, &r, "toggled u32 id", &enabled[8], 4, 3, 0));
	enabled[8] |= 0x80000000;
	enable("toggled", "1");
	word("on", &enabled[8], 0x80000008);
	show_event("toggled", "enable");
	show_status();
	result("register while on", reg_as(fd, &r, "toggled u32 id", &enabled[9], 4, 5, 0));
	word("on at once", &enabled[9], 0x20);
	snprintf(path, sizeof(path), "%s/trace_pipe", files);
	pipe = open(path, O_RDONLY | O_NONBLOCK);
	result("write", put(fd, 0, 42));
	next_line(pipe, "toggled");
	result("more than the fields", write(fd, "\0\0\0\0\5\0\0\0more", 12));
	next_line(pipe, "toggled");
	result("short data", write(fd, "\0\0\0\0\1", 5));
	result("no data", write(fd, "\0\0\0\0", 4));
	result("short index", write(fd, "\0", 1));
	result("unknown index", put(fd, 77, 1));
	result("file that has not registered", put(write_only, 0, 1));
	result("register, write only", reg(write_only, &r, "toggled u32 id", &enabled[10]));
	result("write, write only", put(write_only, r.write_index, 43));
	next_line(pipe, "toggled");
	result("register, read only", reg(read_only, &r, "toggled u32 id", &enabled[11]));
	result("write, read only", put(read_only, r.write_index, 1));
	result("delete what is used", ioctl(fd, DEL, "toggled"));
	result("delete what is not there", ioctl(fd, DEL, "nothing"));
	result("delete no text", ioctl(fd, DEL, 8));
	close(pipe);
	enable("toggled", "0");
	word("off", &enabled[8], 0x80000000);
	word("off", &enabled[9], 0);
	result("write", put(fd, 0, 1));
	enable("toggled", "1");
	word("on", &enabled[8], 0x80000008);
	result("unregister a bit that is not", unreg(fd, &enabled[8], 4));
	result("unregister", unreg(fd, &enabled[8], 3));
	printf("after it: %#x\n", enabled[8]);
	result("unregister twice", unreg(fd, &enabled[8], 3));
	result("unregister by another file", unreg(write_only, &enabled[9], 5));
	result("write without a registration", put(fd, 0, 1));
	enable("toggled", "0");
	result("unregister", unreg(fd, &enabled[10], 0));
	result("unregister", unreg(fd, &enabled[11], 0));
	close(fd);
	close(read_only);
	exists("toggled", 1);
	close(write_only);
	exists("toggled", 0);
}

static void strings(void)
{
	struct { uint32_t index, where; char text[8]; } rel;
	struct user_reg r;
	int fd = open_data(O_RDWR);

	title("data whose size is not fixed");
	result("relative", reg(fd, &r, "relative __rel_loc char[] msg", &enabled[8]));
	result("absolute", reg(fd, &r, "absolute __data_loc char[] msg", &enabled[9]));
	result("bytes", reg(fd, &r, "bytes __rel_loc u8[] data", &enabled[10]));
	enable("relative", "1");
	enable("absolute", "1");
	enable("bytes", "1");
	word("on", &enabled[8], 1);
	word("on", &enabled[9], 1);
	memset(&rel, 0, sizeof(rel));
	memcpy(rel.text, "hello", 6);
	rel.where = 6 << 16;
	result("text", write(fd, &rel, 4 + 4 + 6));
	rel.where = 5 << 16;
	result("text without an end", write(fd, &rel, 4 + 4 + 6));
	rel.where = 7 << 16;
	result("text behind the data", write(fd, &rel, 4 + 4 + 6));
	rel.where = 0;
	result("no text", write(fd, &rel, 4 + 4));
	rel.where = 0xffffffff;
	result("far away", write(fd, &rel, 4 + 4 + 6));
	rel.index = 1;
	rel.where = 6 << 16 | 12;
	result("absolute text", write(fd, &rel, 4 + 4 + 6));
	rel.where = 6 << 16 | 4;
	result("before the data", write(fd, &rel, 4 + 4 + 6));
	rel.where = 6 << 16 | 13;
	result("behind the data", write(fd, &rel, 4 + 4 + 6));
	rel.index = 2;
	rel.where = 3 << 16;
	result("bytes without an end", write(fd, &rel, 4 + 4 + 6));
	enable("relative", "0");
	enable("absolute", "0");
	enable("bytes", "0");
	for (int i = 8; i < 11; i++)
		unreg(fd, &enabled[i], 0);
	close(fd);
	exists("bytes", 0);
}

static void descriptions(void)
{
	static const char *const texts[] = {
		"name", "name ", " name", "name u32", "name u32 a", "name u32 a ", "name u32 a;",
		"name u32 a; ", "name u32 a;;", "name ;u32 a", "name u32  a", "name  u32 a", "name\tu32 a", "name u32\ta",
		"name:flag u32 a", "name:flag,other u32 a", "name: u32 a", "na.me u32 a", "na-me u32 a", 
		"na me u32 a", "name u32 a.b", "name u32 a-b", "name u32 a[4]", "name u32 a b", "name u32 a;u32 a",
		"name u32 a,u32 b", "name u32 a;u64 b", "name u32 a ;u64 b", "name u32 a; u64 b;s8 c", "1name u32 a",
		"name u32 1a", "name U32 a", "name bool a", "name long a", "name unsigned long a", "name unsigned a",
		"name signed int a", "name int a", "name unsigned int a", "name short a; unsigned short b",
		"name char a; unsigned char b", "name unsigned  int a", "name long long a", "name float a", "name void a",
		"name u8 a; s8 b; u16 c; s16 d; u32 e; s32 f; u64 g; s64 h", "name char[1] a", "name char[20] a",
		"name unsigned char[20] a", "name char[0] a", "name char[] a", "name char[-1] a", "name char[1024] a",
		"name char[1025] a", "name char[99999999999] a", "name char[4 a", "name char[x] a", "name char[0x10] a",
		"name u32[4] a", "name u8[4] a", "name int[2] a", "name struct foo a 8",
		"name struct foo a", "name struct foo a 0", "name struct foo a -1", "name struct foo a 1024",
		"name struct foo a 1025", "name struct foo a 9999", "name struct foo a x", "name struct a 8",
		"name u32 a 8", "name u32 a 4", "name struct foo a 0x10", "name struct foo a 8 9", "name struct foo * a 8",
		"name u32 *a", "name u32 * a", "name char *a", "name __data_loc char[] a", "name __rel_loc char[] a",
		"name __data_loc u32[] a", "name __rel_loc u8[] a; u32 b", "name __data_loc unsigned char[] a",
		"name __rel_loc char[4] a", "name __rel_loc struct foo a", "name __rel_loc a",
		"name __data_loc struct foo a 8", "name __rel_loc nothing a", "name __data_loc  char[] a", "name unsigned char[] a",
		"name user_type a", "name const char[4] a", "name u32 a:4", "name u32 common_pid", "name u32 name",
		"name u32 __a", "name u32 a; struct foo b 4; char[3] c; __rel_loc char[] d", "name u32 .",
	};
	char name[256], text[700];
	struct user_reg r;
	int fd = open_data(O_RDWR);
	DIR *dir;

	title("descriptions");
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		struct dirent *e;
		long n = reg(fd, &r, texts[i], &enabled[12]);

		printf("\"%s\": ", texts[i]);
		result("", n);
		if (n < 0)
			continue;
		/* The one that is new has some name. */
		name[0] = 0;
		dir = opendir(events);
		while (dir && (e = readdir(dir)))
			if (strstr(" name na.me na-me 1name ", e->d_name) && e->d_name[0] != '.')
				snprintf(name, sizeof(name), "%s", e->d_name);
		if (dir)
			closedir(dir);
		show_event(name, "format");
		unreg(fd, &enabled[12], 0);
		close(fd);
		exists(name, 0);
		fd = open_data(O_RDWR);
	}
	title("long descriptions");
	for (int n = 509; n <= 514; n++) {
		memset(text, 'n', sizeof(text));
		text[n] = 0;
		printf("%d ", n);
		result("bytes without fields", reg(fd, &r, text, &enabled[12]));
		unreg(fd, &enabled[12], 0);
		memcpy(text, "long u32 ", 9);
		printf("%d ", n);
		result("bytes with a field", reg(fd, &r, text, &enabled[12]));
		unreg(fd, &enabled[12], 0);
		close(fd);
		exists("long", 0);
		fd = open_data(O_RDWR);
	}
	close(fd);
}

static void formats(void)
{
	struct user_reg r;
	int fd = open_data(O_RDWR), other = open_data(O_RDWR);

	title("formats of one name");
	result("one", reg_as(fd, &r, "many u32 id", &enabled[8], 4, 0, 2));
	printf("index %u\n", r.write_index);
	result("another", reg_as(fd, &r, "many u64 id", &enabled[9], 4, 0, 2));
	printf("index %u\n", r.write_index);
	result("the first again", reg_as(other, &r, "many u32 id", &enabled[10], 4, 0, 2));
	printf("index %u\n", r.write_index);
	result("as a single one", reg(fd, &r, "many u32 id", &enabled[11]));
	result("as another single one", reg(fd, &r, "many s8 id", &enabled[12]));
	show_status();
	result("delete", ioctl(fd, DEL, "many"));
	for (int i = 8; i < 13; i++)
		unreg(fd, &enabled[i], 0);
	close(fd);
	close(other);
	exists("many", 0);
}

static void forks(void)
{
	struct user_reg r;
	int fd = open_data(O_RDWR), go[2], told[2];
	char c;
	pid_t pid;

	title("fork");
	result("register", reg(fd, &r, "forked u32 id", &enabled[8]));
	if (pipe(go) || pipe(told))
		exit(1);
	pid = fork();
	if (pid == 0) {
		read(go[0], &c, 1);
		word("child on", &enabled[8], 1);
		result("child writes", put(fd, 0, 7));
		result("child registers the bit again", reg(fd, &r, "forked u32 id", &enabled[8]));
		result("child registers another", reg(fd, &r, "forked u32 id", &enabled[9]));
		write(told[1], "1", 1);
		read(go[0], &c, 1);
		word("child off", &enabled[8], 0);
		result("child unregisters", unreg(fd, &enabled[8], 0));
		result("child unregisters twice", unreg(fd, &enabled[8], 0));
		_exit(0);
	}
	enable("forked", "1");
	word("parent on", &enabled[8], 1);
	write(go[1], "1", 1);
	read(told[0], &c, 1);
	enable("forked", "0");
	word("parent off", &enabled[8], 0);
	write(go[1], "1", 1);
	waitpid(pid, NULL, 0);
	result("parent unregisters", unreg(fd, &enabled[8], 0));

	title("fork whose parent ends");
	result("register", reg(fd, &r, "forked u32 id", &enabled[8]));
	pid = fork();
	if (pid == 0) {
		if (fork() == 0) {
			read(go[0], &c, 1);
			word("grandchild on", &enabled[8], 1);
			write(told[1], "1", 1);
			_exit(0);
		}
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	enable("forked", "1");
	word("parent on", &enabled[8], 1);
	write(go[1], "1", 1);
	read(told[0], &c, 1);
	enable("forked", "0");
	result("unregister", unreg(fd, &enabled[8], 0));
	close(fd);
	exists("forked", 0);

	title("exec");
	fd = open_data(O_RDWR);
	result("register", reg(fd, &r, "execed u32 id", &enabled[8]));
	enable("execed", "1");
	word("on", &enabled[8], 1);
	pid = fork();
	if (pid == 0) {
		char number[16];

		snprintf(number, sizeof(number), "%d", fd);
		execl("/proc/self/exe", "user_events", files, events, number, NULL);
		_exit(1);
	}
	waitpid(pid, NULL, 0);
	enable("execed", "0");
	word("off", &enabled[8], 0);
	unreg(fd, &enabled[8], 0);
	close(fd);
	exists("execed", 0);
}

/* What is behind an exec, with an open file. */
static int execed(int fd)
{
	struct user_reg r;

	still("behind the exec", &enabled[8]);
	result("write behind the exec", put(fd, 0, 7));
	result("unregister what was before", unreg(fd, &enabled[8], 0));
	enable("execed", "0");
	enable("execed", "1");
	still("behind the exec", &enabled[8]);
	result("register behind the exec", reg(fd, &r, "execed u32 id", &enabled[8]));
	word("on behind the exec", &enabled[8], 1);
	return 0;
}

static void *register_threaded(void *arg)
{
	struct user_reg r;

	result("register in a thread", reg(*(int *)arg, &r, "threaded u32 id", &enabled[8]));
	return NULL;
}

static void threads(void)
{
	int fd = open_data(O_RDWR);
	pthread_t t;

	title("threads");
	pthread_create(&t, NULL, register_threaded, &fd);
	pthread_join(t, NULL);
	enable("threaded", "1");
	word("on", &enabled[8], 1);
	result("write", put(fd, 0, 1));
	result("unregister", unreg(fd, &enabled[8], 0));
	printf("after it: %#x\n", enabled[8]);
	enable("threaded", "0");
	close(fd);
	exists("threaded", 0);
}

/* Registrations are the memory's, not the file's. */
static void lives(void)
{
	struct user_reg r;
	int fd = open_data(O_RDWR), go[2], other;
	char c;
	pid_t pid;

	title("behind the file");
	result("register", reg(fd, &r, "behind u32 id", &enabled[8]));
	close(fd);
	exists("behind", 1);
	enable("behind", "1");
	word("on", &enabled[8], 1);
	enable("behind", "0");
	word("off", &enabled[8], 0);
	fd = open_data(O_RDWR);
	result("delete", ioctl(fd, DEL, "behind"));
	result("unregister", unreg(fd, &enabled[8], 0));
	exists("behind", 0);
	close(fd);

	title("behind the program");
	if (pipe(go))
		exit(1);
	pid = fork();
	if (pid == 0) {
		fd = open_data(O_RDWR);
		result("register", reg(fd, &r, "program u32 id", &enabled[9]));
		close(fd);
		write(go[1], "1", 1);
		pause();
	}
	read(go[0], &c, 1);
	exists("program", 1);
	other = open_data(O_RDWR);
	result("other fields", reg(other, &r, "program u64 id", &enabled[9]));
	kill(pid, 9);
	waitpid(pid, NULL, 0);
	exists("program", 0);
	result("other fields", reg(other, &r, "program u64 id", &enabled[9]));
	unreg(other, &enabled[9], 0);
	close(other);
	exists("program", 0);
}

static int run(void)
{
	registers();
	toggles();
	strings();
	descriptions();
	formats();
	forks();
	threads();
	lives();
	printf("\n== end\n");
	show_status();
	return 0;
}

int main(int argc, char **argv)
{
	files = "/sys/kernel/tracing";
	events = "/sys/kernel/tracing/events/user_events";
	if (getpid() == 1) {
		mkdir("/proc", 0755);
		mkdir("/sys", 0755);
		if (mount("proc", "/proc", "proc", 0, NULL) || mount("sysfs", "/sys", "sysfs", 0, NULL) ||
		    mount("tracefs", files, "tracefs", 0, NULL))
			perror("mount");
		run();
		fflush(stdout);
		sync();
		reboot(RB_POWER_OFF);
	}
	if (argc < 3) {
		fprintf(stderr, "usage: %s FILES EVENTS\n", argv[0]);
		return 2;
	}
	files = argv[1];
	events = argv[2];
	return argc > 3 ? execed(atoi(argv[3])) : run();
}
