/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What QPs of all types have, and struct dp_qp_ops, behind which the types differ.
 *
 * The struct of a type begins with its struct dp_qp.  A new type is a folder beside rc/
 * and a row in the table of qp.c.
 */
#ifndef DP_ENGINE_QP_H
#define DP_ENGINE_QP_H

#include "engine/cq.h"
#include "engine/receives.h"
#include "wire/parse.h"

/* A send request in its queue; SGEs or inline data follow. */
struct dp_swqe {
	uint64_t wr_id;
	union {
		struct {
			uint64_t remote_addr;
			uint64_t compare_add, swap;
		};
		struct { /* UD */
			struct dp_ah *ah;
			uint32_t remote_qpn, remote_qkey;
		};
	};
	uint32_t rkey, imm;
	uint32_t len; /* bytes of the message */
	uint32_t first_psn, n_psn;
	uint32_t base;	 /* bytes before those of first_psn: sent before a change of segment */
	uint32_t rq_seq; /* messages before it that consume a receive */
	uint8_t opcode;	 /* enum dp_wr_opcode */
	uint8_t flags;	 /* enum dp_send_flags */
	uint8_t num_sge;
	bool started; /* READ, atomic: counts in rd_outstanding */
	struct dp_sge sge[];
};

/* Attributes that a change of state must and may come with, beside DP_QP_STATE. */
struct dp_qp_transition {
	uint8_t from, to;
	uint32_t required, optional; /* enum dp_qp_attr_mask */
};

struct dp_qp_ops {
	size_t bytes; /* of its struct */
	/* It takes packets of the peer in its attributes alone; otherwise each of them has a
	 * DETH. */
	bool connected;
	const struct dp_qp_transition *transitions;
	uint32_t n_transitions;
	/* After what all types have is there: 0 or an error, with nothing of its own left. */
	int (*create)(struct dp_qp *);
	void (*destroy)(struct dp_qp *);
	/* The state changes, and the attributes are in place: 0 or an error. */
	int (*modify)(struct dp_qp *, uint32_t from, uint32_t to, uint64_t now);
	/* Fills in the attributes that move. */
	void (*query)(const struct dp_qp *, struct dp_qp_attr *);
	/* Back to what it was when it was created. */
	void (*reset)(struct dp_qp *);
	/* The QP is in error and its queues are flushed: it sends nothing new. */
	void (*stop)(struct dp_qp *);
	/* The type has this request of `len` bytes, and the QP's attributes allow it. */
	bool (*accepts)(const struct dp_qp *, const struct dp_send_wr *, uint32_t len);
	/* A request that was accepted is at the end of the send queue, with what all types have. */
	void (*post)(struct dp_qp *, struct dp_swqe *, const struct dp_send_wr *);
	/* A packet for the QP, whose form and ICRC are right: 0 or why it is dropped. */
	int (*rx)(struct dp_qp *, const struct dp_packet *, const struct dp_parsed *, uint64_t now);
	/* One packet, 1; nothing to send now, 0. */
	int (*tx)(struct dp_qp *, struct dp_packet *, uint64_t now);
	/* The QP's timer has fired. */
	void (*tick)(struct dp_qp *, uint64_t now);
	/* The earliest time at which the QP wants to be looked at; DP_NEVER. */
	uint64_t (*deadline)(const struct dp_qp *, uint64_t now);
	/* The first invariant that does not hold, in words, or NULL. */
	const char *(*check)(const struct dp_qp *);
};

struct dp_qp {
	const struct dp_qp_ops *ops;
	struct dp_engine *engine;
	struct dp_event_node event;
	struct dp_timer timer;
	struct dp_qp *ready_next;
	bool ready : 1; /* in the transmit list */
	bool sq_sig_all : 1;
	bool refusing : 1;	       /* in error, and repeats the NAK that told of it */
	bool drain_notify : 1;	       /* DP_EVENT_SQ_DRAINED is still to be raised */
	bool sq_lent : 1, rq_lent : 1; /* memory of the queues is the caller's */
	uint32_t qpn, state;
	uint16_t sport;
	uint16_t sq_stride, max_send_sge, max_inline;
	struct dp_qp_attr attr;
	struct dp_pd *pd;
	struct dp_cq *send_cq, *recv_cq;
	struct dp_srq *srq; /* NULL: none */
	void *user;

	struct dp_receives rq;
	uint8_t *sq;
	uint32_t sq_mask;
	uint32_t sq_ci, sq_tx, sq_pi; /* completed, being sent, posted */
	uint32_t sq_drain;	      /* in SQD: the first request that had not begun */
	uint32_t rd_outstanding;      /* READs and atomics under way */
	struct dp_locals *locals;     /* NULL: there was none yet */
	struct dp_qp_stats stats;
};

static inline bool dp_qp_receives(const struct dp_qp *qp)
{
	return qp->state == DP_QPS_RTR || qp->state == DP_QPS_RTS || qp->state == DP_QPS_SQD ||
	       qp->state == DP_QPS_SQE;
}

static inline bool dp_qp_sends(const struct dp_qp *qp)
{
	return qp->state == DP_QPS_RTS || qp->state == DP_QPS_SQD;
}

/* What is posted to its send queue is flushed. */
static inline bool dp_qp_flushes(const struct dp_qp *qp)
{
	return qp->state == DP_QPS_ERR || qp->state == DP_QPS_SQE;
}

static inline struct dp_swqe *dp_sq(const struct dp_qp *qp, uint32_t i)
{
	return (struct dp_swqe *)(qp->sq + (size_t)(i & qp->sq_mask) * qp->sq_stride);
}

static inline bool dp_is_answered(uint8_t wr_opcode)
{
	return wr_opcode == DP_WR_RDMA_READ || wr_opcode == DP_WR_ATOMIC_CMP_AND_SWP ||
	       wr_opcode == DP_WR_ATOMIC_FETCH_AND_ADD;
}

static inline bool dp_is_atomic(uint8_t wr_opcode)
{
	return wr_opcode == DP_WR_ATOMIC_CMP_AND_SWP || wr_opcode == DP_WR_ATOMIC_FETCH_AND_ADD;
}

/* Requests that send nothing (local.c). */
static inline bool dp_is_local(uint32_t wr_opcode)
{
	return wr_opcode == DP_WR_BIND_MW || wr_opcode == DP_WR_LOCAL_INV;
}

/* -EINVAL: it cannot be done. */
int dp_post_local(struct dp_qp *, const struct dp_send_wr *);
/* Done, and behind requests that have not completed. */
uint32_t dp_locals_waiting(const struct dp_qp *);
/* Completes those that sq_ci has reached. */
void dp_locals_complete(struct dp_qp *, enum dp_wc_status);
void dp_locals_reset(struct dp_qp *);

/* False: longer than any message. */
bool dp_total_length(const struct dp_sge *, uint32_t n, uint64_t *out);
void dp_qp_to_error(struct dp_qp *, enum dp_event_type why);
/* Raises DP_EVENT_SQ_DRAINED if that is due. */
void dp_qp_drained(struct dp_qp *);
/* Completes all requests of the send queue as flushed, oldest first. */
void dp_flush_sends(struct dp_qp *);
void dp_complete_send(struct dp_qp *, const struct dp_swqe *, enum dp_wc_status);
/* Completes the oldest request of the send queue, and those behind it that send nothing. */
void dp_pop_send(struct dp_qp *, enum dp_wc_status);
/* Fails request `index` of the send queue, flushes the rest: QP in error. */
void dp_fail_send(struct dp_qp *, uint32_t index, enum dp_wc_status);

#endif
