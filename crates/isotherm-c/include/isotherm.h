/*
 * libisotherm: a frame allocator with memory behind its frames.
 *
 * A pool is a range of memory (anonymous, a memfd, huge pages, a DAX device, or frame numbers alone) plus metadata that
 * records which of its frames are free. A frame is 4 KiB. A block is 2^order frames, order 0 to 10, aligned to its
 * size. Frame f of a pool has the same address for as long as the pool is open: (f - first_frame) * 4096 from the start
 * of the pool's memory. In the pool's descriptor it has the same offset.
 *
 * Results. Functions return 0 (or a count) or a negative number: one of the ISOTHERM_E... below, or the negative errno
 * of a system call. isotherm_strerror describes it. A call that fails has changed nothing, unless documented otherwise.
 *
 * Threads. Any number of threads may call any function at the same time. The exception is isotherm_pool_close, which
 * must be the last call for its pool.
 *
 * Memory. A block holds what its last owner left in it. Memory of an anonymous, memfd or hugetlb pool that was never
 * written to is zero. The pool refuses to free a block that is already free, that was allocated with another order, or
 * that was never allocated from it. One mistake is not detected: a second free after the block was allocated again.
 *
 * Fork. In a child, every call for a pool of its parent fails with ISOTHERM_EFORKED, and the memory of a memfd, hugetlb
 * or DAX pool is not mapped. After isotherm_pool_fork, the child of an anonymous or numbers pool can continue with a
 * copy of the pool. If the pool has a drain thread at the fork (isotherm_pool_housekeeping), the child's copy of the
 * pool stays mapped until the child ends. This is so after either kind of fork, and even if the child closes the pool.
 *
 * C99 or later, and C++.
 */
#ifndef ISOTHERM_H
#define ISOTHERM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. isotherm_version() returns that of the library. */
#define ISOTHERM_VERSION "0.1.0"

/* Errors. The values are those of Linux's errno, negated. */
enum {
	ISOTHERM_EINVAL = -22,     /* a null pointer, or an invalid value */
	ISOTHERM_ENOMEM = -12,     /* no free block of that order, or the rest is reserved (watermarks) */
	ISOTHERM_EBUSY = -16,      /* alloc_at: in use; shrink: some of the range is in use, call again later */
	ISOTHERM_EALREADY = -114,  /* free: the block is already free */
	ISOTHERM_EFAULT = -14,     /* free: no block with that first frame and order; else: an address or frame outside the pool */
	ISOTHERM_EEXIST = -17,     /* grow: some of the range is present already */
	ISOTHERM_E2BIG = -7,       /* a structure is larger than this library knows, and the unknown part is not zero */
	ISOTHERM_ENODEV = -19,     /* open: no DAX device */
	ISOTHERM_EOPNOTSUPP = -95, /* the pool has only frame numbers, or no descriptor; or the kernel lacks this huge page size */
	ISOTHERM_EFORKED = -130,   /* the pool belongs to the process that forked this one */
	ISOTHERM_EBUG = -131       /* a bug in the library; do not use the pool any more */
};

/* What is behind the frames of a pool. */
enum {
	ISOTHERM_ANONYMOUS = 0, /* private memory */
	ISOTHERM_MEMFD = 1,     /* a memfd, see isotherm_pool_descriptor */
	ISOTHERM_HUGE_2M = 2,   /* a memfd of 2 MiB huge pages, reserved when the pool is opened */
	ISOTHERM_HUGE_1G = 3,   /* the same with 1 GiB huge pages */
	ISOTHERM_DAX = 4,       /* an entire DAX device */
	ISOTHERM_NUMBERS = 5    /* nothing: frame numbers only */
};

/* Migrate types: what the owner of a block can do while it uses it. The pool groups blocks by type. */
enum {
	ISOTHERM_UNMOVABLE = 0,
	ISOTHERM_MOVABLE = 1,
	ISOTHERM_RECLAIMABLE = 2
};

/* Values of isotherm_pool_options.shuffle. */
enum {
	ISOTHERM_SHUFFLE_IF_DETECTED = 0, /* if sysfs reports a direct-mapped memory-side cache, or with ISOTHERM_CACHE_DETECTED */
	ISOTHERM_SHUFFLE = 1,
	ISOTHERM_SHUFFLE_NEVER = 2
};

/* Values of isotherm_pool_options.tier: what keeps threads apart on the per-CPU lists. */
enum {
	ISOTHERM_TIER_BEST = 0,        /* restartable sequences if available, else locks */
	ISOTHERM_TIER_RESTARTABLE = 1, /* restartable sequences; without them the pool fails to open */
	ISOTHERM_TIER_LOCKED = 2       /* one lock for each CPU, tried and not waited for */
};

/* Bits of isotherm_pool_options.flags. */
enum {
	ISOTHERM_OR_ANONYMOUS = 1,  /* use small private pages if there are too few huge pages; `error` says why, stats report the backing */
	ISOTHERM_CACHE_DETECTED = 2 /* the machine has a direct-mapped memory-side cache */
};

#define ISOTHERM_ORDERS 11     /* orders 0 to 10 */
#define ISOTHERM_FRAME_SIZE 4096

/* An open pool. */
struct isotherm_pool;

/*
 * Options of a pool. With only `size` and `bytes` set it is a private pool. Initialise the whole structure, so that
 * fields added by later versions are zero:
 *
 *     struct isotherm_pool_options options = { .size = sizeof(options), .bytes = 64 << 20 };
 */
struct isotherm_pool_options {
	uint64_t size;               /* sizeof(struct isotherm_pool_options) */
	uint64_t bytes;              /* size of the memory; a multiple of 4096 or of the huge page; 0 for DAX: the size of the device */
	uint64_t span_bytes;         /* the size that it may grow to; 0: `bytes` */
	uint64_t first_frame;        /* number of the first frame; for physical placement: physical address / 4096 */
	uint32_t backing;            /* ISOTHERM_ANONYMOUS ... */
	uint32_t flags;              /* ISOTHERM_OR_ANONYMOUS | ... */
	uint32_t shuffle;            /* ISOTHERM_SHUFFLE... */
	uint32_t colour_order;       /* the order by which blocks are coloured; 0: single frames */
	uint64_t colour_cache_bytes; /* size of a direct-mapped cache to place for, a multiple of 4 MiB; 0: none */
	uint64_t watermark_min;      /* allocations leave at least this many frames free; 0: none */
	uint64_t watermark_low;      /* at least watermark_min; 0: the same */
	uint64_t watermark_high;     /* at least watermark_low; 0: the same */
	uint64_t seed;               /* for random placement; 0: a new one for each pool */
	const char *device;          /* ISOTHERM_DAX: such as "/dev/dax0.0"; must be null otherwise */
	uint32_t cpus;               /* CPUs with per-CPU lists: the highest number plus one, at most 65,536; 0: all possible CPUs */
	uint32_t tier;               /* ISOTHERM_TIER_... */
};

/* The state of a pool at one moment. */
struct isotherm_pool_stats {
	uint64_t size;                         /* in: sizeof(struct isotherm_pool_stats); out: the bytes that were filled in */
	uint64_t span_first;                   /* the first frame of the span, which is the range the pool may grow to */
	uint64_t span_frames;                  /* frames in the span */
	uint64_t present_frames;               /* frames in the pool now */
	uint64_t free_frames;                  /* free frames, those on per-CPU lists included */
	uint64_t isolated_frames;              /* free frames that are being removed */
	uint64_t free_blocks[ISOTHERM_ORDERS]; /* by order */
	uint64_t failed;                       /* allocations that found nothing in the zone, tried again or not */
	uint64_t refused;                      /* refused frees */
	uint64_t contended;                    /* acquisitions that found the zone lock taken */
	uint32_t backing;                      /* ISOTHERM_ANONYMOUS ... */
	uint32_t shuffled;                     /* 1 if free blocks are shuffled */
	uint64_t waiting_frames;               /* free frames on per-CPU lists */
	uint32_t tier;                         /* ISOTHERM_TIER_RESTARTABLE or ISOTHERM_TIER_LOCKED */
	uint32_t unused;                       /* 0 */
};

/* The version of the library, such as "0.1.0". */
const char *isotherm_version(void);

/* Describes a result. The string is never null and is valid until the program ends. */
const char *isotherm_strerror(int result);

/*
 * Opens a pool and stores it in `pool`. On an error, `error` receives a sentence that says what was attempted and what
 * to do. It is truncated to `error_size` bytes including the terminating zero. `error` may be null. If the pool opens
 * as requested, the sentence is empty. If small pages replaced huge ones (ISOTHERM_OR_ANONYMOUS), it says why.
 */
int isotherm_pool_open(const struct isotherm_pool_options *options, struct isotherm_pool **pool, char *error, size_t error_size);

/* Closes a pool. The memory of all its blocks is gone. Null is ignored. */
void isotherm_pool_close(struct isotherm_pool *pool);

/*
 * Allocates a block and stores its address in `address` and its first frame in `frame`. Either may be null, but not
 * both. An ISOTHERM_NUMBERS pool has no addresses: the call fails if one is requested.
 */
int isotherm_pool_alloc(struct isotherm_pool *pool, unsigned order, unsigned type, void **address, uint64_t *frame);

/*
 * Allocates the block that starts at `frame`, if it is free. ISOTHERM_EINVAL: `frame` is not a multiple of the block's
 * size. ISOTHERM_EFAULT: it is outside the pool. ISOTHERM_EBUSY: it is in use.
 */
int isotherm_pool_alloc_at(struct isotherm_pool *pool, uint64_t frame, unsigned order, unsigned type);

/*
 * Allocates up to `count` blocks and stores their first frames in `frames`. Returns how many; fewer than `count` only
 * if no more are free.
 */
int64_t isotherm_pool_alloc_bulk(struct isotherm_pool *pool, unsigned order, unsigned type, uint64_t *frames, size_t count);

/* Frees a block, by its first frame or by its address. */
int isotherm_pool_free(struct isotherm_pool *pool, uint64_t frame, unsigned order);
int isotherm_pool_free_address(struct isotherm_pool *pool, void *address, unsigned order);

/* Frees many blocks. Skips those that it refuses and returns the error of the first of them; all others are freed. */
int isotherm_pool_free_bulk(struct isotherm_pool *pool, const uint64_t *frames, size_t count, unsigned order);

/* Return the address of a frame, and the frame that contains an address. */
int isotherm_pool_address_of(struct isotherm_pool *pool, uint64_t frame, void **address);
int isotherm_pool_frame_of(struct isotherm_pool *pool, const void *address, uint64_t *frame);

/* Adds memory for `count` frames from `frame` on. They must lie in the span and not be in the pool yet. */
int isotherm_pool_grow(struct isotherm_pool *pool, uint64_t frame, uint64_t count);

/*
 * Removes `count` frames from `frame` on from the pool and returns their memory to the system. ISOTHERM_EBUSY: some are
 * in use. The pool then no longer allocates any of the range: call again until the result is 0, or cancel with
 * isotherm_pool_keep. The range must consist of whole 1,024 frames by number (multiples of 1,024; the first and the last
 * of the span may be shorter) and of whole huge pages, and lie in the span. Huge pages that were never touched stay
 * reserved until the pool is closed. If the system does not take some memory back, the call returns another error and
 * that memory stays in the pool.
 */
int isotherm_pool_shrink(struct isotherm_pool *pool, uint64_t frame, uint64_t count);
int isotherm_pool_keep(struct isotherm_pool *pool, uint64_t frame, uint64_t count);

/*
 * Returns the memory behind free blocks of at least 2 MiB to the system. The frames stay in the pool. Returns the
 * number of bytes.
 */
int64_t isotherm_pool_trim(struct isotherm_pool *pool);

/*
 * Returns frames on per-CPU lists to the zone, where they merge. Returns how many. An allocation does this by itself
 * before it fails.
 */
int64_t isotherm_pool_drain(struct isotherm_pool *pool);

/*
 * Starts a thread that drains per-CPU lists every `interval_ns` nanoseconds, as the kernel's vmstat_update does: it
 * empties the lists of idle CPUs, and lowers the `high` of the others and returns what is above it. 1000000000 (one
 * second) is the kernel's interval; 1 to 99999, less than 100 microseconds, is ISOTHERM_EINVAL. Lists that were not
 * used for `idle_after` runs are emptied (3 is usual; 0: never). If the zone lock is taken, a run defers the rest;
 * after `max_deferrals` deferrals in a row it waits for the lock (8 is usual; 0: never defer). Another call continues
 * with the new settings. An interval of 0 ends the thread and waits for its end, as isotherm_pool_close does. A new
 * pool has no such thread. The thread takes none of the program's signals. A child has no thread after a fork; after
 * isotherm_pool_fork it may start its own.
 */
int isotherm_pool_housekeeping(struct isotherm_pool *pool, uint64_t interval_ns, unsigned idle_after, unsigned max_deferrals);

/*
 * Fills in as much of `stats` as stats->size says, a multiple of 8. stats->size becomes the number of bytes that were
 * filled in, which is less if this library knows less; the rest becomes zero. Set it again before the next call only if
 * that call goes to another version of the library.
 */
int isotherm_pool_stats(struct isotherm_pool *pool, struct isotherm_pool_stats *stats);

/*
 * The descriptor of the memory, for others to map. The pool owns it: do not close it. ISOTHERM_EOPNOTSUPP for anonymous
 * memory and frame numbers.
 */
int isotherm_pool_descriptor(struct isotherm_pool *pool);

/*
 * fork() while no thread is in a call for the pool. Returns 0 in the child, the child's pid in the parent, or an error
 * as above.
 */
int64_t isotherm_pool_fork(struct isotherm_pool *pool);

#ifdef __cplusplus
}
#endif

#endif
