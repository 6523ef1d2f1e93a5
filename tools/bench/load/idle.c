// SPDX-License-Identifier: Apache-2.0

// idle N starts N processes that do nothing, each with MAPS mappings of which
// EXEC are executable. It prints "ready" when all run, and ends, with them, at
// the end of its input.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { MAPS = 35, EXEC = 11, PAGE = 4096 };

static void count(int *maps, int *exec) {
	FILE *f = fopen("/proc/self/maps", "r");
	char line[8192];
	*maps = *exec = 0;
	while (f && fgets(line, sizeof line, f)) {
		char perms[5] = "";
		if (strstr(line, "[vsyscall]"))
			continue;
		sscanf(line, "%*s %4s", perms);
		++*maps;
		*exec += perms[2] == 'x';
	}
	if (f)
		fclose(f);
}

static int map(int fd, int i, int prot) {
	void *at = (void *)(0x10000000000UL + (unsigned long)i * 16 * PAGE);
	return mmap(at, PAGE, prot, MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, 0) == at;
}

int main(int argc, char **argv) {
	int n = argc > 1 ? atoi(argv[1]) : 1;
	int fd = open("/proc/self/exe", O_RDONLY), maps, exec;
	setvbuf(stdout, NULL, _IONBF, 0);
	count(&maps, &exec);
	for (int i = 0; maps < MAPS; i++, maps++) {
		int prot = PROT_READ;
		if (exec < EXEC)
			exec++, prot |= PROT_EXEC;
		if (!map(fd, i, prot)) {
			perror("mmap");
			return 1;
		}
	}
	count(&maps, &exec);
	pid_t parent = getpid();
	for (int i = 0; i < n; i++) {
		pid_t pid = fork();
		if (pid < 0) {
			perror("fork");
			return 1;
		}
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getppid() != parent)
				return 0;
			for (;;)
				pause();
		}
	}
	printf("ready %d %d\n", maps, exec);
	while (getchar() != EOF)
		;
	return 0;
}
