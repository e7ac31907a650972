// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "fabric/sim/internal.h"

#include <sys/mman.h>

/* The size is a multiple of a cache line; the first line has the fields that links read. */
static size_t block_size(bool telemetry)
{
	size_t size = sizeof(struct sim_packet);

	if (telemetry)
		size += DP_HOPS_MAX * sizeof(struct dp_telemetry);
	return (size + SIM_CACHE_LINE - 1) & ~(size_t)(SIM_CACHE_LINE - 1);
}

/* Packets are used in any order, so on small pages each access would cost a walk through page
 * tables.  Huge pages avoid that; without them it works as well. */
static uint8_t *new_slab(size_t bytes)
{
	uint8_t *slab;

	if (bytes < SIM_SLAB_LAST)
		return aligned_alloc(SIM_CACHE_LINE, bytes);
	slab = aligned_alloc(SIM_SLAB_LAST, bytes);
	if (slab)
		madvise(slab, bytes, MADV_HUGEPAGE);
	return slab;
}

static int grow(struct sim_pool *pool)
{
	void **slabs = realloc(pool->slab, (pool->slabs + 1) * sizeof(*slabs));
	struct sim_packet *p;
	size_t bytes, i;
	uint8_t *at;

	if (!slabs)
		return -ENOMEM;
	pool->slab = slabs;
	if (!pool->size)
		pool->size = block_size(pool->telemetry);
	bytes = pool->slabs < 4 ? (size_t)SIM_SLAB_FIRST << pool->slabs : SIM_SLAB_LAST;
	at = new_slab(bytes);
	if (!at)
		return -ENOMEM;
	slabs[pool->slabs++] = at;
	for (i = 0; i < bytes / pool->size; i++, at += pool->size) {
		p = (struct sim_packet *)at;
		p->frame.next = (struct dp_frame *)pool->free;
		pool->free = p;
	}
	return 0;
}

struct sim_packet *sim_packet_get(struct sim_pool *pool)
{
	struct sim_packet *p;

	if (!pool->free && grow(pool))
		return NULL;
	p = pool->free;
	pool->free = (struct sim_packet *)p->frame.next;
	pool->used++;
	return p;
}

void sim_packet_put(struct sim_pool *pool, struct sim_packet *p)
{
	p->frame.next = (struct dp_frame *)pool->free;
	pool->free = p;
	pool->used--;
}

struct sim_packet *sim_packet_copy(struct sim_pool *pool, const struct sim_packet *from)
{
	struct sim_packet *p = sim_packet_get(pool);

	if (!p)
		return NULL;
	memcpy(p, from, offsetof(struct sim_packet, bytes) + from->packet.len);
	p->packet.data = p->bytes;
	if (pool->telemetry) {
		memcpy(p->hop, from->hop, from->frame.n_hops * sizeof(*p->hop));
		p->frame.hop = p->hop;
	}
	return p;
}

void sim_pool_free(struct sim_pool *pool)
{
	uint32_t i;

	for (i = 0; i < pool->slabs; i++)
		free(pool->slab[i]);
	free(pool->slab);
}
