/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Receives: the ring of a QP or of a shared receive queue.
 *
 * A QP with a shared queue borrows receives from it.  It borrows one when the message that will
 * take it arrives, and keeps borrowed receives in a ring of its own: in extended mode many messages
 * may be under way behind a gap.  The ring has room for a share; it grows when it is full, and is
 * short again once it is empty.  Beyond its share a QP borrows only while the queue has more than a
 * share left, which is for others.  A reset returns the unused ones.
 */
#ifndef DP_ENGINE_RECEIVES_H
#define DP_ENGINE_RECEIVES_H

#include "engine/memory.h"

enum { DP_BORROWED_SHARE = 128 }; /* receives that a QP may borrow at a time; a power of two */

struct dp_rwqe {
	uint64_t wr_id;
	uint32_t num_sge;
	uint32_t len; /* bytes that it has room for */
	struct dp_sge sge[];
};

struct dp_receives {
	uint8_t *wqes;
	uint32_t mask;
	uint32_t ci, pi; /* index of the oldest, and of the next to be posted */
	uint16_t stride, max_sge;
};

struct dp_srq {
	struct dp_event_node event;
	struct dp_pd *pd;
	struct dp_receives rq;
	uint32_t lent;	/* borrowed by QPs and not used yet; their places stay taken */
	uint32_t limit; /* DP_EVENT_SRQ_LIMIT is raised once when fewer are left; 0: no event */
	uint32_t users; /* QPs that use the queue */
	void *user;
};

/* Memory that a ring needs.  max_wr is rounded up to a power of two. */
size_t dp_receives_bytes(uint32_t max_wr, uint32_t max_sge);
/* memory: dp_receives_bytes() zeroed bytes; NULL: the ring allocates them. */
int dp_receives_init(struct dp_receives *, uint32_t max_wr, uint32_t max_sge, void *memory);
/* -EINVAL: the ring cannot take the request. */
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

/* The receive for a message that comes `ahead` messages after the next one to complete.  NULL: none
 * is posted (yet). */
struct dp_rwqe *dp_receive(struct dp_qp *, uint32_t ahead);
/* The receive that the next message would get, left where it is: others may use a shared one. */
const struct dp_rwqe *dp_receive_next(const struct dp_qp *);
/* Consumes the oldest receive; returns its wr_id. */
uint64_t dp_receive_take(struct dp_qp *);
/* Copies into a receive from offset on, like dp_scatter_with(). */
int dp_receive_fill(const struct dp_qp *, const struct dp_rwqe *, uint32_t offset,
		    const uint8_t *from, uint32_t len, struct dp_put *);
int dp_receive_payload(const struct dp_qp *, const struct dp_rwqe *, uint32_t offset,
		       const struct dp_parsed *, uint32_t len, struct dp_put *);
/* Completes all receives as flushed. */
void dp_receives_flush(struct dp_qp *);
void dp_receives_reset(struct dp_qp *);

#endif
