// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//go:build ignore

// Decides for each sample, before it is written, whether its task is one of
// those that are recorded. A program returns 0 for a sample that is not taken.
//
// A task is chosen by rules. Each is a bit; a rule holds if its condition on
// namespaces holds and its condition on the cgroup does. What namespaces say
// comes out of masks and identities, what a cgroup says out of cgroups. A
// cgroup that is not in there, an identity of an open mask that is not, and a
// task that has given up its namespaces are undecided: the sample is taken, and
// user space decides.

#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// In the order of container.Namespace.
enum { NS_NET, NS_UTS, NS_IPC, NS_PID, NS_USER, NS_MNT, NS_CGROUP, NS_TIME, NS_COUNT };

#define MAX_MASKS 32

// Rules with a meaning of their own; all others need both conditions.
#define BY_NAMESPACES (1ULL << 0) // whatever the cgroup
#define BY_CGROUP (1ULL << 1)     // whatever the namespaces

// The namespaces of a task that a mask names, all of which differ from the
// host's; the others are 0.
struct identity {
	__u32 mask;
	__u32 ns[NS_COUNT];
};

struct mask {
	__u32 set;      // bits of NS_*
	__u32 listed;   // identities of this mask may be in the map
	__u64 any;      // rules that hold for each identity
	__u64 open;     // rules that an identity which is not in the map may satisfy
	__u64 all;      // rules that some identity may satisfy
};

// The namespaces of a task, 0 where they are not known.
struct namespaces {
	__u32 ns[NS_COUNT];
};

// Set before the program is loaded.
const volatile __u32 host[NS_COUNT];
const volatile __u32 mask_count;
const volatile struct mask masks[MAX_MASKS];
const volatile __u32 all_sets; // every namespace that some mask names
const volatile __u64 by_cgroup; // BY_CGROUP if cgroups alone can choose

// The rules that an identity satisfies.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); // set before it is loaded
	__type(key, struct identity);
	__type(value, __u64);
} identities SEC(".maps");

// The rules that a cgroup satisfies, by its id.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); // set before it is loaded
	__type(key, __u64);
	__type(value, __u64);
} cgroups SEC(".maps");

enum { KEPT, UNDECIDED, DROPPED, VERDICTS };

struct counts {
	__u64 n[VERDICTS];
};

enum { OF_SAMPLES, OF_PROBES, PROGRAMS };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PROGRAMS);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

// cgroup_of is the id that PERF_SAMPLE_CGROUP reports.
static __always_inline __u64 cgroup_of(struct task_struct *task)
{
	struct css_set *set = task->cgroups;

	return set->subsys[bpf_core_enum_value(enum cgroup_subsys_id, perf_event_cgrp_id)]->cgroup->kn->id;
}

// pid_ns_of is the pid namespace that the task is in, which is that of its
// own pid and not the one that its children will have.
static __always_inline __u32 pid_ns_of(struct task_struct *task)
{
	struct pid *pid = task->thread_pid;
	struct pid_namespace *ns = 0;
	__u32 level;

	if (!pid)
		return 0; // it has been reaped
	level = pid->level;
	bpf_probe_read_kernel(&ns, sizeof(ns), (void *)&pid->numbers + level * bpf_core_type_size(struct upid) +
		bpf_core_field_offset(struct upid, ns));
	return ns ? BPF_CORE_READ(ns, ns.inum) : 0;
}

// read_namespaces fills in those that some mask names. A task that ends has
// given them up: they stay 0.
static __always_inline void read_namespaces(struct task_struct *task, __u32 *ns)
{
	struct nsproxy *p = task->nsproxy;

	if (all_sets & 1 << NS_NET)
		ns[NS_NET] = p->net_ns->ns.inum;
	if (all_sets & 1 << NS_UTS)
		ns[NS_UTS] = p->uts_ns->ns.inum;
	if (all_sets & 1 << NS_IPC)
		ns[NS_IPC] = p->ipc_ns->ns.inum;
	if (all_sets & 1 << NS_PID)
		ns[NS_PID] = pid_ns_of(task);
	if (all_sets & 1 << NS_USER)
		ns[NS_USER] = task->real_cred->user_ns->ns.inum;
	if (all_sets & 1 << NS_MNT)
		ns[NS_MNT] = p->mnt_ns->ns.inum;
	if (all_sets & 1 << NS_CGROUP)
		ns[NS_CGROUP] = p->cgroup_ns->ns.inum;
	if (all_sets & 1 << NS_TIME && bpf_core_field_exists(p->time_ns))
		ns[NS_TIME] = p->time_ns->ns.inum;
}

// is_zero is 1 for 0. It has no branch: with one for each namespace of each mask
// the verifier would have more paths than it can follow.
static __always_inline __u32 is_zero(__u32 x)
{
	return ((x | -x) >> 31) ^ 1;
}

// What namespaces say: the rules whose condition on them holds, and those of
// which that is not known.
struct said {
	__u64 rules, maybe;
};

// ask_mask adds what one mask says. It is a function of its own so that the
// verifier looks at it once, and not for each mask.
__noinline int ask_mask(__u32 i, const struct namespaces *task, struct said *said)
{
	struct identity id;
	__u32 unknown = 0, same = 0;
	__u64 *listed;

	if (!task || !said)
		return 0;
	i &= MAX_MASKS - 1; // which the verifier sees
	asm volatile("" : "+r"(i));
	id.mask = masks[i].set;
	for (int n = 0; n < NS_COUNT; n++) {
		__u32 in = -(id.mask >> n & 1);

		id.ns[n] = task->ns[n] & in;
		unknown |= is_zero(task->ns[n]) & in;
		same |= is_zero(task->ns[n] ^ host[n]) & in;
	}
	if (same)
		return 0;
	if (unknown) {
		said->maybe |= masks[i].all;
		return 0;
	}
	said->rules |= masks[i].any;
	if (!masks[i].listed)
		return 0;
	listed = bpf_map_lookup_elem(&identities, &id);
	if (listed)
		said->rules |= *listed;
	else
		said->maybe |= masks[i].open;
	return 0;
}

static __always_inline int verdict(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct namespaces in = {};
	struct said ns = {};
	__u64 id, *cgroup;

	id = cgroup_of(task);
	cgroup = bpf_map_lookup_elem(&cgroups, &id);
	if (by_cgroup) {
		if (!cgroup)
			return UNDECIDED;
		if (*cgroup & BY_CGROUP)
			return KEPT;
	}
	if (!mask_count)
		return DROPPED;
	read_namespaces(task, in.ns);
	for (__u32 i = 0; i < MAX_MASKS && i < mask_count; i++)
		ask_mask(i, &in, &ns);
	if (ns.rules & BY_NAMESPACES)
		return KEPT;
	if (ns.maybe & BY_NAMESPACES)
		return UNDECIDED;
	if (!cgroup)
		return ns.rules | ns.maybe ? UNDECIDED : DROPPED;
	if (ns.rules & *cgroup)
		return KEPT;
	return ns.maybe & *cgroup ? UNDECIDED : DROPPED;
}

static __always_inline int decide(__u32 program)
{
	struct counts *c = bpf_map_lookup_elem(&counts, &program);
	int v = verdict();

	if (c)
		c->n[v]++;
	return v != DROPPED;
}

SEC("perf_event")
int filter_sample(void *ctx)
{
	(void)ctx;
	return decide(OF_SAMPLES);
}

SEC("kprobe")
int filter_probe(void *ctx)
{
	(void)ctx;
	return decide(OF_PROBES);
}
