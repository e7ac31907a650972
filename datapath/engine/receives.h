/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Receives: the ring of a QP or of a shared receive queue.
 *
 * A QP on a shared queue borrows receives from it, each when the message that will take it
 * arrives, and holds them in a small ring of its own: in extended mode several messages may
 * be under way behind a gap.  What it has not used when it is reset goes back.
 */
#ifndef DP_ENGINE_RECEIVES_H
#define DP_ENGINE_RECEIVES_H

#include "engine/memory.h"

enum { DP_BORROWED_MAX = 128 }; /* by a QP at a time; a power of two */

struct dp_rwqe {
	uint64_t wr_id;
	uint32_t num_sge;
	uint32_t len; /* room */
	struct dp_sge sge[];
};

struct dp_receives {
	uint8_t *wqes;
	uint32_t mask;
	uint32_t ci, pi; /* taken, posted */
	uint16_t stride, max_sge;
};

struct dp_srq {
	struct dp_event_node event;
	struct dp_pd *pd;
	struct dp_receives rq;
	uint32_t lent;	/* to QPs, which have not used them; their places stay taken */
	uint32_t limit; /* fewer than these: DP_EVENT_SRQ_LIMIT, once; 0: no event */
	uint32_t users; /* QPs */
	void *user;
};

/* max_wr is rounded up to a power of two. */
size_t dp_receives_bytes(uint32_t max_wr, uint32_t max_sge);
/* memory: of so many bytes and zeroed, NULL: its own. */
int dp_receives_init(struct dp_receives *, uint32_t max_wr, uint32_t max_sge, void *memory);
/* -EINVAL: not a request for this ring. */
int dp_receives_check(const struct dp_receives *, const struct dp_recv_wr *, uint32_t *len);
void dp_receives_push(struct dp_receives *, const struct dp_recv_wr *, uint32_t len);

static inline struct dp_rwqe *dp_receives_at(const struct dp_receives *r, uint32_t i)
{
	return (struct dp_rwqe *)(r->wqes + (size_t)(i & r->mask) * r->stride);
}

static inline uint32_t dp_receives_count(const struct dp_receives *r)
{
	return r->pi - r->ci;
}

/* The receive that the message `ahead` of the next one to complete will take; NULL: none is
 * posted (yet). */
struct dp_rwqe *dp_receive(struct dp_qp *, uint32_t ahead);
/* The oldest receive is used: its wr_id. */
uint64_t dp_receive_take(struct dp_qp *);
/* Copies into a receive from offset on, as dp_scatter(). */
int dp_receive_fill(const struct dp_qp *, const struct dp_rwqe *, uint32_t offset,
		    const uint8_t *from, uint32_t len);
int dp_receive_payload(const struct dp_qp *, const struct dp_rwqe *, uint32_t offset,
		       const struct dp_parsed *, uint32_t len);
/* Completes all as flushed. */
void dp_receives_flush(struct dp_qp *);
void dp_receives_reset(struct dp_qp *);

#endif
