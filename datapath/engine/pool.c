// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/pool.h"

#include <errno.h>
#include <stdlib.h>

void *dp_pool_make(struct dp_pool *p)
{
	void *b = calloc(1, p->size);

	p->made += !!b;
	return b;
}

void dp_pool_trim(struct dp_pool *p)
{
	free(dp_pool_get(p));
	p->made--;
}

int dp_pool_reserve(struct dp_pool *p)
{
	void *b = dp_pool_make(p);

	if (!b)
		return -ENOMEM;
	p->keep++;
	dp_pool_put(p, b);
	return 0;
}

void dp_pool_unreserve(struct dp_pool *p)
{
	p->keep--;
	if (p->idle > p->keep)
		dp_pool_trim(p);
}

void dp_pool_drain(struct dp_pool *p)
{
	while (p->idle)
		dp_pool_trim(p);
}
