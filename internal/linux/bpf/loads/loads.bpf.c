// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//go:build ignore

// Copies the details of BPF programs while they are being loaded, before the
// loader has even a descriptor of them. What it writes are the records below; their parser
// in Go is parse.go.
//
// When the kernel writes a BPF_EVENT into a ring that has a watermark, it wakes
// the reader by an irq_work: an interrupt on the same CPU, inside the system call that loads the
// program, when all is ready but the descriptor. There this program runs; it
// costs nothing at any other time. It finds what was loaded at the end of the kernel's list of
// BPF symbols, which it knows by one of its own.

#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define TAG_LEN 8
#define NAME_LEN 16
#define BPF_RB_NO_WAKEUP 1
#define BPF_RB_FORCE_WAKEUP 2
#define BPF_RB_AVAIL_DATA 0
#define BPF_PROG_LOAD 5

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct list_head {
	struct list_head *next, *prev;
};
struct bpf_ksym {
	char name[1];
	struct list_head lnode;
	bool prog;
};
struct btf {
	void *data;
	__u32 data_size;
	__u32 id;
};
enum bpf_map_type {
	BPF_MAP_TYPE_UNSPEC,
};
struct bpf_map {
	enum bpf_map_type map_type;
	__u32 value_size, max_entries;
	__u32 id;
};
struct bpf_array {
	struct bpf_map map;
	char value[1];
};
struct bpf_insn {
	__u8 code;
};
typedef struct {
	__u32 val;
} kuid_t;
struct user_struct {
	kuid_t uid;
};
struct bpf_prog;
struct bpf_func_info;
struct bpf_line_info;
struct bpf_prog_aux {
	__u32 used_map_cnt;
	__u32 id;
	__u32 func_cnt;
	struct bpf_prog **func;
	struct bpf_ksym ksym;
	struct bpf_map **used_maps;
	struct bpf_prog *prog;
	struct user_struct *user;
	__u64 load_time;
	__u32 verified_insns;
	char name[NAME_LEN];
	struct btf *btf;
	struct bpf_func_info *func_info;
	struct bpf_line_info *linfo;
	void **jited_linfo;
	__u32 func_info_cnt;
	__u32 nr_linfo;
};
enum bpf_prog_type {
	BPF_PROG_TYPE_UNSPEC,
};
struct bpf_prog {
	__u16 gpl_compatible : 1;
	enum bpf_prog_type type;
	__u32 len; // of insnsi
	__u32 jited_len;
	__u8 tag[TAG_LEN];
	void *bpf_func;
	struct bpf_prog_aux *aux;
	struct bpf_insn insnsi[1];
};
struct bpf_iter__bpf_prog {
	struct bpf_iter_meta *meta;
	struct bpf_prog *prog;
};
struct pt_regs {
	unsigned long orig_ax; // x86-64
	unsigned long di;
};

#pragma clang attribute pop

// The kinds of records: one LOAD, what belongs to it, one END.
enum { KIND_LOAD = 1, KIND_CODE, KIND_MAPS, KIND_FUNCS, KIND_LINES, KIND_JITED_LINES, KIND_BTF, KIND_INSNS, KIND_END };

enum { NS_NET, NS_UTS, NS_IPC, NS_PID, NS_USER, NS_MNT, NS_CGROUP, NS_TIME, NS_COUNT };

// A record's begin. size bytes of data follow, from offset on of a whole.
struct head {
	__u32 kind;
	__u32 program; // id
	__u32 index;   // of the subprogram, with KIND_CODE
	__u32 offset, size;
	__u32 whole; // size of the whole
	__u64 address; // of the code
	__u8 tag[TAG_LEN]; // of the subprogram
};

// The data of KIND_LOAD.
struct load {
	__u64 load_time; // CLOCK_BOOTTIME
	__u64 cgroup;    // of the loader, in the v2 hierarchy
	__u32 type, uid, gpl, verified;
	__u32 btf, subprograms;
	__u32 pid, tid; // in the first pid namespace
	__u32 ns[NS_COUNT];
	char name[NAME_LEN];
	char comm[NAME_LEN];
	// How much of each array follows, of elements and bytes.
	__u32 maps, funcs, lines, jited_lines;
	__u64 btf_size;
	__u32 insns, unused;
};

// The data of KIND_MAPS, for each map: where the instructions know it to be.
struct map {
	__u64 address;
	__u64 values; // of an array
	__u32 id, type, value_size, entries;
};

#define PIECE 8192

#define MAPS (PIECE / sizeof(struct map))

// MUCH is how many bytes in the ring wake the reader: it holds the smallest
// copies of fewer programs than its rings hold records of loads.
#define MUCH (128 << 10)

struct record {
	struct head h;
	union {
		struct load load;
		struct map maps[PIECE / sizeof(struct map)];
		__u8 bytes[PIECE];
	};
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct record);
} scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} ring SEC(".maps");

// Set by the reader: the program whose symbol leads to the list, and the time
// (CLOCK_BOOTTIME) since when loads count.
volatile __u32 anchor;
volatile __u64 since;

volatile __u64 symbols; // the list's head, 0 before it is found
volatile __u64 lost;    // records that there was no room for

// seen are programs that were copied, by their id.
#define SEEN 4096
static __u32 seen[SEEN];

#define KNOWN 64 // steps after which a known program ends the walk

static __always_inline struct list_head *next_of(struct list_head *e) { return BPF_CORE_READ(e, next); }

// symbol_of is the symbol that an element of the list belongs to; 0: it is the head. The
// names of all begin with bpf_.
static __always_inline struct bpf_ksym *symbol_of(struct list_head *e)
{
	struct bpf_ksym *k = (void *)e - bpf_core_field_offset(struct bpf_ksym, lnode);
	__u32 name = 0;

	bpf_probe_read_kernel(&name, sizeof(name), (void *)k + bpf_core_field_offset(struct bpf_ksym, name));
	return name == 0x5f667062 ? k : 0; // "bpf_"
}

static long find_step(__u32 i, void *ctx)
{
	struct list_head **e = ctx;

	if (!*e || !symbol_of(*e))
		return 1;
	*e = next_of(*e);
	return 0;
}

// Reading this iterator finds the list.
SEC("iter/bpf_prog")
int find(struct bpf_iter__bpf_prog *ctx)
{
	struct bpf_prog *prog = ctx->prog;
	struct list_head *e;

	if (!prog || BPF_CORE_READ(prog, aux, id) != anchor)
		return 0;
	e = (void *)BPF_CORE_READ(prog, aux) + bpf_core_field_offset(struct bpf_prog_aux, ksym) +
		bpf_core_field_offset(struct bpf_ksym, lnode);
	bpf_loop(1 << 20, find_step, &e, 0);
	// The head is linked as the elements are.
	if (e && !symbol_of(e) && BPF_CORE_READ(e, next, prev) == e)
		symbols = (__u64)e;
	return 0;
}

// What is being copied.
struct copy {
	struct record *r;
	const void *from;
	struct bpf_prog_aux *aux;
};

static __always_inline void emit(struct record *r, __u64 size)
{
	r->h.size = size;
	asm volatile("%0 &= 0x3fff" : "+r"(size)); // for the verifier
	if (size > PIECE)
		return;
	if (bpf_ringbuf_output(&ring, r, sizeof(r->h) + size, BPF_RB_NO_WAKEUP))
		__sync_fetch_and_add(&lost, 1);
}

static long copy_piece(__u32 i, void *ctx)
{
	struct copy *c = ctx;
	struct record *r = c->r;
	__u64 n;

	if (r->h.offset >= r->h.whole)
		return 1;
	n = r->h.whole - r->h.offset;
	if (n > PIECE)
		n = PIECE;
	asm volatile("%0 &= 0x3fff" : "+r"(n)); // for the verifier
	if (n > PIECE)
		return 1;
	if (bpf_probe_read_kernel(r->bytes, n, c->from + r->h.offset)) {
		__sync_fetch_and_add(&lost, 1);
		return 1;
	}
	emit(r, n);
	r->h.offset += n;
	return 0;
}

// copy_all copies memory of the kernel. It is at most 4 MiB, as the ring.
static __always_inline void copy_all(struct copy *c, __u32 kind, const void *from, __u64 size)
{
	if (!from || !size)
		return;
	c->from = from;
	c->r->h.kind = kind;
	c->r->h.offset = 0;
	c->r->h.whole = size > (4 << 20) ? 4 << 20 : size;
	bpf_loop(512, copy_piece, c, 0);
}

static long copy_code(__u32 i, void *ctx)
{
	struct copy *c = ctx;
	struct bpf_prog_aux *aux = c->aux; // BPF_CORE_READ would relocate c->aux
	struct bpf_prog **func = BPF_CORE_READ(aux, func);
	struct bpf_prog *prog = 0;

	if (func)
		bpf_probe_read_kernel(&prog, sizeof(prog), func + i);
	else
		prog = BPF_CORE_READ(aux, prog);
	if (!prog)
		return 1;
	c->r->h.index = i;
	c->r->h.address = (__u64)BPF_CORE_READ(prog, bpf_func);
	bpf_probe_read_kernel(c->r->h.tag, TAG_LEN, (void *)prog + bpf_core_field_offset(struct bpf_prog, tag));
	copy_all(c, KIND_CODE, (void *)c->r->h.address, BPF_CORE_READ(prog, jited_len));
	return 0;
}

static long copy_map(__u32 i, void *ctx)
{
	struct copy *c = ctx;
	struct bpf_prog_aux *aux = c->aux;
	struct bpf_map *map = 0;
	struct map *m;

	bpf_probe_read_kernel(&map, sizeof(map), BPF_CORE_READ(aux, used_maps) + i);
	if (!map || i >= MAPS)
		return 1;
	m = &c->r->maps[i];
	m->address = (__u64)map;
	m->id = BPF_CORE_READ(map, id);
	m->type = BPF_CORE_READ(map, map_type);
	m->value_size = BPF_CORE_READ(map, value_size);
	m->entries = BPF_CORE_READ(map, max_entries);
	m->values = 0;
	if (m->type == BPF_MAP_TYPE_ARRAY)
		m->values = (__u64)map + bpf_core_field_offset(struct bpf_array, value);
	return 0;
}

static __always_inline __u32 pid_namespace(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	struct pid_namespace *ns = 0;

	if (!pid)
		return 0;
	bpf_probe_read_kernel(&ns, sizeof(ns), (void *)pid + bpf_core_field_offset(struct pid, numbers) +
		BPF_CORE_READ(pid, level) * bpf_core_type_size(struct upid) + bpf_core_field_offset(struct upid, ns));
	return BPF_CORE_READ(ns, ns.inum);
}

// describe fills in who loads.
static __always_inline void describe(struct load *l, struct task_struct *task)
{
	struct nsproxy *p = BPF_CORE_READ(task, nsproxy);

	l->pid = BPF_CORE_READ(task, group_leader, pid);
	l->tid = BPF_CORE_READ(task, pid);
	l->cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
	bpf_get_current_comm(l->comm, NAME_LEN);
	l->ns[NS_USER] = BPF_CORE_READ(task, real_cred, user_ns, ns.inum);
	l->ns[NS_PID] = pid_namespace(task);
	if (!p)
		return;
	l->ns[NS_UTS] = BPF_CORE_READ(p, uts_ns, ns.inum);
	l->ns[NS_IPC] = BPF_CORE_READ(p, ipc_ns, ns.inum);
	l->ns[NS_MNT] = BPF_CORE_READ(p, mnt_ns, ns.inum);
	l->ns[NS_NET] = BPF_CORE_READ(p, net_ns, ns.inum);
	l->ns[NS_CGROUP] = BPF_CORE_READ(p, cgroup_ns, ns.inum);
	if (bpf_core_field_exists(p->time_ns))
		l->ns[NS_TIME] = BPF_CORE_READ(p, time_ns, ns.inum);
}

static __always_inline void copy_program(struct record *r, struct bpf_prog_aux *aux, struct task_struct *task)
{
	struct copy c = { .r = r, .aux = aux };
	struct bpf_prog *prog = BPF_CORE_READ(aux, prog);
	struct load *l = &r->load;
	__u32 subs, n;

	__builtin_memset(&r->h, 0, sizeof(r->h));
	__builtin_memset(l, 0, sizeof(*l));
	r->h.kind = KIND_LOAD;
	r->h.program = BPF_CORE_READ(aux, id);
	bpf_probe_read_kernel(r->h.tag, TAG_LEN, (void *)prog + bpf_core_field_offset(struct bpf_prog, tag));
	l->load_time = BPF_CORE_READ(aux, load_time);
	l->type = BPF_CORE_READ(prog, type);
	l->uid = BPF_CORE_READ(aux, user, uid.val);
	l->gpl = BPF_CORE_READ_BITFIELD_PROBED(prog, gpl_compatible);
	if (bpf_core_field_exists(aux->verified_insns))
		l->verified = BPF_CORE_READ(aux, verified_insns);
	l->btf = BPF_CORE_READ(aux, btf, id);
	subs = BPF_CORE_READ(aux, func_cnt);
	if (!subs)
		subs = 1;
	l->subprograms = subs;
	l->maps = BPF_CORE_READ(aux, used_map_cnt);
	l->funcs = BPF_CORE_READ(aux, func_info_cnt);
	l->lines = BPF_CORE_READ(aux, nr_linfo);
	l->jited_lines = BPF_CORE_READ(aux, jited_linfo) ? l->lines : 0;
	l->insns = BPF_CORE_READ(prog, len);
	l->btf_size = BPF_CORE_READ(aux, btf, data_size);
	bpf_probe_read_kernel(l->name, NAME_LEN, (void *)aux + bpf_core_field_offset(struct bpf_prog_aux, name));
	describe(l, task);
	emit(r, sizeof(*l));

	bpf_loop(subs, copy_code, &c, 0);
	n = BPF_CORE_READ(aux, used_map_cnt);
	if (n > MAPS)
		n = MAPS;
	if (n) {
		bpf_loop(n, copy_map, &c, 0);
		r->h.kind = KIND_MAPS;
		r->h.offset = 0;
		r->h.whole = n * sizeof(struct map);
		emit(r, n * sizeof(struct map));
	}
	copy_all(&c, KIND_FUNCS, BPF_CORE_READ(aux, func_info), (__u64)BPF_CORE_READ(aux, func_info_cnt) * 8);
	copy_all(&c, KIND_LINES, BPF_CORE_READ(aux, linfo), (__u64)BPF_CORE_READ(aux, nr_linfo) * 16);
	copy_all(&c, KIND_JITED_LINES, BPF_CORE_READ(aux, jited_linfo), (__u64)BPF_CORE_READ(aux, nr_linfo) * 8);
	copy_all(&c, KIND_BTF, BPF_CORE_READ(aux, btf, data), BPF_CORE_READ(aux, btf, data_size));
	// Those of all subprograms: the kernel keeps them for who asks.
	copy_all(&c, KIND_INSNS, (void *)prog + bpf_core_field_offset(struct bpf_prog, insnsi), (__u64)BPF_CORE_READ(prog, len) * 8);
	r->h.kind = KIND_END;
	r->h.size = 0;
	n = bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) > MUCH ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
	if (bpf_ringbuf_output(&ring, r, sizeof(r->h), n))
		__sync_fetch_and_add(&lost, 1);
}

// A walk back from the newest symbol.
struct walk {
	struct list_head *at;
	struct task_struct *task;
};

static long look(__u32 i, void *ctx)
{
	struct walk *w = ctx;
	struct list_head *e = w->at; // BPF_CORE_READ would relocate w->at
	struct bpf_ksym *k = symbol_of(e);
	struct bpf_prog_aux *aux;
	struct record *r;
	__u32 zero = 0, id, old, *slot;

	if (!k)
		return 1;
	w->at = BPF_CORE_READ(e, prev);
	if (!BPF_CORE_READ(k, prog))
		return 0;
	aux = (void *)k - bpf_core_field_offset(struct bpf_prog_aux, ksym);
	id = BPF_CORE_READ(aux, id);
	if (!id || BPF_CORE_READ(aux, prog, aux) != aux)
		return 0; // a subprogram
	if (BPF_CORE_READ(aux, load_time) < since)
		return 1;
	r = bpf_map_lookup_elem(&scratch, &zero);
	if (!r)
		return 1;
	// Other CPUs walk too: one takes it; a newer one may be taken already.
	slot = &seen[id & (SEEN - 1)];
	old = *(volatile __u32 *)slot;
	if (old >= id || !__sync_bool_compare_and_swap(slot, old, id))
		return i >= KNOWN;
	copy_program(r, aux, w->task);
	return 0;
}

SEC("tp_btf/irq_work_entry")
int loaded(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (void *)bpf_task_pt_regs(task);
	struct walk w = { .task = task };

	if (!symbols || !bpf_core_field_exists(regs->orig_ax))
		return 0;
	if (BPF_CORE_READ(regs, orig_ax) != 321 || BPF_CORE_READ(regs, di) != BPF_PROG_LOAD) // __NR_bpf
		return 0;
	w.at = BPF_CORE_READ((struct list_head *)symbols, prev);
	bpf_loop(512, look, &w, 0);
	return 0;
}
