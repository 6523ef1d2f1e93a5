// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//go:build ignore

// Iterators that tell of running tasks and of what they have mapped. What they
// write are the records below; their parser in Go is parse.go.

#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// The first byte of each record.
enum { KIND_TASK = 1, KIND_FILE, KIND_MAPPING };

#define COMM_LEN 16

enum { NS_NET, NS_UTS, NS_IPC, NS_PID, NS_USER, NS_MNT, NS_CGROUP, NS_TIME, NS_COUNT };

// A task.
struct task_record {
	__u8 kind;
	__u8 zombie;
	__u16 pad;
	__u32 flags; // PF_*
	__u64 now;   // CLOCK_MONOTONIC, before the task was read
	__u64 start; // CLOCK_BOOTTIME
	__u64 cgroup; // id in the v2 hierarchy
	__u32 pid, tid, ppid;
	__u32 ns[NS_COUNT]; // inodes, 0: none
	char comm[COMM_LEN];
	__u32 pad2;
};

// A file, before the first mapping of it. size bytes follow: the names of its
// path with a NUL behind each, the last one first.
struct file_record {
	__u8 kind;
	__u8 flags; // FILE_*
	__u16 size; // less than 1 << 13
	__u32 id;
	__u64 ino;
	__u32 dev; // as the kernel has it, 12 and 20 bits
	__u32 magic;
	__u32 generation;
	__u32 pad;
};

enum {
	FILE_DELETED = 1,  // it has no name any more
	FILE_NAMELESS = 2, // the file system makes up its name
	FILE_CUT = 4,      // the path is longer than what is told
	FILE_SPECIAL = 8,  // no file: a mapping that the kernel names
};

// A mapping. offset is in pages.
struct mapping_record {
	__u8 kind;
	__u8 name; // NAME_*
	__u16 pad;
	__u32 pid;
	__u64 now;
	__u64 start, end, offset;
	__u32 flags; // VM_*, the lower half
	__u32 file;  // id of a file told of before, with NAME_FILE
};

enum { NAME_FILE, NAME_ANON, NAME_HEAP, NAME_STACK };

#define VM_EXEC 4

// The iterators' state; one reader at a time.
struct {
	__u64 pass;  // that first was called in
	__u32 level; // of the reader's pid namespace, 0 being the first
	__u32 pid, last_file;
	__u64 task, mm, now;
	__u64 root_dentry, root_mnt;
	__u64 orphan;
	// The file of the task's mapping before, as an object of the kernel and as
	// it was told of.
	__u64 file, dentry;
	__u32 file_id;
	bool again; // the mappings of the task have been told of
} state;

// first prepares for a pass.
static __always_inline void first(struct bpf_iter_meta *meta)
{
	struct task_struct *reader;

	if (state.pass == meta->session_id)
		return;
	state.pass = meta->session_id;
	reader = bpf_get_current_task_btf();
	state.level = BPF_CORE_READ(reader, thread_pid, level);
	state.task = 0;
	state.orphan = 0;
}

// nr is a task's number in the reader's pid namespace, 0 if it has none.
static __always_inline __u32 nr(struct task_struct *task)
{
	struct pid *pid;
	__u32 n = 0;

	if (!state.level)
		return BPF_CORE_READ(task, pid);
	pid = BPF_CORE_READ(task, thread_pid);
	if (!pid || BPF_CORE_READ(pid, level) < state.level)
		return 0;
	bpf_probe_read_kernel(&n, sizeof(n), (void *)pid + bpf_core_field_offset(struct pid, numbers) +
		state.level * bpf_core_type_size(struct upid) + bpf_core_field_offset(struct upid, nr));
	return n;
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

static __always_inline void read_namespaces(struct nsproxy *p, __u32 *ns)
{
	ns[NS_UTS] = BPF_CORE_READ(p, uts_ns, ns.inum);
	ns[NS_IPC] = BPF_CORE_READ(p, ipc_ns, ns.inum);
	ns[NS_MNT] = BPF_CORE_READ(p, mnt_ns, ns.inum);
	ns[NS_NET] = BPF_CORE_READ(p, net_ns, ns.inum);
	ns[NS_CGROUP] = BPF_CORE_READ(p, cgroup_ns, ns.inum);
	if (bpf_core_field_exists(p->time_ns))
		ns[NS_TIME] = BPF_CORE_READ(p, time_ns, ns.inum);
}

// Pointers are followed by bpf_probe_read_kernel and not as such: the verifier
// of Linux 6.x searches all types of the kernel, three times, for each pointer
// that is, which takes longer than the snapshot.
SEC("iter/task")
int tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct task_record r = { .kind = KIND_TASK };
	struct nsproxy *p, *again;

	first(ctx->meta);
	if (!task)
		return 0;
	r.now = bpf_ktime_get_ns();
	r.start = task->start_boottime;
	r.flags = task->flags;
	r.zombie = task->exit_state != 0;
	r.tid = nr(task);
	r.pid = nr(BPF_CORE_READ(task, group_leader));
	r.ppid = nr(BPF_CORE_READ(task, real_parent, group_leader));
	r.cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
	__builtin_memcpy(r.comm, task->comm, COMM_LEN);
	r.ns[NS_USER] = BPF_CORE_READ(task, real_cred, user_ns, ns.inum);
	r.ns[NS_PID] = pid_namespace(task);
	p = BPF_CORE_READ(task, nsproxy);
	if (p) { // else it has exited
		read_namespaces(p, r.ns);
		// A task that changes its namespaces frees the old proxy at once.
		again = BPF_CORE_READ(task, nsproxy);
		if (again && again != p)
			read_namespaces(again, r.ns);
	}
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}

// What tells mapped files apart: the kernel's objects, and what of them may
// change or be another file's by now.
struct file_key {
	__u64 dentry, mnt, root_dentry, root_mnt, ino;
	__u32 hash, deleted;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 16);
	__uint(map_flags, 1); // BPF_F_NO_PREALLOC
	__type(key, struct file_key);
	__type(value, __u32);
} files SEC(".maps");

#define PATH_LEN 4096
#define NAME_LEN 256

struct file_scratch {
	struct file_record r;
	char path[2 * PATH_LEN]; // the last name may be beyond PATH_LEN
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct file_scratch);
} scratch SEC(".maps");

// A file to find or tell of.
struct found {
	struct file_key key;
	struct path path;
	struct inode *inode;
	const char *special; // its name, if it is no file
};

// opened is how the task sees the file that it has mapped.
static __always_inline void opened(struct file *file, struct path *p)
{
	p->mnt = file->f_path.mnt;
	p->dentry = file->f_path.dentry;
	if (bpf_core_field_exists(struct backing_file, user_path)) {
		struct path user = {};
		struct super_block *sb;

		// Whether it is a backing_file, only a bit of f_mode tells that
		// is another one in each kernel. What follows a struct file is
		// no pair of a mount and a dentry of one file system.
		bpf_probe_read_kernel(&user, sizeof(user), (void *)file + bpf_core_field_offset(struct backing_file, user_path));
		if ((long)user.mnt >= 0 || (long)user.dentry >= 0)
			return;
		sb = BPF_CORE_READ(user.dentry, d_sb);
		if (!sb || sb != BPF_CORE_READ(user.mnt, mnt_sb) || sb != BPF_CORE_READ(user.dentry, d_inode, i_sb))
			return;
		*p = user;
	}
}

// A walk from a file up to the root of its task. It is not on the stack: the
// verifier would follow the values of each step.
static struct {
	struct mount *mnt;
	struct dentry *dentry;
	__u64 root_dentry, root_mnt;
	__u64 at;   // bytes written
	bool ended; // at a root
} walk;

#define MAX_STEPS 4096

// step appends one name, or goes from a mount to what it is mounted on. It
// returns 1 at the end.
static long step(__u32 i, void *ctx)
{
	struct mount *mnt = walk.mnt, *up;
	struct dentry *d = walk.dentry, *parent;
	struct file_scratch *s;
	__u32 zero = 0;
	__u64 at = walk.at;
	long n;

	walk.ended = true;
	if ((__u64)d == walk.root_dentry && (__u64)mnt + bpf_core_field_offset(struct mount, mnt) == walk.root_mnt)
		return 1;
	if (d == BPF_CORE_READ(mnt, mnt.mnt_root)) {
		up = BPF_CORE_READ(mnt, mnt_parent);
		if (up == mnt)
			return 1;
		walk.dentry = BPF_CORE_READ(mnt, mnt_mountpoint);
		walk.mnt = up;
		return 0;
	}
	parent = BPF_CORE_READ(d, d_parent);
	if (parent == d)
		return 1;
	walk.ended = false;
	s = bpf_map_lookup_elem(&scratch, &zero);
	if (!s || at >= PATH_LEN)
		return 1;
	n = bpf_probe_read_kernel_str(&s->path[at & (PATH_LEN - 1)], NAME_LEN, BPF_CORE_READ(d, d_name.name));
	if (n <= 0)
		return 1;
	walk.at = at + n;
	walk.dentry = parent;
	return 0;
}

// write_path writes the names that lead to a file, the last one first, and
// returns their length.
static __always_inline __u64 write_path(struct file_scratch *s, const struct found *f)
{
	walk.dentry = f->path.dentry;
	walk.mnt = (void *)f->path.mnt - bpf_core_field_offset(struct mount, mnt);
	walk.root_dentry = f->key.root_dentry;
	walk.root_mnt = f->key.root_mnt;
	walk.at = 0;
	walk.ended = false;
	bpf_loop(MAX_STEPS, step, 0, 0);
	if (!walk.ended)
		s->r.flags |= FILE_CUT;
	return walk.at;
}

// find_file gives the number of what is mapped; 0: it is not known yet.
static __always_inline __u32 find_file(struct file *file, struct found *f)
{
	struct inode *inode;
	struct dentry *d;
	__u32 *known;

	if (f->special) {
		f->key.dentry = (__u64)f->special;
	} else {
		opened(file, &f->path);
		d = f->path.dentry;
		f->key.dentry = (__u64)d;
		f->key.mnt = (__u64)f->path.mnt;
		f->key.root_dentry = state.root_dentry;
		f->key.root_mnt = state.root_mnt;
		f->inode = inode = d == file->f_path.dentry ? file->f_inode : BPF_CORE_READ(d, d_inode);
		f->key.ino = BPF_CORE_READ(inode, i_ino);
		f->key.hash = BPF_CORE_READ(d, d_name.hash_len);
		f->key.deleted = !BPF_CORE_READ(d, d_hash.pprev);
	}
	known = bpf_map_lookup_elem(&files, &f->key);
	return known ? *known : 0;
}

// tell_file writes the record of a file.
static __always_inline long tell_file(struct seq_file *seq, __u32 id, struct found *f)
{
	struct dentry *d = f->path.dentry;
	struct inode *inode = f->inode;
	struct file_scratch *s;
	__u32 zero = 0;
	__u64 size;

	s = bpf_map_lookup_elem(&scratch, &zero);
	if (!s)
		return -1;
	s->r = (struct file_record){ .kind = KIND_FILE, .id = id, .ino = f->key.ino };
	if (f->special) {
		s->r.flags = FILE_SPECIAL;
		size = bpf_probe_read_kernel_str(s->path, NAME_LEN, f->special);
	} else {
		s->r.dev = BPF_CORE_READ(inode, i_sb, s_dev);
		s->r.magic = BPF_CORE_READ(inode, i_sb, s_magic);
		s->r.generation = BPF_CORE_READ(inode, i_generation);
		if (BPF_CORE_READ(d, d_op, d_dname)) {
			s->r.flags = FILE_NAMELESS;
			size = bpf_probe_read_kernel_str(s->path, NAME_LEN, BPF_CORE_READ(d, d_name.name));
		} else {
			size = write_path(s, f);
		}
		if (f->key.deleted)
			s->r.flags |= FILE_DELETED;
	}
	s->r.size = size;
	// For the verifier, which does not see that it is less.
	asm volatile("%0 &= 0x1fff" : "+r"(size));
	return bpf_seq_write(seq, s, sizeof(s->r) + size);
}

// special is the kernel's name of a mapping without a file: "[vdso]"; 0 if it
// has none.
static __always_inline const char *special(struct vm_area_struct *vma)
{
	struct vm_special_mapping *m = vma->vm_private_data;

	if (!vma->vm_ops || !BPF_CORE_READ(vma, vm_ops, name) || !m)
		return 0;
	return BPF_CORE_READ(m, name);
}

// area says what memory without a file is.
static __always_inline __u8 area(struct vm_area_struct *vma)
{
	struct mm_struct *mm = vma->vm_mm;

	if (vma->vm_start < mm->brk && vma->vm_end > mm->start_brk)
		return NAME_HEAP;
	if (vma->vm_start <= mm->start_stack && vma->vm_end >= mm->start_stack)
		return NAME_STACK;
	return NAME_ANON;
}

// begin looks at the task whose mappings follow. Beside the first thread of a
// process the kernel's iterator visits threads that do not share its open
// files, and all threads of one whose first thread has exited.
static __always_inline void begin(struct task_struct *task, struct vm_area_struct *vma)
{
	struct task_struct *leader = task->group_leader;

	state.task = (__u64)task;
	state.mm = (__u64)vma->vm_mm;
	state.now = bpf_ktime_get_ns();
	state.pid = nr(leader);
	state.root_dentry = (__u64)task->fs->root.dentry;
	state.root_mnt = (__u64)task->fs->root.mnt;
	state.file = 0;
	state.again = !state.pid; // the reader does not see it
	if (task->pid == task->tgid)
		return;
	state.again = state.again || leader->mm || state.orphan == (__u64)leader;
	state.orphan = (__u64)leader;
}

SEC("iter/task_vma")
int mappings(struct bpf_iter__task_vma *ctx)
{
	struct vm_area_struct *vma = ctx->vma;
	struct task_struct *task = ctx->task;
	struct seq_file *seq = ctx->meta->seq;
	struct mapping_record r = { .kind = KIND_MAPPING };
	struct found f = {};
	struct file *file;

	if (!task || !vma || !(vma->vm_flags & VM_EXEC))
		return 0;
	first(ctx->meta);
	if (state.task != (__u64)task || state.mm != (__u64)vma->vm_mm)
		begin(task, vma);
	// After an exec these are the mappings of the past. The time is that of
	// before: a task that executes from now on tells of it itself.
	if (task->mm != vma->vm_mm || state.again)
		return 0;
	r.now = state.now;
	r.pid = state.pid;
	r.start = vma->vm_start;
	r.end = vma->vm_end;
	r.flags = vma->vm_flags;
	file = vma->vm_file;
	if (file)
		r.offset = vma->vm_pgoff;
	else
		f.special = special(vma);
	if (!file && !f.special) {
		r.name = area(vma);
		bpf_seq_write(seq, &r, sizeof(r));
		return 0;
	}
	// A file that a process has mapped several times in a row, as it does where
	// it has changed what it may do with a part, is looked for once.
	if (file && state.file == (__u64)file && state.dentry == (__u64)file->f_path.dentry) {
		r.file = state.file_id;
		bpf_seq_write(seq, &r, sizeof(r));
		return 0;
	}
	r.file = find_file(file, &f);
	if (r.file) {
		if (file) {
			state.file = (__u64)file;
			state.dentry = (__u64)file->f_path.dentry;
			state.file_id = r.file;
		}
		bpf_seq_write(seq, &r, sizeof(r));
		return 0;
	}
	// What does not fit into the buffer is told again, all of it.
	r.file = state.last_file + 1;
	if (tell_file(seq, r.file, &f) || bpf_seq_write(seq, &r, sizeof(r)))
		return 0;
	state.last_file = r.file;
	bpf_map_update_elem(&files, &f.key, &r.file, BPF_ANY);
	return 0;
}
