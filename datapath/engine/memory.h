/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* PDs, MRs, keys; gather and scatter. */
#ifndef DP_ENGINE_MEMORY_H
#define DP_ENGINE_MEMORY_H

#include "engine/instance.h"
#include "wire/parse.h"

struct dp_qp;
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
	bool invalidated;     /* a SEND with invalidate took the key away: no remote access */
	uint8_t window;	      /* enum dp_mw_type; 0: a region */
	uint32_t windows;     /* of a region: memory windows bound to it */
	uint32_t qpn;	      /* of a bound window of type 2: the QP whose peer may use it */
	struct dp_mr *region; /* of a window: the region that it is bound to; NULL: not bound */
};

/* Host address of [va, va+len) for the peer of a QP.  NULL: key, PD, bounds or access rights forbid
 * it.  Zero bytes are always allowed. */
uint8_t *dp_remote_reach(const struct dp_qp *, uint32_t key, uint64_t va, uint64_t len,
			 uint32_t access);
/* Whether the peer has these rights on what the key names, wherever that lies. */
bool dp_remote_allows(const struct dp_qp *, uint32_t key, uint32_t access);
/* The region or window of this key; NULL: the PD has none. */
struct dp_mr *dp_mr_find(struct dp_pd *, uint32_t key);
/* -EINVAL: the QP's PD has no such key, or the key cannot be invalidated. */
int dp_mr_invalidate(const struct dp_qp *, uint32_t key);
void dp_window_unbind(struct dp_mr *window);
/* -EINVAL: the window cannot be bound this way. */
int dp_window_bind(struct dp_qp *, const struct dp_bind *);
/* Takes a bind or an invalidation back: the region or window is what it was before, and so is the
 * region to which it was bound. */
void dp_mr_restore(struct dp_mr *, const struct dp_mr *before);
/* Closes the windows of a QP that is destroyed.  Those of one that is reset stay: beside the end of
 * window or QP only an invalidation ends them (ibv_alloc_mw(3)). */
void dp_windows_forget(struct dp_engine *, uint32_t qpn);
int dp_gather(struct dp_qp *, const struct dp_swqe *, uint32_t offset, uint8_t *to, uint32_t len);
/* How a piece of payload gets to its place. */
struct dp_put {
	void (*piece)(struct dp_put *, uint8_t *to, const uint8_t *from, uint32_t len);
};

/* Copies into an SGE list from offset on, piece by piece; put NULL: with dp_place().  `from` NULL:
 * only checks that the list can take it.  -EFAULT: a key forbids it. */
int dp_scatter_with(struct dp_put *, struct dp_pd *, const struct dp_sge *, uint32_t num_sge,
		    uint32_t offset, const uint8_t *from, uint32_t len);
/* The same, with the first len bytes of a packet's payload. */
int dp_scatter_payload_with(struct dp_put *, struct dp_pd *, const struct dp_sge *,
			    uint32_t num_sge, uint32_t offset, const struct dp_parsed *,
			    uint32_t len);

static inline int dp_scatter(struct dp_pd *pd, const struct dp_sge *sge, uint32_t num_sge,
			     uint32_t offset, const uint8_t *from, uint32_t len)
{
	return dp_scatter_with(NULL, pd, sge, num_sge, offset, from, len);
}

static inline int dp_scatter_payload(struct dp_pd *pd, const struct dp_sge *sge, uint32_t num_sge,
				     uint32_t offset, const struct dp_parsed *p, uint32_t len)
{
	return dp_scatter_payload_with(NULL, pd, sge, num_sge, offset, p, len);
}

/* Copies payload bytes [from, from+len) of a packet. */
void dp_copy_payload(uint8_t *to, const struct dp_parsed *, uint32_t from, uint32_t len);

#endif
