/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whether a program is hot: it calls so quickly, one call after the other, that what it posts may wait
 * for its next call and leave with other packets in one system call (device.h, batches).
 *
 * A call is quick if it comes within DP_QUICK_NS of the one before.  A gap takes off a few quick calls
 * only.  A program that posts a row of requests, computes for 50 us and posts the next row is hot, too:
 * a system call for each request of the row would take about as long.  That is how a program looks which
 * goes through thousands of QPs for those with room for a request.
 */
#ifndef DP_IO_HEAT_H
#define DP_IO_HEAT_H

#include <stdbool.h>
#include <stdint.h>

enum {
	DP_QUICK_NS = 10000, /* between two calls */
	DP_POST_NS = 1000,   /* ...and for each request that was delayed meanwhile, so much more */
	DP_HOT_CALLS = 64,   /* quick calls, less the slow ones, from which on the program is hot */
	DP_HOT_MAX = 128,    /* that are counted */
	DP_SLOW_CALLS = 4,   /* that a slow call takes off */
};

struct dp_heat {
	uint32_t calls; /* quick ones, less the slow ones */
};

static inline bool dp_heat_hot(const struct dp_heat *h)
{
	return h->calls >= DP_HOT_CALLS;
}

/* A call came gap_ns after the one before, and `delayed` requests were posted in between.  These count
 * as that many calls. */
static inline void dp_heat_called(struct dp_heat *h, uint64_t gap_ns, uint32_t delayed)
{
	if (gap_ns >= DP_QUICK_NS + (uint64_t)delayed * DP_POST_NS)
		h->calls -= h->calls < DP_SLOW_CALLS ? h->calls : DP_SLOW_CALLS;
	else
		h->calls += delayed ? delayed : 1;
	if (h->calls > DP_HOT_MAX)
		h->calls = DP_HOT_MAX;
}

/* Requests waited for a call that did not come. */
static inline void dp_heat_failed(struct dp_heat *h)
{
	h->calls /= 2;
}

#endif
