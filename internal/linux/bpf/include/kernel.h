// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// The few kernel types that gantry's BPF programs look at. Each struct lists
// only the fields that are read: preserve_access_index makes the loader put in
// the offsets of the running kernel (CO-RE). A field that some kernels lack is
// asked for with bpf_core_field_exists before it is read.

#ifndef GANTRY_KERNEL_H
#define GANTRY_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
enum { false, true };

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

// enum bpf_map_type and the flags of bpf_map_update_elem (linux/bpf.h).
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_ANY, BPF_NOEXIST, BPF_EXIST };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

// Namespaces. inum is the inode in /proc/PID/ns.
struct ns_common {
	unsigned int inum;
};
struct uts_namespace {
	struct ns_common ns;
};
struct ipc_namespace {
	struct ns_common ns;
};
struct mnt_namespace {
	struct ns_common ns;
};
struct pid_namespace {
	unsigned int level;
	struct ns_common ns;
};
struct user_namespace {
	struct ns_common ns;
};
struct cgroup_namespace {
	struct ns_common ns;
};
struct time_namespace {
	struct ns_common ns;
};
struct net {
	struct ns_common ns;
};
struct nsproxy {
	struct uts_namespace *uts_ns;
	struct ipc_namespace *ipc_ns;
	struct mnt_namespace *mnt_ns;
	struct net *net_ns;
	struct time_namespace *time_ns; // Linux 5.6
	struct cgroup_namespace *cgroup_ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};
struct pid {
	unsigned int level; // of the namespace that the pid was made in
	struct upid numbers[1];
};

struct cred {
	struct user_namespace *user_ns;
};

// Cgroups. A cgroup's id is its node's; ids have 64 bits since Linux 5.5.
struct kernfs_node {
	__u64 id;
};
struct cgroup {
	int level;
	struct kernfs_node *kn;
};
struct cgroup_subsys_state {
	struct cgroup *cgroup;
};
// The numbers depend on how the kernel was built: bpf_core_enum_value asks.
enum cgroup_subsys_id {
	perf_event_cgrp_id,
};
struct css_set {
	struct cgroup_subsys_state *subsys[1]; // by enum cgroup_subsys_id
	struct cgroup *dfl_cgrp;               // in the v2 hierarchy
};

// Files and paths.
struct hlist_bl_node {
	struct hlist_bl_node **pprev;
};
struct qstr {
	__u64 hash_len;
	const unsigned char *name;
};
struct dentry;
struct dentry_operations {
	char *(*d_dname)(struct dentry *, char *, int);
};
struct super_block {
	__u32 s_dev;
	unsigned long s_magic;
};
struct inode {
	struct super_block *i_sb;
	unsigned long i_ino;
	__u32 i_generation;
};
struct dentry {
	struct hlist_bl_node d_hash;
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
	const struct dentry_operations *d_op;
	struct super_block *d_sb;
};
struct vfsmount {
	struct dentry *mnt_root;
	struct super_block *mnt_sb;
};
struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};
struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};
struct file {
	struct inode *f_inode;
	struct path f_path;
};
// A file that stands for one of another file system, as those of an overlay
// do (Linux 6.5; user_path since 6.8).
struct backing_file {
	struct file file;
	struct path user_path;
};
struct fs_struct {
	struct path root;
};

// Memory.
struct mm_struct {
	unsigned long start_brk, brk;
	unsigned long start_stack;
};
struct vm_area_struct;
struct vm_operations_struct {
	const char *(*name)(struct vm_area_struct *);
};
struct vm_special_mapping {
	const char *name;
};
struct vm_area_struct {
	unsigned long vm_start, vm_end;
	unsigned long vm_flags;
	unsigned long vm_pgoff; // in pages
	struct mm_struct *vm_mm;
	const struct vm_operations_struct *vm_ops;
	struct file *vm_file;
	void *vm_private_data;
};

struct task_struct {
	unsigned int flags;
	struct mm_struct *mm;
	int exit_state;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	__u64 start_time;     // CLOCK_MONOTONIC
	__u64 start_boottime; // CLOCK_BOOTTIME (Linux 5.5)
	const struct cred *real_cred;
	const struct cred *cred;
	char comm[16];
	struct fs_struct *fs;
	struct nsproxy *nsproxy;
	struct css_set *cgroups;
};

// What BPF iterators are called with.
struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num;
};
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};
struct bpf_iter__task_vma {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct vm_area_struct *vma;
};

#pragma clang attribute pop

#endif
