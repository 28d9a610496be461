/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The few kernel types that the page-table reader uses, each with only the fields that it reads. libbpf relocates every
 * field against the running kernel's BTF, so neither order nor padding matters here. For each type it goes through all
 * names of that BTF, which takes the better part of a millisecond.
 */
#ifndef ISOTHERM_KERNEL_TYPES_H
#define ISOTHERM_KERNEL_TYPES_H

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
typedef __u64 __be64;
typedef __u32 __wsum;
typedef _Bool bool;

enum bpf_map_type { BPF_MAP_TYPE_ARRAY = 2 };
enum { BPF_F_MMAPABLE = 1U << 10 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct mm_struct {
	void *pgd;
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	struct mm_struct *vm_mm;
};

struct pid_namespace;

/* A pid in one namespace. */
struct upid {
	__s32 nr;
	struct pid_namespace *ns;
};

/* The pids in all namespaces that it is in, from the first to its own. */
struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct task_struct {
	__s32 pid;
	struct pid *thread_pid;
	__u64 start_boottime;
	struct mm_struct *mm;
};

struct page {
	unsigned long flags;
	unsigned long compound_head;
};

typedef struct {
	unsigned long f;
} memdesc_flags_t;

/* struct page since 6.18: libbpf ignores what follows the three underscores. */
struct page___memdesc {
	memdesc_flags_t flags;
};

#pragma clang attribute pop

/* What an iterator over tasks is called with. Kernels do not change this one. */
struct bpf_iter__task {
	void *meta;
	struct task_struct *task;
};

#endif
