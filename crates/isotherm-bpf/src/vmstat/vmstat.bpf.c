// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * When vmstat_update, the kernel's periodic drain of pcp lists, runs on each CPU, and who waits for a zone's lock.
 *
 * Everything is decided here: works other than the two that count, and locks other than those of zones, cost a
 * comparison or a look-up and leave no trace. The output is one record per run (about one per CPU and interval) in a
 * ring, and one counter per caller. Nothing is allocated while it runs, since an allocation may take a zone's lock.
 */
#include "../kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#define RING_BYTES (512 * 1024)
#define MAX_CPUS 8192
#define MAX_ZONES 8192
#define MAX_CALLERS 8192
#define MAX_STACKS 4096
#define STACK_DEPTH 32
#define NAME_BYTES 16

#define PF_KTHREAD 0x00200000
#define LCB_F_SPIN (1U << 0)
#define RING_NO_WAKEUP (1ULL << 0)

#define MAP_HASH 1
#define MAP_PERCPU_ARRAY 6
#define MAP_STACK_TRACE 7
#define MAP_RINGBUF 27

/* The functions of the two works. Set before loading; 0 matches none. */
const volatile __u64 update_function;
const volatile __u64 shepherd_function;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} spinlock_place_t;

struct zone {
	const char *name;
	spinlock_place_t lock;
};

struct pglist_data {
	struct zone node_zones[1];
	int nr_zones;
	int node_id;
	void *kswapd;
};

struct work_struct {
	void *func;
};

struct kthread {
	void *data;
};

struct task_struct___herd {
	unsigned int flags;
	char comm[NAME_BYTES];
	void *worker_private;
};

#pragma clang attribute pop

/* What a record is about. */
enum kind {
	KIND_UPDATE = 0,	/* vmstat_update ran */
	KIND_SHEPHERD = 1,	/* vmstat_shepherd ran */
};

/* Why it was queued. */
enum cause {
	CAUSE_UNKNOWN = 0,	/* queued before we attached */
	CAUSE_TIMER = 1,	/* its own timer */
	CAUSE_SHEPHERD = 2,	/* the shepherd found work for it */
};

/* One run. Read by `decode` in mod.rs. */
struct record {
	__u64 queued_ns;	/* 0: unknown */
	__u64 start_ns;
	__u64 end_ns;
	__u64 jiffies;		/* at the start */
	__u32 cpu;
	__u16 kind;
	__u16 cause;
};

_Static_assert(sizeof(struct record) == 40 && __builtin_offsetof(struct record, cause) == 38, "as decode() in mod.rs reads it");

struct {
	__uint(type, MAP_RINGBUF);
	__uint(max_entries, RING_BYTES);
} records SEC(".maps");

/* The last time that a CPU's work was queued, by that CPU. */
struct queued {
	__u64 at_ns;
	__u32 cause;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, __u32);
	__type(value, struct queued);
} queue SEC(".maps");

/* What runs on a CPU at the moment. */
struct running {
	__u64 start_ns;		/* 0: vmstat_update does not run */
	__u64 jiffies;
	__u64 queued_ns;
	__u32 cause;
	__u32 pid;		/* the thread that runs it */
	__u64 lock;		/* 0: no wait */
	__u64 since_ns;
	__s32 stack;
	__u32 beside;		/* vmstat_update ran on another CPU when the wait began */
	__u64 spins;		/* waits for any lock that spins */
};

struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct running);
} here SEC(".maps");

/* A zone, by the address of its lock. Read by `decode_zone` in mod.rs. */
struct zone_of_lock {
	__u32 node;
	__u32 index;
	char name[NAME_BYTES];
};

struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, MAX_ZONES);
	__type(key, __u64);
	__type(value, struct zone_of_lock);
} zones SEC(".maps");

struct {
	__uint(type, MAP_STACK_TRACE);
	__uint(max_entries, MAX_STACKS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, STACK_DEPTH * sizeof(__u64));
} stacks SEC(".maps");

/* A waiter and its lock. Read by `CallerKey` in mod.rs. */
struct caller {
	__u64 lock;
	__s32 stack;		/* below 0: none */
	__u16 updating;		/* the waiter is in vmstat_update */
	__u16 beside;		/* vmstat_update ran on another CPU when the wait began */
};

/* Read by `Observer::waits` in mod.rs. */
struct waits {
	__u64 count;
	__u64 total_ns;
	__u64 max_ns;
};

struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, MAX_CALLERS);
	__type(key, struct caller);
	__type(value, struct waits);
} callers SEC(".maps");

/* Read by user space. Each counts rare events, so one word for all CPUs is enough. */
struct outcome {
	__u64 lost_records;	/* the ring was full */
	__u64 lost_waits;	/* more callers than there is room for */
	__u64 lost_stacks;	/* waits recorded without their caller */
	__u64 nodes;		/* whose zones are known */
} outcome;

/* Number of CPUs on which vmstat_update runs, and the thread of the shepherd while it runs. */
static __s64 updating;
static __u32 shepherd_pid;
static __u64 shepherd_start_ns;
static __u64 shepherd_jiffies;

static __always_inline struct running *on_this_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&here, &zero);
}

static __always_inline __u32 current_pid(void)
{
	return (__u32)bpf_get_current_pid_tgid();
}

static __always_inline void tell(__u16 kind, __u16 cause, __u64 queued_ns, __u64 start_ns, __u64 jiffies)
{
	struct record *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);

	if (!record) {
		__sync_fetch_and_add(&outcome.lost_records, 1);
		return;
	}
	record->queued_ns = queued_ns;
	record->start_ns = start_ns;
	record->end_ns = bpf_ktime_get_ns();
	record->jiffies = jiffies;
	record->cpu = bpf_get_smp_processor_id();
	record->kind = kind;
	record->cause = cause;
	bpf_ringbuf_submit(record, RING_NO_WAKEUP);
}

/*
 * A work is queued by its own timer, in an interrupt, or by the shepherd, in the shepherd's thread. A timer that
 * interrupts the shepherd itself is counted as the shepherd: a few microseconds a second on one CPU.
 */
SEC("tp_btf/workqueue_queue_work")
int BPF_PROG(on_queue, int req_cpu, void *pool, struct work_struct *work)
{
	__u32 cpu = req_cpu;
	struct queued *slot;

	if (!update_function || (__u64)work->func != update_function)
		return 0;
	slot = bpf_map_lookup_elem(&queue, &cpu);
	if (!slot)
		return 0;
	slot->at_ns = bpf_ktime_get_ns();
	slot->cause = shepherd_pid && shepherd_pid == current_pid() ? CAUSE_SHEPHERD : CAUSE_TIMER;
	return 0;
}

SEC("tp_btf/workqueue_execute_start")
int BPF_PROG(on_start, struct work_struct *work)
{
	__u64 function = (__u64)work->func;
	struct running *run;
	struct queued *slot;
	__u32 cpu;

	if (function == shepherd_function && function) {
		shepherd_start_ns = bpf_ktime_get_ns();
		shepherd_jiffies = bpf_jiffies64();
		shepherd_pid = current_pid();
		return 0;
	}
	if (!update_function || function != update_function)
		return 0;
	run = on_this_cpu();
	if (!run)
		return 0;
	cpu = bpf_get_smp_processor_id();
	slot = bpf_map_lookup_elem(&queue, &cpu);
	run->queued_ns = slot ? slot->at_ns : 0;
	run->cause = slot ? slot->cause : CAUSE_UNKNOWN;
	if (slot)
		slot->at_ns = 0, slot->cause = CAUSE_UNKNOWN;
	run->pid = current_pid();
	run->jiffies = bpf_jiffies64();
	/* A run whose end was missed, as may happen while we attach and detach, is counted already. */
	if (!run->start_ns)
		__sync_fetch_and_add(&updating, 1);
	run->start_ns = bpf_ktime_get_ns();
	return 0;
}

/* The work may be freed by now, so it is not read. Untyped: pointers to functions cannot be read from typed arguments. */
SEC("raw_tp/workqueue_execute_end")
int BPF_PROG(on_end, void *work, void *function)
{
	struct running *run;

	if ((__u64)function == shepherd_function && function) {
		if (shepherd_pid)
			tell(KIND_SHEPHERD, CAUSE_UNKNOWN, 0, shepherd_start_ns, shepherd_jiffies);
		shepherd_pid = 0;
		return 0;
	}
	if (!update_function || (__u64)function != update_function)
		return 0;
	run = on_this_cpu();
	/* It began before we attached. */
	if (!run || !run->start_ns)
		return 0;
	tell(KIND_UPDATE, run->cause, run->queued_ns, run->start_ns, run->jiffies);
	run->start_ns = 0;
	__sync_fetch_and_add(&updating, -1);
	return 0;
}

/*
 * The stack is taken here, where the CPU only waits, and not at the end of the wait, when the lock is held and others
 * wait for us. Zone locks are taken with interrupts off, so no CPU waits for two.
 */
SEC("tp_btf/contention_begin")
int BPF_PROG(on_wait, void *lock, unsigned int flags)
{
	__u64 key = (__u64)lock;
	struct running *run;

	if (!(flags & LCB_F_SPIN))
		return 0;
	run = on_this_cpu();
	if (!run)
		return 0;
	run->spins++;
	if (!bpf_map_lookup_elem(&zones, &key))
		return 0;
	run->stack = bpf_get_stackid(ctx, &stacks, 0);
	run->beside = updating > (run->start_ns ? 1 : 0);
	run->lock = key;
	run->since_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline void raise(__u64 *most, __u64 value)
{
	/* Two CPUs may raise it at once. A few tries are enough: if all fail, others have raised it meanwhile. */
	for (int i = 0; i < 8; i++) {
		__u64 seen = *(volatile __u64 *)most;

		if (value <= seen || __sync_val_compare_and_swap(most, seen, value) == seen)
			return;
	}
}

SEC("tp_btf/contention_end")
int BPF_PROG(on_waited, void *lock, int ret)
{
	struct running *run = on_this_cpu();
	struct waits *waits, none = {};
	struct caller caller = {};
	__u64 waited;

	if (!run || !run->lock || run->lock != (__u64)lock)
		return 0;
	waited = bpf_ktime_get_ns() - run->since_ns;
	caller.lock = run->lock;
	caller.stack = run->stack < 0 ? -1 : run->stack;
	caller.updating = run->start_ns && run->pid == current_pid();
	caller.beside = !!run->beside;
	run->lock = 0;
	if (caller.stack < 0)
		__sync_fetch_and_add(&outcome.lost_stacks, 1);
	waits = bpf_map_lookup_elem(&callers, &caller);
	if (!waits) {
		bpf_map_update_elem(&callers, &caller, &none, 1 /* only if absent */);
		waits = bpf_map_lookup_elem(&callers, &caller);
	}
	if (!waits) {
		__sync_fetch_and_add(&outcome.lost_waits, 1);
		return 0;
	}
	__sync_fetch_and_add(&waits->count, 1);
	__sync_fetch_and_add(&waits->total_ns, waited);
	raise(&waits->max_ns, waited);
	return 0;
}

/*
 * Finds the zones. The kernel's table of nodes has no symbol if CONFIG_KALLSYMS_ALL is off. But each node with memory
 * has a thread, kswapd, whose argument is the node. The node points back to the thread, which proves that it is one.
 */
SEC("iter/task")
int find_zones(struct bpf_iter__task *ctx)
{
	struct task_struct___herd *task = (void *)ctx->task;
	struct pglist_data *node;
	struct zone_of_lock zone = {};
	struct kthread *thread;
	__u64 at, step, lock_at;
	int count;

	if (!task || !(BPF_CORE_READ(task, flags) & PF_KTHREAD))
		return 0;
	thread = BPF_CORE_READ(task, worker_private);
	if (!thread)
		return 0;
	node = BPF_CORE_READ(thread, data);
	if (!node || BPF_CORE_READ(node, kswapd) != (void *)task)
		return 0;
	step = bpf_core_type_size(struct zone);
	lock_at = bpf_core_field_offset(struct zone, lock);
	at = (__u64)node + bpf_core_field_offset(struct pglist_data, node_zones);
	count = BPF_CORE_READ(node, nr_zones);
	zone.node = BPF_CORE_READ(node, node_id);
	for (int i = 0; i < 8 && i < count; i++) {
		const char *name = BPF_CORE_READ((struct zone *)at, name);
		__u64 key = at + lock_at;

		zone.index = i;
		bpf_probe_read_kernel_str(zone.name, sizeof(zone.name), name);
		bpf_map_update_elem(&zones, &key, &zone, 0);
		at += step;
	}
	outcome.nodes++;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
