/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The part that QPs of all types share, and struct dp_qp_ops, in which the types differ.
 *
 * The struct of a type begins with its struct dp_qp.  A new type is a folder beside rc/ and a row
 * in the table of qp.c.
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
			union {
				uint64_t compare_add;
				struct {
					uint8_t placement, selectivity;
					uint32_t len;
				} flush;
			};
			uint64_t swap;
		};
		struct { /* UD */
			struct dp_ah *ah;
			uint32_t remote_qpn, remote_qkey;
		};
	};
	uint32_t rkey;
	union {
		uint32_t imm, invalidate_rkey;
	};
	uint32_t len; /* bytes of the message */
	uint32_t first_psn, n_psn;
	uint32_t base;		  /* bytes in front of first_psn, sent before the segment changed */
	uint32_t rq_seq;	  /* messages before this one that consume a receive */
	uint32_t packets, resent; /* as in dp_wc */
	uint8_t opcode;		  /* enum dp_wr_opcode */
	uint8_t flags;		  /* enum dp_send_flags */
	uint8_t num_sge;
	bool started; /* READ, atomic: it is counted in rd_outstanding */
	struct dp_sge sge[];
};

/* The attributes that a change of state requires or allows, beside DP_QP_STATE. */
struct dp_qp_transition {
	uint8_t from, to;
	uint32_t required, optional; /* enum dp_qp_attr_mask */
};

struct dp_qp_ops {
	size_t bytes; /* size of the type's struct */
	/* A connected QP takes packets only from the peer in its attributes.  Otherwise every
	 * packet has a DETH, which names its sender. */
	bool connected;
	const struct dp_qp_transition *transitions;
	uint32_t n_transitions;
	/* Called when the common part is complete.  On an error it leaves nothing allocated. */
	int (*create)(struct dp_qp *);
	void (*destroy)(struct dp_qp *);
	/* Called when state and attributes are changed.  Returns 0 or an error. */
	int (*modify)(struct dp_qp *, uint32_t from, uint32_t to, uint64_t now);
	/* Fills in those attributes that change by themselves, such as PSNs. */
	void (*query)(const struct dp_qp *, struct dp_qp_attr *);
	/* Before the QP ends: what the peer may still need, such as an acknowledgement, leaves with
	 * the next tx().  NULL: it never needs anything. */
	void (*settle)(struct dp_qp *);
	/* Puts the QP back into the state after create(). */
	void (*reset)(struct dp_qp *);
	/* The QP is in error and its queues are flushed: it sends no new packets. */
	void (*stop)(struct dp_qp *);
	/* Whether the type supports this request of `len` bytes and the QP's attributes allow
	 * it. */
	bool (*accepts)(const struct dp_qp *, const struct dp_send_wr *, uint32_t len);
	/* The request was accepted and stands at the end of the send queue, with its common members
	 * set. */
	void (*post)(struct dp_qp *, struct dp_swqe *, const struct dp_send_wr *);
	/* A packet for the QP with valid form and ICRC.  Returns 0, or -errno: why it is
	 * dropped. */
	int (*rx)(struct dp_qp *, const struct dp_packet *, const struct dp_parsed *, uint64_t now);
	/* Builds packets, `max` at most.  Returns how many; 0: nothing to send now. */
	int (*tx)(struct dp_qp *, struct dp_packet *, int max, uint64_t now);
	/* The QP's timer has fired. */
	void (*tick)(struct dp_qp *, uint64_t now);
	/* The earliest time at which the QP wants its tick(); DP_NEVER: none. */
	uint64_t (*deadline)(const struct dp_qp *, uint64_t now);
	/* Adds the counters that only this type has. */
	void (*count)(const struct dp_qp *, struct dp_qp_stats *);
	/* The first invariant that does not hold, in words, or NULL. */
	const char *(*check)(const struct dp_qp *);
};

struct dp_traffic {
#define X(name) uint64_t name;
	DP_QP_TRAFFIC_COUNTERS(X)
#undef X
};

struct dp_qp {
	const struct dp_qp_ops *ops;
	struct dp_engine *engine;
	struct dp_event_node event;
	struct dp_timer timer;
	struct dp_qp *ready_next;
	bool ready : 1; /* in the transmit list */
	bool sq_sig_all : 1;
	bool refusing : 1;	       /* in error, and repeats its fatal NAK to every request */
	bool drain_notify : 1;	       /* DP_EVENT_SQ_DRAINED is still to be raised */
	bool sq_lent : 1, rq_lent : 1; /* the caller owns the memory of the queue */
	uint8_t state;		       /* enum dp_qp_state */
	uint8_t rd_outstanding;	       /* READs and atomics under way */
	uint8_t rank;		       /* of the transmit list, while it is there */
	uint32_t qpn;
	uint16_t sport;
	uint16_t sq_stride, max_send_sge, max_inline;
	struct dp_qp_attr attr;
	uint32_t sq_drain; /* in SQD: index of the first request that must wait */
	struct dp_pd *pd;
	struct dp_cq *send_cq, *recv_cq;
	struct dp_srq *srq; /* NULL: none */
	void *user;

	struct dp_receives rq;
	uint8_t *sq;
	uint32_t sq_mask;
	uint32_t sq_ci, sq_tx, sq_pi; /* oldest not completed, next to send, next to post */
	struct dp_locals *locals;     /* NULL: none was posted yet */
	struct dp_traffic stats;
};

/* A UDP source port of RoCE (annex A17.3.2) has its two top bits set; n chooses the others. */
static inline uint16_t dp_roce_sport(uint32_t n)
{
	return (uint16_t)(0xc000 | (n & 0x3fff));
}

/* DSCP << 2 of its packets. */
static inline uint8_t dp_qp_tos(const struct dp_qp *qp)
{
	return qp->attr.tos ? qp->attr.tos : qp->engine->cfg.tos;
}

static inline bool dp_qp_receives(const struct dp_qp *qp)
{
	return qp->state == DP_QPS_RTR || qp->state == DP_QPS_RTS || qp->state == DP_QPS_SQD ||
	       qp->state == DP_QPS_SQE;
}

static inline bool dp_qp_sends(const struct dp_qp *qp)
{
	return qp->state == DP_QPS_RTS || qp->state == DP_QPS_SQD;
}

/* Whether requests posted to its send queue are flushed. */
static inline bool dp_qp_flushes(const struct dp_qp *qp)
{
	return qp->state == DP_QPS_ERR || qp->state == DP_QPS_SQE;
}

static inline struct dp_swqe *dp_sq(const struct dp_qp *qp, uint32_t i)
{
	return (struct dp_swqe *)(qp->sq + (size_t)(i & qp->sq_mask) * qp->sq_stride);
}

/* Requests whose answer is a value. */
static inline bool dp_is_atomic(uint8_t wr_opcode)
{
	return wr_opcode == DP_WR_ATOMIC_CMP_AND_SWP || wr_opcode == DP_WR_ATOMIC_FETCH_AND_ADD;
}

/* Requests whose answer is a READ response of no bytes. */
static inline bool dp_is_confirmed(uint8_t wr_opcode)
{
	return wr_opcode == DP_WR_FLUSH || wr_opcode == DP_WR_ATOMIC_WRITE;
}

/* Requests that an acknowledgement alone does not complete. */
static inline bool dp_is_answered(uint8_t wr_opcode)
{
	return wr_opcode == DP_WR_RDMA_READ || dp_is_atomic(wr_opcode) ||
	       dp_is_confirmed(wr_opcode);
}

/* Requests that send nothing (local.c). */
static inline bool dp_is_local(uint32_t wr_opcode)
{
	return wr_opcode == DP_WR_BIND_MW || wr_opcode == DP_WR_LOCAL_INV;
}

/* Executes those of the requests that send nothing: all of them or, on an error, none.  -EINVAL: one
 * cannot be done. */
int dp_locals_run(struct dp_qp *, const struct dp_send_wr *, uint32_t n);
/* Completes such a request in its turn. */
void dp_locals_post(struct dp_qp *, const struct dp_send_wr *);
/* Requests that were executed and wait for the completion of those before them. */
uint32_t dp_locals_waiting(const struct dp_qp *);
/* Completes the waiting requests that sq_ci has reached. */
void dp_locals_complete(struct dp_qp *, enum dp_wc_status);
void dp_locals_reset(struct dp_qp *);

/* Sum of the lengths of an SGE list.  False: longer than any message may be. */
bool dp_total_length(const struct dp_sge *, uint32_t n, uint64_t *out);
void dp_qp_to_error(struct dp_qp *, enum dp_event_type why);
/* Sends from another UDP source port from now on, if the device's port may choose. */
void dp_qp_next_sport(struct dp_qp *);
/* Raises DP_EVENT_SQ_DRAINED when the send queue has drained. */
void dp_qp_drained(struct dp_qp *);
/* Completes all requests of the send queue as flushed, oldest first. */
void dp_flush_sends(struct dp_qp *);
void dp_complete_send(struct dp_qp *, const struct dp_swqe *, enum dp_wc_status);
/* Completes the oldest request of the send queue, and the local requests that waited for it. */
void dp_pop_send(struct dp_qp *, enum dp_wc_status);
/* Fails request `index` of the send queue and flushes the rest.  The QP goes to error. */
void dp_fail_send(struct dp_qp *, uint32_t index, enum dp_wc_status);

#endif
