// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/rc/placing.h"

#include "engine/place.h"
#include "engine/rc/received.h"

/* How the bytes of one packet get into memory. */
struct placing {
	struct dp_put put;
	struct dp_rc *rc;
	uint64_t psn;	      /* as a number that does not wrap */
	bool ahead;	      /* packets of lower PSNs may still come */
	uint32_t body, whole; /* its bytes, without and with those held back; whole is 0 if they
			       * do not lie in one piece */
	bool failed;	      /* there was no memory */
};

static void put_around(struct placing *w, uint8_t *to, const uint8_t *from, uint32_t len)
{
	struct dp_spans *spans = &w->rc->resp.block->spans;
	uint64_t start = (uintptr_t)to, end = start + len;
	struct dp_placed p = { .psn = w->psn, .from = start };

	for (; p.from < end && !w->failed; p.from = p.end) {
		p.end = dp_spans_free(spans, w->psn, &p.from, end);
		if (p.from == end)
			return;
		p.whole = p.end - p.from == w->body ? w->whole : 0;
		w->failed = w->ahead &&
			    !dp_spans_take(w->rc->qp.engine, spans, &p, w->rc->resp.expected);
		if (!w->failed)
			dp_place(to + (p.from - start), from + (p.from - start), p.end - p.from);
	}
}

static void put(struct dp_put *base, uint8_t *to, const uint8_t *from, uint32_t len)
{
	struct placing *w = container_of(base, struct placing, put);
	const struct dp_rx_block *block = w->rc->resp.block;

	if (w->ahead || (block && dp_spans_above(&block->spans, w->psn)))
		put_around(w, to, from, len);
	else
		dp_place(to, from, len);
}

static struct placing placing(struct dp_rc *rc, uint32_t psn)
{
	int32_t ahead = dp_psn_diff(psn, rc->resp.epsn);

	return (struct placing){ .put = { put },
				 .rc = rc,
				 .psn = rc->resp.expected + (uint64_t)ahead,
				 .ahead = ahead > 0 };
}

/* ---- packets --------------------------------------------------------------------------------- */

struct dp_rwqe *dp_recv_of(struct dp_rc *rc, uint32_t rq_seq)
{
	return dp_receive(&rc->qp, rq_seq - rc->resp.rq_seq);
}

static int place_send(struct dp_rc *rc, const struct dp_parsed *p, const struct dp_held *h,
		      struct placing *w)
{
	struct dp_rwqe *wqe = dp_recv_of(rc, h->rq_seq);

	if (!wqe)
		return dp_rnr_syndrome(rc);
	if (h->offset > wqe->len || w->whole > wqe->len - h->offset)
		return DP_NAK(DP_NAK_INVALID_REQUEST);
	if (wqe->num_sge > 1)
		w->whole = 0;
	if (dp_receive_payload(&rc->qp, wqe, h->offset, p, w->body, &w->put))
		return DP_NAK(DP_NAK_REMOTE_OPERATION);
	return 0;
}

/* The RETH of an extended WRITE gives the packet's own address and the length
 * of the whole message. */
static int place_write(struct dp_rc *rc, const struct dp_parsed *p, const struct dp_held *h,
		       struct placing *w)
{
	uint32_t first = w->body < p->payload_len ? w->body : p->payload_len;
	uint8_t *to;

	if (!(rc->qp.attr.access & DP_ACCESS_REMOTE_WRITE) || h->len > DP_MSG_MAX ||
	    h->offset > h->len || w->whole > h->len - h->offset)
		return DP_NAK(DP_NAK_INVALID_REQUEST);
	if (p->imm && !dp_recv_of(rc, h->rq_seq))
		return dp_rnr_syndrome(rc);
	to = dp_remote_reach(&rc->qp, h->rkey, h->va - h->offset, h->len, DP_ACCESS_REMOTE_WRITE);
	if (!to)
		return DP_NAK(DP_NAK_REMOTE_ACCESS);
	if (!p->payload) /* the packet carries its length only */
		return 0;
	put(&w->put, to + h->offset, p->payload, first);
	if (w->body > first)
		put(&w->put, to + h->offset + first, p->payload2, w->body - first);
	return 0;
}

int dp_place_packet(struct dp_rc *rc, const struct dp_parsed *p, const struct dp_held *h,
		    uint32_t tail)
{
	uint32_t whole = p->payload_len + p->payload2_len;
	struct placing w = placing(rc, p->psn);
	int err;

	if (whole > dp_segment_limit(rc))
		return DP_NAK(DP_NAK_INVALID_REQUEST);
	w.body = whole - tail;
	w.whole = whole;
	err = p->mask & DP_IS_SEND ? place_send(rc, p, h, &w) : place_write(rc, p, h, &w);
	if (w.failed)
		return -ENOMEM;
	if (!err)
		rc->qp.stats.rx_bytes += whole;
	return err;
}

int dp_place_tail(struct dp_rc *rc, const struct dp_held *h)
{
	struct placing w = placing(rc, rc->resp.epsn);
	struct dp_rwqe *wqe;
	uint8_t *to;

	if (!h->tail_len || rc->qp.engine->cfg.no_payload)
		return 0;
	if (dp_opcodes[h->opcode].mask & DP_IS_SEND) {
		wqe = dp_receive(&rc->qp, 0);
		return dp_receive_fill(&rc->qp, wqe, h->offset, h->tail, h->tail_len, &w.put) ?
			       DP_NAK(DP_NAK_REMOTE_OPERATION) :
			       0;
	}
	to = dp_remote_reach(&rc->qp, h->rkey, h->va, h->tail_len, DP_ACCESS_REMOTE_WRITE);
	if (!to)
		return DP_NAK(DP_NAK_REMOTE_ACCESS);
	put(&w.put, to, h->tail, h->tail_len);
	return 0;
}
