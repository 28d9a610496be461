// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Reads page tables of one process: for each requested huge range (2 MiB), 512 present and 512 accessed bits.
 *
 * User space writes a sorted list of addresses, one per huge range, and reads the iterator once; the answers are in a mapped
 * array. Each address has to lie in a mapping: bpf_find_vma() finds it and holds the mmap read lock while the callback
 * walks every further request in the same mapping. So tables of the range cannot be freed during the walk, and a target
 * with 65,530 mappings costs no more than the mappings asked about. The list is short (MAX_REQUESTS), which bounds how
 * long the lock and the RCU section are held. The lock is taken with trylock: if a writer waits, the walk stops and
 * reports how far it came.
 *
 * Tables are read through the direct map with bpf_probe_read_kernel(), which survives any address. Failures are counted
 * and never reported as "not accessed".
 *
 * An entry that the kernel marks as special maps no page of the process: it maps the zero page, which backs memory that was only
 * read, or device memory. The kernel does not count it as resident, and neither advice nor clear_refs clears its accessed
 * bit. It counts as not present. So does the huge zero page, which kernels before 6.18 do not mark, and advice does not clear.
 */
#include "../kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define MAX_REQUESTS 1024
#define MAX_FOLIO_REQUESTS 16
#define TABLE_ENTRIES 512
#define WORDS (TABLE_ENTRIES / 64)

#define EPERM 1

#define ENTRY_PRESENT (1ULL << 0)
#define ENTRY_ACCESSED (1ULL << 5)
#define ENTRY_LEAF (1ULL << 7)
#define ENTRY_PROT_NONE (1ULL << 8)
#define ENTRY_SPECIAL (1ULL << 9)
#define ENTRY_FRAME 0x000ffffffffff000ULL

/* What the caller wants done with each requested address. */
enum op {
	OP_PMDS = 0,	/* accessed and present bits of the huge range */
	OP_TABLES = 1,	/* which huge ranges of the 1 GiB around it have a table or are a leaf (present bits) */
	OP_ENTRY = 2,	/* the raw last-level entry of the address, in a[0] */
	OP_FOLIOS = 3,	/* frame, and flags of its folio, of each page of the huge range: in `folios`, for few requests */
};

/* What was found. NONE has to be 0. */
enum kind {
	KIND_NONE = 0,		/* no table: nothing present */
	KIND_PAGES = 1,		/* a table of 512 pages: planes are filled */
	KIND_LEAF_2M = 2,	/* one entry maps 2 MiB: a[0] bit 0 is its accessed bit */
	KIND_LEAF_1G = 3,	/* one entry maps 1 GiB: a[0] bit 0 is its accessed bit */
	KIND_UNMAPPED = 4,	/* no mapping holds the address any more */
	KIND_ERROR = 5,		/* a read failed: nothing is known */
};

struct answer {
	__u64 kind;
	__u64 a[WORDS];		/* accessed */
	__u64 b[WORDS];		/* present */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_REQUESTS);
	__type(key, __u32);
	__type(value, __u64);
} requests SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_REQUESTS);
	__type(key, __u32);
	__type(value, struct answer);
} answers SEC(".maps");

/* The frame of a page and the flags of its folio, which are those of the first of its pages. */
struct folio {
	__u64 frame;	/* 0: none, or one that has no flags */
	__u64 flags;
};

/* Of one huge range; a huge page fills only the first. Many times the size of an answer, so a pass with this op is short. */
struct folio_pmd {
	struct folio of_page[TABLE_ENTRIES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_FOLIO_REQUESTS);
	__type(key, __u32);
	__type(value, struct folio_pmd);
} folios SEC(".maps");

/* Set by user space before a read. */
struct order {
	__s32 tid;
	__u32 op;
	__u32 count;
	__u32 pad;
} order;

/* Read by user space after it. */
struct outcome {
	__u32 done;		/* requests answered */
	__u32 busy;		/* the mmap lock was taken: request the rest again */
	__u32 seen;		/* the task was found */
	__u32 no_mm;		/* and had no memory (kernel thread, zombie) */
	__u64 read_errors;
	__u64 longest_hold_ns;
	__u64 mm_id;		/* changes when the process executes another program */
	__u64 start_boottime;
} outcome;

/* Facts of this kernel, resolved once by find_layout and find_page_layout. */
struct layout {
	__u64 direct_map;
	__u32 top_shift;	/* 39: four levels, 48: five */
	__u32 page_bytes;	/* of a struct page; 0: flags cannot be read, as its layout is unknown or find_page_layout was not loaded */
	__u32 flags_at;
	__u32 head_at;
	__u64 page_array;
	__u32 hidden;		/* the kernel does not tell us addresses of its symbols: direct_map is a guess */
	__u32 pad;
	__u64 huge_zero_at;	/* address of the variable with the frame of the huge zero page; 0: not known */
	__u64 frame_mask;	/* the bits of an entry that are its address: ENTRY_FRAME, without the bit of memory encryption */
} layout;

/* Scratch: one table. A single reader owns the object, so one is enough. */
static __u64 table[TABLE_ENTRIES];

struct walk {
	__u64 pgd;
	__u64 end;		/* of the mapping */
	__u64 upper_of;		/* 1 GiB unit that `upper` belongs to, plus one; 0: none cached */
	__u64 upper;		/* physical address of its table of 2 MiB entries, or 0 */
	__u64 upper_kind;	/* kind when there is no such table */
	__u64 upper_young;
};

static __always_inline int read_entry(__u64 phys, __u64 index, __u64 *entry)
{
	return bpf_probe_read_kernel(entry, 8, (void *)(layout.direct_map + (phys & layout.frame_mask) + index * 8));
}

/*
 * Runs once, after loading. A kernel with address randomisation keeps the base in a variable; without, the variable
 * does not exist and the base is fixed. Asking the kernel for the symbol saves libbpf from reading all of
 * /proc/kallsyms, which takes longer than everything else here. If symbols are hidden from us, the fixed base is tried:
 * the self-check decides.
 */
SEC("syscall")
int find_layout(void *unused)
{
	__u32 shift = 39;
	__u64 base, at = 0, physical = ~0ULL;
	long found;

	if (!bpf_kallsyms_lookup_name("pgdir_shift", 12, 0, &at))
		bpf_probe_read_kernel(&shift, sizeof(shift), (void *)at);
	base = shift == 48 ? 0xff11000000000000ULL : 0xffff888000000000ULL;
	found = bpf_kallsyms_lookup_name("page_offset_base", 17, 0, &at);
	if (!found)
		bpf_probe_read_kernel(&base, sizeof(base), (void *)at);
	layout.hidden = found == -EPERM;
	layout.direct_map = base;
	layout.top_shift = shift;
	if (!bpf_kallsyms_lookup_name("huge_zero_pfn", 14, 0, &at))
		layout.huge_zero_at = at;
	/* With AMD's SME or SEV a bit of each entry says that the page is encrypted. The kernel takes it out of this mask. */
	if (!bpf_kallsyms_lookup_name("physical_mask", 14, 0, &at))
		bpf_probe_read_kernel(&physical, sizeof(physical), (void *)at);
	layout.frame_mask = ENTRY_FRAME & (physical ? physical : ~0ULL);
	return 0;
}

/*
 * Where struct page has what OP_FOLIOS reads. In 6.18 its flags became a structure of one word, which the second type
 * describes. On other kernels they cannot be read, and the page tables still can. Runs after find_layout, and is only
 * loaded for those who read folios: to find both types in the kernel's BTF takes libbpf a tenth of the time of opening.
 */
SEC("syscall")
int find_page_layout(void *unused)
{
	__u64 base = layout.top_shift == 48 ? 0xffd4000000000000ULL : 0xffffea0000000000ULL, at = 0;
	struct page *page = 0;
	struct page___memdesc *newer = 0;

	if (!bpf_core_field_exists(page->compound_head))
		return 0;
	if (bpf_core_field_exists(page->flags))
		layout.flags_at = bpf_core_field_offset(page->flags);
	else if (bpf_core_field_exists(newer->flags))
		layout.flags_at = bpf_core_field_offset(newer->flags);
	else
		return 0;
	layout.head_at = bpf_core_field_offset(page->compound_head);
	layout.page_bytes = bpf_core_type_size(struct page);
	if (!bpf_kallsyms_lookup_name("vmemmap_base", 13, 0, &at))
		bpf_probe_read_kernel(&base, sizeof(base), (void *)at);
	layout.page_array = base;
	return 0;
}

/* Finds the table of 2 MiB entries for addr, and keeps it in w for the next address of the same GiB. */
static __always_inline void find_upper(struct walk *w, __u64 addr)
{
	__u64 entry, at = w->pgd;

	w->upper_of = (addr >> 30) + 1;
	w->upper = 0;
	w->upper_kind = KIND_NONE;
	if (layout.top_shift == 48) {
		if (bpf_probe_read_kernel(&entry, 8, (void *)(at + ((addr >> 48) & 511) * 8)))
			goto failed;
		if (!(entry & ENTRY_PRESENT))
			return;
		at = layout.direct_map + (entry & layout.frame_mask);
	}
	if (bpf_probe_read_kernel(&entry, 8, (void *)(at + ((addr >> 39) & 511) * 8)))
		goto failed;
	if (!(entry & ENTRY_PRESENT))
		return;
	if (read_entry(entry, (addr >> 30) & 511, &entry))
		goto failed;
	if (!(entry & (ENTRY_PRESENT | ENTRY_PROT_NONE)))
		return;
	if (entry & ENTRY_LEAF) {
		if (entry & ENTRY_SPECIAL)
			return;
		w->upper_kind = KIND_LEAF_1G;
		w->upper_young = !!(entry & ENTRY_ACCESSED);
		return;
	}
	w->upper = entry & layout.frame_mask;
	return;
failed:
	outcome.read_errors++;
	w->upper_kind = KIND_ERROR;
	w->upper_of = 0;	/* do not remember a failure */
}

/* The low 16 bits of an entry. A quad is those of four entries that are three apart, side by side. */
#define SHORT(i) ((__u64)((__u16 *)table)[(i) * 4])
#define QUAD(i) (SHORT(i) | SHORT((i) + 3) << 16 | SHORT((i) + 6) << 32 | SHORT((i) + 9) << 48)
/* Its bits 0, 5 and 8, and the same in the three shorts above. */
#define SELECT(quad) ((quad) & 0x0121012101210121ULL)
#define ANY_SPECIAL (ENTRY_SPECIAL * 0x0001000100010001ULL)
/* Moves the lowest three bits of each short to the top: twelve bits, from bit 48 on. */
#define TOGETHER(x) (((x) & 0x0007000700070007ULL) * (1ULL << 48 | 1ULL << 35 | 1ULL << 22 | 1ULL << 9) >> 48 & 0xfff)
/* Without this, clang loads all 64 entries before it combines any, and runs out of its 512 bytes of stack. */
#define KEEP(x, y, z) asm volatile("" : "+r"(x), "+r"(y), "+r"(z))

/*
 * Which of 64 entries have the bit of special ones. Gathered as below: in a process that is partly swapped out, entries of swap have the
 * bit in most words.
 */
__noinline __u64 special_of(__u32 word)
{
	__u64 special = 0;

	if (word >= WORDS)
		return 0;
#pragma clang loop unroll(full)
	for (int first = 0; first < 60; first += 12) {
		__u64 twelve = QUAD(word * 64 + first) & ANY_SPECIAL;

		twelve |= (QUAD(word * 64 + first + 1) & ANY_SPECIAL) << 1;
		twelve |= (QUAD(word * 64 + first + 2) & ANY_SPECIAL) << 2;
		special |= TOGETHER(twelve >> 9) << first;
	}
#pragma clang loop unroll(full)
	for (int last = 60; last < 64; last++)
		special |= (SHORT(word * 64 + last) >> 9 & 1) << last;
	return special;
}

/*
 * Gathers present and accessed bits of `table` for request `at`. This loop costs as much as the copy of the table, so it
 * does little per entry. Bits 0 (present), 5 (accessed) and 8 of twelve entries are laid side by side,
 *
 *	bit   10  9  8  7  6  5     2  1  0
 *	       N  N  N  A  A  A     P  P  P	and the same in the three shorts above
 *	       2  1  0  2  1  0     2  1  0	entry; 3 to 5, 6 to 8 and 9 to 11 in those
 *
 * and separated once for the twelve. N stands for P in a page that PROT_NONE keeps present; no other user page has
 * bit 8 (global). Special entries are rare: all are combined with OR, and selected only where that finds one. In an entry of
 * swap the bit is a part of the offset, so words without present pages are skipped. To combine bit 9 with bits 0 and 8
 * instead makes every read longer. A global function, as the verifier checks such a function once, and not for each path
 * to it.
 */
__noinline int gather(__u32 at)
{
	struct answer *out = bpf_map_lookup_elem(&answers, &at);

	if (!out)
		return 1;
	for (int word = 0; word < WORDS; word++) {
		__u64 young = 0, present = 0, any = 0;

#pragma clang loop unroll(full)
		for (int first = 0; first < 60; first += 12) {
			__u64 quad = QUAD(word * 64 + first), twelve = SELECT(quad);

			any |= quad;
			quad = QUAD(word * 64 + first + 1);
			any |= quad;
			twelve |= SELECT(quad) << 1;
			quad = QUAD(word * 64 + first + 2);
			any |= quad;
			twelve |= SELECT(quad) << 2;
			twelve |= twelve >> 8;
			present |= TOGETHER(twelve) << first;
			young |= TOGETHER(twelve >> 5) << first;
			KEEP(young, present, any);
		}
#pragma clang loop unroll(full)
		for (int last = 60; last < 64; last++) {
			__u64 e = SHORT(word * 64 + last);

			any |= e;
			present |= ((e | e >> 8) & 1) << last;
			young |= (e >> 5 & 1) << last;
		}
		if (present && any & ANY_SPECIAL)
			present &= ~special_of(word);
		out->a[word] = young & present;
		out->b[word] = present;
	}
	return 0;
}

/* Frames without a struct page (device memory) are skipped: reading what is not mapped fails, which is no error here. */
static __always_inline void read_folio(__u64 entry, struct folio *out)
{
	__u64 page, head, flags;

	out->frame = 0;
	if (entry & ENTRY_SPECIAL)
		return;
	/* An entry that is not present, but under PROT_NONE, has its frame number inverted. */
	if (!(entry & ENTRY_PRESENT)) {
		if (!(entry & ENTRY_PROT_NONE))
			return;
		entry = ~entry;
	}
	entry &= layout.frame_mask;
	page = layout.page_array + (entry >> 12) * layout.page_bytes;
	if (bpf_probe_read_kernel(&head, 8, (void *)(page + layout.head_at)))
		return;
	if (head & 1)
		page = head - 1;
	if (bpf_probe_read_kernel(&flags, 8, (void *)(page + layout.flags_at)))
		return;
	out->flags = flags;
	out->frame = entry >> 12;
}

static long folio_of_entry(__u32 i, __u32 *request)
{
	__u32 at = *request;
	struct folio_pmd *pmd = bpf_map_lookup_elem(&folios, &at);

	if (!pmd || i >= TABLE_ENTRIES)
		return 1;
	read_folio(table[i], &pmd->of_page[i]);
	return 0;
}

static __always_inline void answer_error(struct answer *out)
{
	outcome.read_errors++;
	out->kind = KIND_ERROR;
}

static __always_inline void answer_huge_folio(__u64 entry)
{
	__u32 request = outcome.done;
	struct folio_pmd *pmd = bpf_map_lookup_elem(&folios, &request);

	/* Bit 12 of a huge entry is an attribute; its frame number begins at bit 21. */
	if (pmd)
		read_folio(entry & ~0x1ff000ULL, &pmd->of_page[0]);
}

/* Whether such an entry maps the huge zero page, or is special. One of a table of pages is neither. */
static __always_inline int is_huge_zero(__u64 entry)
{
	__u64 frame;

	if (!(entry & ENTRY_LEAF))
		return 0;
	if (entry & ENTRY_SPECIAL)
		return 1;
	if (!layout.huge_zero_at || bpf_probe_read_kernel(&frame, 8, (void *)layout.huge_zero_at))
		return 0;
	/* Under PROT_NONE the frame is inverted. Bit 12 of a huge entry is an attribute. */
	if (!(entry & ENTRY_PRESENT))
		entry = ~entry;
	return (entry & layout.frame_mask & ~0x1ff000ULL) >> 12 == frame;
}

/* An entry without the bit of memory encryption, which is no part of the frame number. */
static __always_inline __u64 shown(__u64 entry)
{
	return entry & ~(ENTRY_FRAME & ~layout.frame_mask);
}

static __always_inline void answer_pmd(struct walk *w, __u64 addr, struct answer *out)
{
	__u32 at = outcome.done;
	__u64 entry;

	if (read_entry(w->upper, (addr >> 21) & 511, &entry))
		return answer_error(out);
	if (!(entry & (ENTRY_PRESENT | ENTRY_PROT_NONE)) || is_huge_zero(entry)) {
		out->kind = KIND_NONE;
		return;
	}
	if (entry & ENTRY_LEAF) {
		out->kind = KIND_LEAF_2M;
		out->a[0] = order.op == OP_ENTRY ? shown(entry) : !!(entry & ENTRY_ACCESSED);
		if (order.op == OP_FOLIOS)
			answer_huge_folio(entry);
		return;
	}
	if (order.op == OP_ENTRY) {
		out->kind = KIND_PAGES;
		if (read_entry(entry, (addr >> 12) & 511, &out->a[0]))
			return answer_error(out);
		out->a[0] = shown(out->a[0]);
		return;
	}
	if (bpf_probe_read_kernel(table, sizeof(table), (void *)(layout.direct_map + (entry & layout.frame_mask))))
		return answer_error(out);
	out->kind = KIND_PAGES;
	if (order.op == OP_FOLIOS)
		bpf_loop(TABLE_ENTRIES, folio_of_entry, &at, 0);
	else
		gather(at);
}

static long answer_one(__u32 i, struct walk *w)
{
	__u32 at = outcome.done;
	struct answer *out;
	__u64 *addr;

	if (at >= order.count || at >= MAX_REQUESTS)
		return 1;
	addr = bpf_map_lookup_elem(&requests, &at);
	out = bpf_map_lookup_elem(&answers, &at);
	if (!addr || !out || *addr >= w->end)
		return 1;
	if (w->upper_of != (*addr >> 30) + 1)
		find_upper(w, *addr);
	if (!w->upper) {
		out->kind = w->upper_kind;
		out->a[0] = w->upper_young;
	} else if (order.op != OP_TABLES) {
		answer_pmd(w, *addr, out);
	} else if (bpf_probe_read_kernel(table, sizeof(table), (void *)(layout.direct_map + w->upper))) {
		answer_error(out);
	} else {
		out->kind = KIND_PAGES;
		gather(at);
	}
	outcome.done = at + 1;
	return 0;
}

/* Runs under the mmap read lock. */
static long in_mapping(struct task_struct *task, struct vm_area_struct *vma, void *unused)
{
	__u64 began = bpf_ktime_get_ns(), held;
	struct mm_struct *mm = vma->vm_mm;
	struct walk w = {};

	w.pgd = (__u64)mm->pgd;
	w.end = vma->vm_end;
	outcome.mm_id = (__u64)mm;
	bpf_loop(MAX_REQUESTS, answer_one, &w, 0);
	held = bpf_ktime_get_ns() - began;
	if (held > outcome.longest_hold_ns)
		outcome.longest_hold_ns = held;
	return 0;
}

struct pass {
	struct task_struct *task;
};

static long next_mapping(__u32 i, struct pass *p)
{
	__u32 at = outcome.done;
	struct answer *out;
	__u64 *addr;
	long err;

	if (at >= order.count || at >= MAX_REQUESTS)
		return 1;
	addr = bpf_map_lookup_elem(&requests, &at);
	if (!addr)
		return 1;
	err = bpf_find_vma(p->task, *addr, in_mapping, 0, 0);
	if (err == -16) {	/* EBUSY */
		outcome.busy = 1;
		return 1;
	}
	if (err) {		/* ENOENT: the mapping went away since it was listed */
		out = bpf_map_lookup_elem(&answers, &at);
		if (out)
			out->kind = KIND_UNMAPPED;
		outcome.done = at + 1;
	}
	return 0;
}

/*
 * The tid in the namespace of the iterator's reader, by which user space knows the task. task->pid is the number in the
 * first namespace, which differs for a process in a container. The iterator lists only tasks of the reader's namespace,
 * so the task has a number there; 0 means no task.
 */
static __always_inline __s32 tid_for_reader(struct task_struct *task)
{
	struct task_struct *reader = (void *)bpf_get_current_task();
	__u32 level = BPF_CORE_READ(reader, thread_pid, level);
	struct pid *pid;
	__s32 nr = 0;

	if (!level)
		return task->pid;
	/* A plain number, not a pointer that the verifier follows: before 6.12 or so it refuses to add what it does not know to one. */
	pid = BPF_CORE_READ(task, thread_pid);
	if (BPF_CORE_READ(pid, level) < level)
		return 0;
	bpf_probe_read_kernel(&nr, sizeof(nr), (void *)pid + bpf_core_field_offset(struct pid, numbers) +
			      level * bpf_core_type_size(struct upid) + bpf_core_field_offset(struct upid, nr));
	return nr;
}

SEC("iter/task")
int walk(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct pass p = {};

	if (!task || tid_for_reader(task) != order.tid)
		return 0;
	outcome.seen = 1;
	outcome.start_boottime = task->start_boottime;
	if (!task->mm) {
		outcome.no_mm = 1;
		return 0;
	}
	p.task = task;
	bpf_loop(MAX_REQUESTS, next_mapping, &p, 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
