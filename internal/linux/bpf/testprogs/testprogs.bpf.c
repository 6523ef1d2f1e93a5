// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//go:build ignore

// Programs to look at: one of seven subprograms and one that calls another by
// its tail. They take time when they are run.

#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define BPF_MAP_TYPE_PROG_ARRAY 3

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} calls SEC(".maps");

static volatile __u64 sum;

// The step of each differs, so that no two functions are the same code.
#define WORK(name, step)                                 \
	static __attribute__((noinline)) int name(int n) \
	{                                                \
		for (int i = 0; i < 64; i++)             \
			sum += n + i * step;             \
		return sum;                              \
	}

WORK(work_a, 3)
WORK(work_b, 5)
WORK(work_c, 7)
WORK(work_d, 11)
WORK(work_e, 13)
WORK(work_f, 17)

SEC("socket")
int seven(void *ctx)
{
	int n = work_a(1);

	n += work_b(n);
	n += work_c(n);
	n += work_d(n);
	n += work_e(n);
	n += work_f(n);
	return n & 1;
}

SEC("socket")
int called(void *ctx)
{
	return work_a(2) & 1;
}

SEC("socket")
int caller(void *ctx)
{
	sum += 1;
	bpf_tail_call(ctx, &calls, 0);
	return 0;
}
