/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Pools of fixed-size blocks. */
#ifndef DP_ENGINE_POOL_H
#define DP_ENGINE_POOL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A block begins with a pointer, which is the pool's while the block is free.  It comes
 * zeroed the first time, and later as it was given back. */
struct dp_pool {
	void *free;
	size_t size;
	uint32_t made, idle; /* blocks; of which free */
	uint32_t keep;	     /* free ones at most: the others go back to the system */
};

/* One block more stays in the pool: -ENOMEM. */
int dp_pool_reserve(struct dp_pool *);
void dp_pool_unreserve(struct dp_pool *);
void dp_pool_drain(struct dp_pool *);
/* Of an empty pool; NULL: no memory. */
void *dp_pool_make(struct dp_pool *);
void dp_pool_trim(struct dp_pool *);

static inline void *dp_pool_get(struct dp_pool *p)
{
	void *b = p->free;

	if (!b)
		return dp_pool_make(p);
	memcpy(&p->free, b, sizeof(void *));
	p->idle--;
	return b;
}

static inline void dp_pool_put(struct dp_pool *p, void *b)
{
	memcpy(b, &p->free, sizeof(void *));
	p->free = b;
	if (++p->idle > p->keep)
		dp_pool_trim(p);
}

#endif
