/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* PDs, MRs, keys; gather and scatter. */
#ifndef DP_ENGINE_MEMORY_H
#define DP_ENGINE_MEMORY_H

#include "engine/instance.h"
#include "wire/parse.h"

struct dp_swqe;

struct dp_pd {
	struct dp_engine *engine;
	uint32_t users;
};

struct dp_mr {
	struct dp_pd *pd;
	uint8_t *addr;
	uint64_t len, iova;
	uint32_t access, key;
	bool invalidated; /* by SEND with invalidate: no remote access any more */
};

/* Host address of [va, va+len), NULL when the key, the PD, the bounds or the
 * access do not allow it.  Zero bytes are always allowed. */
uint8_t *dp_mr_reach(struct dp_pd *, uint32_t key, uint64_t va, uint64_t len, uint32_t access);
/* -EFAULT: no such key in the PD, or not one that a peer may take away. */
int dp_mr_invalidate(struct dp_pd *, uint32_t key);
int dp_gather(struct dp_qp *, const struct dp_swqe *, uint32_t offset, uint8_t *to, uint32_t len);
/* Copies into an SGE list from offset on; -EFAULT: a key does not allow it.
 * Checks alone when `from` is NULL. */
int dp_scatter(struct dp_pd *, const struct dp_sge *, uint32_t num_sge, uint32_t offset,
	       const uint8_t *from, uint32_t len);
/* The same with the first len bytes of a packet's payload. */
int dp_scatter_payload(struct dp_pd *, const struct dp_sge *, uint32_t num_sge, uint32_t offset,
		       const struct dp_parsed *, uint32_t len);
/* Copies payload bytes [from, from+len) of a packet. */
void dp_copy_payload(uint8_t *to, const struct dp_parsed *, uint32_t from, uint32_t len);

#endif
