/*
 * A pool that another process could map: blocks from it, what is refused, growing, and what is left when it is empty.
 *
 *     cc -std=c99 -Wall -Wextra pool.c $(pkg-config --cflags --libs isotherm) -o pool && ./pool
 */
#include <inttypes.h>
#include <isotherm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

/* Ends the program if a call failed that should not. */
static int64_t check(const char *what, int64_t result)
{
	if (result < 0) {
		fprintf(stderr, "%s: %s\n", what, isotherm_strerror((int)result));
		exit(1);
	}
	return result;
}

static void one_block(struct isotherm_pool *pool)
{
	void *address;
	uint64_t frame, again;

	check("alloc", isotherm_pool_alloc(pool, 9, ISOTHERM_MOVABLE, &address, &frame));
	memset(address, 1, (size_t)512 * ISOTHERM_FRAME_SIZE);
	check("frame_of", isotherm_pool_frame_of(pool, (char *)address + 8192, &again));
	printf("a huge page: aligned %d, frames apart %" PRIu64 "\n", (uintptr_t)address % (2 * MIB) == 0, again - frame);
	check("free", isotherm_pool_free_address(pool, address, 9));
	printf("freed twice: %s\n", isotherm_strerror(isotherm_pool_free_address(pool, address, 9)));
	printf("never had: %s\n", isotherm_strerror(isotherm_pool_free(pool, 1, 9)));
}

static void many_blocks(struct isotherm_pool *pool)
{
	enum { MANY = 1000 };
	uint64_t frames[MANY];
	int64_t got = check("alloc_bulk", isotherm_pool_alloc_bulk(pool, 0, ISOTHERM_UNMOVABLE, frames, MANY));

	printf("in bulk: %" PRId64 "\n", got);
	check("free_bulk", isotherm_pool_free_bulk(pool, frames, (size_t)got, 0));
}

static void until_it_is_empty(struct isotherm_pool *pool)
{
	uint64_t frame;
	int blocks = 0, result;

	while ((result = isotherm_pool_alloc(pool, 10, ISOTHERM_MOVABLE, NULL, &frame)) == 0)
		blocks++;
	printf("blocks of 4 MiB: %d, then: %s\n", blocks, isotherm_strerror(result));
}

int main(void)
{
	struct isotherm_pool_options options = {
		.size = sizeof(options), .bytes = 16 * MIB, .span_bytes = 32 * MIB, .backing = ISOTHERM_MEMFD};
	struct isotherm_pool_stats stats = {.size = sizeof(stats)};
	struct isotherm_pool *pool;
	char error[256];

	if (isotherm_pool_open(&options, &pool, error, sizeof(error)) < 0) {
		fprintf(stderr, "%s\n", error);
		return 1;
	}
	one_block(pool);
	many_blocks(pool);
	check("grow", isotherm_pool_grow(pool, 4096, 4096));
	check("stats", isotherm_pool_stats(pool, &stats));
	printf("frames: %" PRIu64 ", free: %" PRIu64 ", refused: %" PRIu64 "\n", stats.present_frames, stats.free_frames,
	       stats.refused);
	until_it_is_empty(pool);
	isotherm_pool_close(pool);
	return 0;
}
