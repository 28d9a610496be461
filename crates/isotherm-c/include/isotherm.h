/*
 * libisotherm: memory handed out in blocks of page frames.
 *
 * A pool is a range of memory (anonymous, a memfd, huge pages, a DAX device, or frame numbers alone) and the books that say which of
 * its frames are free. A frame is 4 KiB; a block is 2^order frames, order 0 to 10, aligned to its size. Frame f of a pool lies
 * at one address for as long as the pool is open, at (f - first_frame) * 4096 from the start of its memory and of its descriptor.
 *
 * Results. Functions return 0 (or a count) or a negative number, one of the ISOTHERM_E... below or the negative errno of a system
 * call; isotherm_strerror says what it means. On an error nothing has changed, unless said otherwise.
 *
 * Threads. Every function may be called by any number of threads at once, except isotherm_pool_close, which has to be the last call
 * for its pool.
 *
 * Memory. A block holds what its last user left in it; what was never touched in an anonymous, memfd or hugetlb pool is zero. A block
 * that is freed twice, or with another order than it was handed out with, or that the pool never had, is refused. What cannot be
 * found out is a second free after the block was handed out to someone else.
 *
 * Fork. In a child, every call for its parent's pool fails with ISOTHERM_EFORKED, and the memory of a memfd, hugetlb or DAX pool is not
 * mapped. With isotherm_pool_fork the child of an anonymous or numbers pool goes on with a copy of its own. If the pool has a thread at the
 * fork (isotherm_pool_housekeeping), what the child has of it stays mapped until the child ends, either way, even if it closes the pool.
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

/* The version of this header; isotherm_version() gives that of the library. */
#define ISOTHERM_VERSION "0.1.0"

/* Errors. The values are those of Linux's errno, negative. */
enum {
	ISOTHERM_EINVAL = -22,     /* a null pointer, or a value that cannot be */
	ISOTHERM_ENOMEM = -12,     /* no block of that order is free, or what is left is kept back (watermarks) */
	ISOTHERM_EBUSY = -16,      /* alloc_at: in use; shrink: some of the range is in use, call again later */
	ISOTHERM_EALREADY = -114,  /* free: it is free already */
	ISOTHERM_EFAULT = -14,     /* free: no block with that first frame and order; else: an address or frame outside the pool */
	ISOTHERM_EEXIST = -17,     /* grow: some of the range is there already */
	ISOTHERM_E2BIG = -7,       /* a structure is larger than this library knows, and what it does not know is not zero */
	ISOTHERM_ENODEV = -19,     /* open: no DAX device */
	ISOTHERM_EOPNOTSUPP = -95, /* the pool has frame numbers only, or no descriptor; or the kernel has no such huge pages */
	ISOTHERM_EFORKED = -130,   /* the pool is that of the process that forked this one */
	ISOTHERM_EBUG = -131       /* a bug of the library; the pool should not be used any more */
};

/* What is behind the frames of a pool. */
enum {
	ISOTHERM_ANONYMOUS = 0, /* private memory */
	ISOTHERM_MEMFD = 1,     /* a memfd, see isotherm_pool_descriptor */
	ISOTHERM_HUGE_2M = 2,   /* a memfd of huge pages of 2 MiB, promised by the kernel when the pool is opened */
	ISOTHERM_HUGE_1G = 3,   /* of 1 GiB */
	ISOTHERM_DAX = 4,       /* all of a DAX device */
	ISOTHERM_NUMBERS = 5    /* nothing: frame numbers only */
};

/* What may be done with a block while it is in use; blocks of a type are kept together. */
enum {
	ISOTHERM_UNMOVABLE = 0,
	ISOTHERM_MOVABLE = 1,
	ISOTHERM_RECLAIMABLE = 2
};

/* Values of isotherm_pool_options.shuffle. */
enum {
	ISOTHERM_SHUFFLE_IF_DETECTED = 0, /* if sysfs tells of a direct-mapped memory-side cache, or ISOTHERM_CACHE_DETECTED */
	ISOTHERM_SHUFFLE = 1,
	ISOTHERM_SHUFFLE_NEVER = 2
};

/* Values of isotherm_pool_options.tier: how per-CPU sets keep threads apart. */
enum {
	ISOTHERM_TIER_BEST = 0,        /* restartable sequences where there are any, else locks */
	ISOTHERM_TIER_RESTARTABLE = 1, /* restartable sequences, or the pool is not opened */
	ISOTHERM_TIER_LOCKED = 2       /* a lock for each CPU that is tried */
};

/* Bits of isotherm_pool_options.flags. */
enum {
	ISOTHERM_OR_ANONYMOUS = 1,  /* private small pages where there are not enough huge pages; `error` says why, stats which it became */
	ISOTHERM_CACHE_DETECTED = 2 /* the machine has a direct-mapped memory-side cache */
};

#define ISOTHERM_ORDERS 11     /* orders 0 to 10 */
#define ISOTHERM_FRAME_SIZE 4096

/* An open pool. */
struct isotherm_pool;

/*
 * What a pool is to be. All zero but `size` and `bytes` is a private pool. To be initialised as a whole, so that fields which later
 * versions add are zero:
 *
 *     struct isotherm_pool_options options = { .size = sizeof(options), .bytes = 64 << 20 };
 */
struct isotherm_pool_options {
	uint64_t size;               /* sizeof(struct isotherm_pool_options) */
	uint64_t bytes;              /* of memory; a multiple of 4096 or of the huge page; 0 for DAX, which is its device's size */
	uint64_t span_bytes;         /* to which it may grow; 0: no more than `bytes` */
	uint64_t first_frame;        /* number of the first frame; physical address / 4096 where placement is to be physical */
	uint32_t backing;            /* ISOTHERM_ANONYMOUS ... */
	uint32_t flags;              /* ISOTHERM_OR_ANONYMOUS | ... */
	uint32_t shuffle;            /* ISOTHERM_SHUFFLE... */
	uint32_t colour_order;       /* blocks of which order are counted by colour; 0: single frames */
	uint64_t colour_cache_bytes; /* size of a direct-mapped cache to place for, a multiple of 4 MiB; 0: none */
	uint64_t watermark_min;      /* frames that are kept back; 0: none */
	uint64_t watermark_low;      /* at least the one before; 0: the same */
	uint64_t watermark_high;     /* at least the one before; 0: the same */
	uint64_t seed;               /* of what is random in placing; 0: another one for each pool */
	const char *device;          /* ISOTHERM_DAX: such as "/dev/dax0.0"; must be null otherwise */
	uint32_t cpus;               /* CPUs with a set of their own: the highest number plus one, at most 65,536; 0: all that may be */
	uint32_t tier;               /* ISOTHERM_TIER_... */
};

/* A pool at one moment. */
struct isotherm_pool_stats {
	uint64_t size;                         /* set by the caller: sizeof(struct isotherm_pool_stats); what was filled afterwards */
	uint64_t span_first;                   /* the first frame that may ever be */
	uint64_t span_frames;                  /* how many may ever be */
	uint64_t present_frames;               /* that are there */
	uint64_t free_frames;                  /* that nobody has, in sets or not */
	uint64_t isolated_frames;              /* that are free and on their way out */
	uint64_t free_blocks[ISOTHERM_ORDERS]; /* by order */
	uint64_t failed;                       /* allocations that failed */
	uint64_t refused;                      /* frees that were refused */
	uint64_t contended;                    /* times that the lock was found taken */
	uint32_t backing;                      /* ISOTHERM_ANONYMOUS ... */
	uint32_t shuffled;                     /* 1 if free blocks are shuffled */
	uint64_t waiting_frames;               /* of the free ones, how many wait in per-CPU sets */
	uint32_t tier;                         /* ISOTHERM_TIER_RESTARTABLE or ISOTHERM_TIER_LOCKED */
	uint32_t unused;                       /* 0 */
};

/* The version of the library, such as "0.1.0". */
const char *isotherm_version(void);

/* What a result means: a string that lives for ever. Never null. */
const char *isotherm_strerror(int result);

/*
 * Opens a pool and stores it at `pool`. On an error a sentence that says what was attempted and what to do goes to `error`, cut to
 * `error_size` bytes with its zero; `error` may be null. It is empty if the pool was opened as asked, and says why if small pages had
 * to take the place of huge ones (ISOTHERM_OR_ANONYMOUS).
 */
int isotherm_pool_open(const struct isotherm_pool_options *options, struct isotherm_pool **pool, char *error, size_t error_size);

/* Closes a pool. The memory of all of its blocks is gone. Null is let pass. */
void isotherm_pool_close(struct isotherm_pool *pool);

/*
 * Hands out a block: its address at `address` and its first frame at `frame`. Either may be null, not both. Of an ISOTHERM_NUMBERS pool
 * there is no address: if one is asked for, the call fails.
 */
int isotherm_pool_alloc(struct isotherm_pool *pool, unsigned order, unsigned type, void **address, uint64_t *frame);

/*
 * Hands out the block that starts at `frame`, if it is free. ISOTHERM_EINVAL: `frame` is no multiple of the block's size;
 * ISOTHERM_EFAULT: it is outside the pool; ISOTHERM_EBUSY: it is in use.
 */
int isotherm_pool_alloc_at(struct isotherm_pool *pool, uint64_t frame, unsigned order, unsigned type);

/* Hands out up to `count` blocks, their first frames at `frames`. How many there were: fewer only if no more are free. */
int64_t isotherm_pool_alloc_bulk(struct isotherm_pool *pool, unsigned order, unsigned type, uint64_t *frames, size_t count);

/* Takes a block back, by its first frame or by its address. */
int isotherm_pool_free(struct isotherm_pool *pool, uint64_t frame, unsigned order);
int isotherm_pool_free_address(struct isotherm_pool *pool, void *address, unsigned order);

/* Takes many back. Those that are refused are left out, and the result is that of the first of them; all others are free. */
int isotherm_pool_free_bulk(struct isotherm_pool *pool, const uint64_t *frames, size_t count, unsigned order);

/* The address of a frame, and the frame that an address lies in. */
int isotherm_pool_address_of(struct isotherm_pool *pool, uint64_t frame, void **address);
int isotherm_pool_frame_of(struct isotherm_pool *pool, const void *address, uint64_t *frame);

/* Puts memory behind `count` frames from `frame` on, which lie in the span and are not there yet. */
int isotherm_pool_grow(struct isotherm_pool *pool, uint64_t frame, uint64_t count);

/*
 * Takes `count` frames from `frame` on out of the pool and gives their memory back. ISOTHERM_EBUSY: some are in use; none of them
 * is handed out any more, to be called again until it returns 0, or isotherm_pool_keep calls it off. Whole 1,024 frames and whole huge
 * pages only, counted from first_frame, and within the span. What the system does not take back, with another error, stays in the pool.
 */
int isotherm_pool_shrink(struct isotherm_pool *pool, uint64_t frame, uint64_t count);
int isotherm_pool_keep(struct isotherm_pool *pool, uint64_t frame, uint64_t count);

/* Gives the memory behind free blocks of at least 2 MiB back to the system; the frames stay. How many bytes were passed. */
int64_t isotherm_pool_trim(struct isotherm_pool *pool);

/* Gives what waits in per-CPU sets back, where it merges. How many frames. Done by itself before an allocation fails. */
int64_t isotherm_pool_drain(struct isotherm_pool *pool);

/*
 * Has a thread of the pool return what idle CPUs keep in their sets, and what sets keep above their marks: once every `interval_ns`
 * nanoseconds (a second, 1000000000, is what kernels take; 1 to 99999, less than 100 microseconds, is ISOTHERM_EINVAL). A set that was not
 * used for `idle_after` turns is emptied (3 is usual; 0: never); `max_deferrals` turns in a row leave the rest for later because the zone's
 * lock is taken (8 is usual; 0: none). Called again, it goes on with the new settings; an interval of 0 ends the thread, as
 * isotherm_pool_close does, and waits for that. A pool begins without one. It takes no signals of the program. A child after a fork has
 * none; after isotherm_pool_fork it may start its own.
 */
int isotherm_pool_housekeeping(struct isotherm_pool *pool, uint64_t interval_ns, unsigned idle_after, unsigned max_deferrals);

/*
 * Fills in as much of `stats` as stats->size says, a multiple of 8. stats->size becomes what was filled, less than it was if this library
 * knows less; the rest is zero. To be set anew before the next call with another library only.
 */
int isotherm_pool_stats(struct isotherm_pool *pool, struct isotherm_pool_stats *stats);

/*
 * The descriptor of the memory, for others to map. It stays the pool's: not to be closed. ISOTHERM_EOPNOTSUPP for anonymous memory and
 * mere numbers.
 */
int isotherm_pool_descriptor(struct isotherm_pool *pool);

/* fork() while nobody is in the pool: 0 in the child, its pid in the parent, negative on an error, as above. */
int64_t isotherm_pool_fork(struct isotherm_pool *pool);

#ifdef __cplusplus
}
#endif

#endif
