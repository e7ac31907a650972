/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Pools of fixed-size blocks. */
#ifndef DP_ENGINE_POOL_H
#define DP_ENGINE_POOL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* While a block is free, its first word is a pointer that the pool uses.  A new block is zeroed; a
 * block that is used again has the content with which it was returned. */
struct dp_pool {
	void *free;
	size_t size;
	uint32_t made, idle; /* blocks allocated, and how many of them are free */
	uint32_t keep;	     /* most free blocks to keep; more go back to the system */
};

/* Sets one more block aside: 0 or -ENOMEM. */
int dp_pool_reserve(struct dp_pool *);
void dp_pool_unreserve(struct dp_pool *);
void dp_pool_drain(struct dp_pool *);
/* Allocates a block, for a pool that has no free one; NULL: no memory. */
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
