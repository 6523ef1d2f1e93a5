// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//go:build ignore

// Iterators that tell of running tasks and of what they have mapped.

#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// What a record is; the first byte of each.
enum { KIND_TASK = 1 };

#define COMM_LEN 16

enum { NS_NET, NS_UTS, NS_IPC, NS_PID, NS_USER, NS_MNT, NS_CGROUP, NS_TIME, NS_COUNT };

// One task. Its parser in Go is parse.go.
struct task_record {
	__u8 kind;
	__u8 pad[3];
	__u32 flags;      // PF_*
	__u64 now;        // CLOCK_MONOTONIC, before the task was read
	__u64 start;      // CLOCK_BOOTTIME
	__u32 pid, tid, ppid;
	__u32 exit_state; // not 0: a zombie
	__u32 ns[NS_COUNT]; // inodes, 0: none
	char comm[COMM_LEN];
};

static __always_inline void read_namespaces(struct task_struct *task, __u32 *ns)
{
	struct nsproxy *p = task->nsproxy;

	if (!p)
		return;
	ns[NS_UTS] = p->uts_ns->ns.inum;
}

SEC("iter/task")
int tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct task_record r = { .kind = KIND_TASK };

	if (!task)
		return 0;
	r.now = bpf_ktime_get_ns();
	r.pid = task->tgid;
	r.tid = task->pid;
	read_namespaces(task, r.ns);
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}
