// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Reliable connections as a type of QP. */
#include "engine/rc/rc.h"

#include "engine/rc/bundle.h"
#include "engine/rc/cnp.h"
#include "engine/rc/credit.h"
#include "engine/rc/loss.h"
#include "engine/rc/negotiate.h"
#include "engine/rc/requester.h"
#include "engine/rc/responder.h"
#include "engine/rc/stray.h"

#define CONNECT                                                                                    \
	(DP_QP_AV | DP_QP_PATH_MTU | DP_QP_DEST_QPN | DP_QP_RQ_PSN | DP_QP_MAX_DEST_RD_ATOMIC |    \
	 DP_QP_MIN_RNR_TIMER)
#define SEND                                                                                       \
	(DP_QP_TIMEOUT | DP_QP_RETRY_CNT | DP_QP_RNR_RETRY | DP_QP_SQ_PSN | DP_QP_MAX_QP_RD_ATOMIC)

/* Optional in each transition from RTR on. */
#define ALWAYS (DP_QP_ACCESS_FLAGS | DP_QP_MIN_RNR_TIMER)

static const struct dp_qp_transition transitions[] = {
	{ DP_QPS_RESET, DP_QPS_INIT, DP_QP_PKEY_INDEX | DP_QP_PORT | DP_QP_ACCESS_FLAGS, 0 },
	{ DP_QPS_INIT, DP_QPS_INIT, 0, DP_QP_PKEY_INDEX | DP_QP_PORT | DP_QP_ACCESS_FLAGS },
	{ DP_QPS_INIT, DP_QPS_RTR, CONNECT, DP_QP_PKEY_INDEX | DP_QP_ACCESS_FLAGS },
	{ DP_QPS_RTR, DP_QPS_RTS, SEND, DP_QP_CUR_STATE | ALWAYS },
	{ DP_QPS_RTS, DP_QPS_RTS, 0, DP_QP_CUR_STATE | ALWAYS },
	{ DP_QPS_RTS, DP_QPS_SQD, 0, DP_QP_EN_SQD_ASYNC_NOTIFY },
	{ DP_QPS_SQD, DP_QPS_SQD, 0,
	  ALWAYS | DP_QP_PKEY_INDEX | DP_QP_PORT | DP_QP_AV | DP_QP_TIMEOUT | DP_QP_RETRY_CNT |
		  DP_QP_RNR_RETRY | DP_QP_MAX_QP_RD_ATOMIC | DP_QP_MAX_DEST_RD_ATOMIC },
	{ DP_QPS_SQD, DP_QPS_RTS, 0, DP_QP_CUR_STATE | ALWAYS },
};

/* ---- life cycle ------------------------------------------------------------ */

static int rc_create(struct dp_qp *qp)
{
	const struct dp_engine *e = qp->engine;
	struct dp_rc *rc = dp_rc_of(qp);
	int err = dp_flow_takes(e->cfg.cc) ? 0 : -EINVAL;

	rc->cc = e->cfg.cc;
	if (!err && e->cfg.telemetry) {
		rc->echo = calloc(1, sizeof(*rc->echo));
		err = rc->echo ? 0 : -ENOMEM;
	}
	if (!err)
		err = dp_store_reserve(e->store);
	if (err)
		free(rc->echo);
	return err;
}

static void end_flow(struct dp_rc *rc)
{
	if (rc->flow)
		dp_flow_free(rc->flow);
	rc->flow = NULL;
}

static void rc_destroy(struct dp_qp *qp)
{
	struct dp_rc *rc = dp_rc_of(qp);

	dp_grants_close(rc);
	dp_credit_close(rc);
	dp_store_release(qp->engine->store);
	end_flow(rc);
	free(rc->sender);
	free(rc->echo);
}

static void rc_settle(struct dp_qp *qp)
{
	struct dp_rc *rc = dp_rc_of(qp);

	if (rc->resp.msn && qp->state != DP_QPS_ERR)
		dp_ack_soon(rc);
}

/* Of the connection that ends nothing stays: what is kept belongs to the QP. */
static void rc_reset(struct dp_qp *qp)
{
	struct dp_rc *rc = dp_rc_of(qp);
	struct {
		struct dp_sender *sender;
		struct dp_echo *echo;
		const struct dp_cc_algo *cc;
	} kept = { rc->sender, rc->echo, rc->cc };

	dp_requester_reset(rc);
	dp_responder_reset(rc);
	dp_grants_close(rc);
	dp_credit_close(rc);
	end_flow(rc);
	if (kept.echo)
		memset(kept.echo, 0, sizeof(*kept.echo));
	memset((uint8_t *)rc + sizeof(rc->qp), 0, sizeof(*rc) - sizeof(rc->qp));
	rc->sender = kept.sender;
	rc->echo = kept.echo;
	rc->cc = kept.cc;
}

static void rc_stop(struct dp_qp *qp)
{
	struct dp_rc *rc = dp_rc_of(qp);

	rc->hello_ns = 0;
	rc->hello_reply = rc->hello_again = rc->probing = false;
	rc->probe_reply = 0;
	dp_grants_close(rc);
	dp_requester_reset(rc);
}

/* Messages that have begun are finished; the others wait for RTS. */
static void start_draining(struct dp_rc *rc)
{
	const struct dp_swqe *wqe;
	uint32_t i;

	for (i = rc->qp.sq_ci; i != rc->qp.sq_pi; i++) {
		wqe = dp_sq(&rc->qp, i);
		if (!wqe->base && dp_psn_diff(rc->req.snd_max, wqe->first_psn) <= 0)
			break;
	}
	rc->qp.sq_drain = i;
}

static int rc_modify(struct dp_qp *qp, uint32_t from, uint32_t to, uint64_t now)
{
	struct dp_rc *rc = dp_rc_of(qp);

	if (from == DP_QPS_INIT && to == DP_QPS_RTR) {
		dp_responder_start(rc);
		dp_grants_open(rc);
		rc->segment = (uint16_t)qp->attr.path_mtu;
		rc->req.segment = rc->segment;
		rc->window = qp->engine->cfg.window_psns;
		dp_stray_start(rc, now);
		dp_negotiate_start(rc, now);
	} else if (from == DP_QPS_RTR && to == DP_QPS_RTS) {
		dp_requester_start(rc, now);
	} else if (from == DP_QPS_RTS && to == DP_QPS_SQD) {
		start_draining(rc);
	}
	return 0;
}

static void rc_query(const struct dp_qp *qp, struct dp_qp_attr *out)
{
	const struct dp_rc *rc = dp_rc_of_const(qp);

	out->sq_psn = rc->req.snd_nxt;
	out->rq_psn = rc->resp.epsn;
}

static void rc_count(const struct dp_qp *qp, struct dp_qp_stats *out)
{
	const struct dp_sender *s = dp_rc_of_const(qp)->sender;

	if (!s)
		return;
#define X(name) out->name = s->stats.name;
	DP_QP_SENDER_COUNTERS(X)
	DP_QP_PEAKS(X)
#undef X
}

/* ---- requests posted --------------------------------------------------------- */

enum {
	POST_INLINE_OK = 1,
	POST_CONSUMES_RECV = 2,
};

static const struct {
	bool known;
	uint8_t traits;
} requests[] = {
	[DP_WR_RDMA_WRITE] = { true, POST_INLINE_OK },
	[DP_WR_RDMA_WRITE_WITH_IMM] = { true, POST_INLINE_OK | POST_CONSUMES_RECV },
	[DP_WR_SEND] = { true, POST_INLINE_OK | POST_CONSUMES_RECV },
	[DP_WR_SEND_WITH_IMM] = { true, POST_INLINE_OK | POST_CONSUMES_RECV },
	[DP_WR_SEND_WITH_INV] = { true, POST_INLINE_OK | POST_CONSUMES_RECV },
	[DP_WR_RDMA_READ] = { true, 0 },
	[DP_WR_ATOMIC_CMP_AND_SWP] = { true, 0 },
	[DP_WR_ATOMIC_FETCH_AND_ADD] = { true, 0 },
	[DP_WR_FLUSH] = { true, 0 },
	[DP_WR_ATOMIC_WRITE] = { true, POST_INLINE_OK },
};

static bool has_fixed_length(uint32_t opcode)
{
	return dp_is_atomic((uint8_t)opcode) || dp_is_confirmed((uint8_t)opcode);
}

static bool rc_accepts(const struct dp_qp *qp, const struct dp_send_wr *wr, uint32_t len)
{
	if (dp_is_local(wr->opcode))
		return !wr->num_sge;
	if (wr->opcode >= ARRAY_SIZE(requests) || !requests[wr->opcode].known)
		return false;
	if (wr->flags & DP_SEND_INLINE && !(requests[wr->opcode].traits & POST_INLINE_OK))
		return false;
	if (has_fixed_length(wr->opcode) && len != (wr->opcode == DP_WR_FLUSH ? 0 : 8))
		return false;
	if (wr->opcode == DP_WR_ATOMIC_WRITE && wr->remote_addr & 7)
		return false;
	return !dp_is_answered((uint8_t)wr->opcode) || qp->attr.max_rd_atomic ||
	       qp->state == DP_QPS_ERR;
}

static void rc_post(struct dp_qp *qp, struct dp_swqe *wqe, const struct dp_send_wr *wr)
{
	struct dp_rc *rc = dp_rc_of(qp);

	wqe->remote_addr = wr->remote_addr;
	wqe->compare_add = wr->compare_add;
	wqe->swap = wr->swap;
	if (wr->opcode == DP_WR_FLUSH) {
		wqe->flush.placement = wr->placement;
		wqe->flush.selectivity = wr->selectivity;
		wqe->flush.len = wr->flush_len;
	}
	dp_number(rc, wqe);
	wqe->rq_seq = rc->req.post_rq_seq;
	if (requests[wqe->opcode].traits & POST_CONSUMES_RECV)
		rc->req.post_rq_seq++;
}

/* ---- packets ------------------------------------------------------------------- */

static bool is_marked(const struct dp_packet *pkt)
{
	return (pkt->tos & DP_ECN_MASK) == DP_ECN_CE;
}

static void message_rx(struct dp_rc *rc, const struct dp_packet *pkt, const struct dp_parsed *p,
		       uint64_t now)
{
	uint64_t before = rc->qp.stats.rx_bytes;

	dp_reorder_rx(rc, pkt, p, now);
	dp_grants_data(rc, p, rc->qp.stats.rx_bytes - before, is_marked(pkt), now);
}

static void extended_rx(struct dp_rc *rc, const struct dp_packet *pkt, const struct dp_parsed *p,
			uint64_t now)
{
	struct dp_unbundling u;

	dp_negotiate_again(rc, now);
	if (dp_is_stray_request(rc, p, now)) {
		rc->qp.stats.duplicates++;
	} else if (!(p->mask & DP_IS_BUNDLE)) {
		message_rx(rc, pkt, p, now);
	} else if (!dp_unbundle(&u, p)) {
		rc->qp.engine->stats.drop_malformed++;
	} else {
		while (rc->qp.state != DP_QPS_ERR && (p = dp_unbundle_next(&u)))
			message_rx(rc, pkt, p, now);
	}
}

static void dispatch(struct dp_rc *rc, const struct dp_packet *pkt, const struct dp_parsed *p,
		     uint64_t now)
{
	struct dp_qp *qp = &rc->qp;

	if (qp->state == DP_QPS_ERR) {
		if (p->mask & DP_IS_REQUEST) {
			rc->resp.ack_now = true;
			dp_qp_wake(qp);
		}
		return;
	}
	if (qp->state == DP_QPS_RTR && !rc->comm_est && p->mask & DP_IS_REQUEST) {
		rc->comm_est = true;
		dp_raise(qp->engine, &qp->event, DP_EVENT_COMM_EST);
	}
	if (p->handed_on && !p->hello)
		dp_negotiate_handed_on(rc);
	if (p->hello || p->mask & DP_IS_PROBE)
		dp_negotiate_rx(rc, p, now);
	else if (p->mask & (DP_HAS_DEMAND | DP_HAS_GRANT | DP_HAS_CREDIT))
		dp_credit_rx(rc, p, now);
	else if (p->mask & DP_IS_CNP)
		dp_cnp_rx(rc, now);
	else if (p->mask & DP_IS_REQUEST && p->xdh)
		extended_rx(rc, pkt, p, now);
	else if (p->mask & DP_IS_REQUEST)
		dp_responder_rx(rc, pkt, p, now);
	else
		dp_requester_rx(rc, p, is_marked(pkt), now);
}

/* A trimmed packet proves nothing, as it has no ICRC.  So its only effect is that the PSN is sent
 * again. */
static int trimmed_rx(struct dp_rc *rc, const struct dp_parsed *p, uint64_t now)
{
	if (!rc->hello_done || rc->qp.state == DP_QPS_ERR)
		return -EPROTO;
	rc->qp.stats.trimmed++;
	if (p->mask & DP_IS_REQUEST) {
		dp_reorder_trimmed(rc, p, now);
		dp_grants_data(rc, p, 0, false, now);
	} else if (rc->extended) {
		dp_ext_trimmed(rc, p->psn, now);
	}
	return 0;
}

/* Whether the peer is told of a mark by a CNP.  In extended mode responses count for this end's own
 * algorithm, which asks for them. */
static bool is_notified(const struct dp_rc *rc, const struct dp_parsed *p)
{
	return p->mask & DP_IS_REQUEST || (p->mask & DP_IS_READ_RESP && !rc->extended);
}

static int rc_rx(struct dp_qp *qp, const struct dp_packet *pkt, const struct dp_parsed *p,
		 uint64_t now)
{
	if (p->cut)
		return trimmed_rx(dp_rc_of(qp), p, now);
	if (is_marked(pkt) && is_notified(dp_rc_of(qp), p) && dp_qp_receives(qp))
		dp_cnp_marked(dp_rc_of(qp), now);
	dispatch(dp_rc_of(qp), pkt, p, now);
	return 0;
}

static int rc_tx(struct dp_qp *qp, struct dp_packet *out, int max, uint64_t now)
{
	struct dp_rc *rc = dp_rc_of(qp);

	if (!dp_qp_receives(qp) && !qp->refusing)
		return 0;
	if (dp_cnp_tx(rc, out) || dp_responder_tx(rc, out, now) || dp_grants_tx(rc, out))
		return 1;
	if (!dp_qp_receives(qp))
		return 0;
	return dp_negotiate_tx(rc, out, now) ? 1 : dp_requester_tx(rc, out, max, now);
}

/* ---- time ------------------------------------------------------------------------ */

static void rc_tick(struct dp_qp *qp, uint64_t now)
{
	struct dp_rc *rc = dp_rc_of(qp);

	dp_responder_tick(rc, now);
	dp_requester_tick(rc, now);
	dp_credit_tick(rc, now);
	if (rc->flow && dp_qp_sends(qp)) {
		dp_flow_tick(rc->flow, now);
		dp_flow_turn(rc->flow, now);
	}
	if (rc->hello_ns && now >= rc->hello_ns)
		dp_qp_wake(qp);
	dp_requester_wake(rc);
}

static void earlier(uint64_t *min, uint64_t t)
{
	if (t && t < *min)
		*min = t;
}

static uint64_t rc_deadline(const struct dp_qp *qp, uint64_t now)
{
	const struct dp_rc *rc = dp_rc_of_const(qp);
	const struct dp_requester *r = &rc->req;
	uint64_t min = DP_NEVER;

	if (r->rnr_until_ns) {
		earlier(&min, r->rnr_until_ns);
	} else {
		earlier(&min, r->timer_ns);
		earlier(&min, rc->sender ? rc->sender->tlp_ns : 0);
		earlier(&min, rc->sender ? rc->sender->reorder_ns : 0);
	}
	earlier(&min, rc->resp.ack_ns);
	if (rc->hello_ns > now)
		earlier(&min, rc->hello_ns);
	if (rc->credit)
		earlier(&min, rc->credit->ask_ns);
	if (rc->flow && rc->flow->paced)
		earlier(&min, rc->flow->next_tx_ns);
	if (rc->flow && dp_qp_sends(qp))
		earlier(&min, dp_flow_wake_ns(rc->flow));
	return min;
}

const struct dp_qp_ops dp_rc_ops = {
	.bytes = sizeof(struct dp_rc),
	.connected = true,
	.transitions = transitions,
	.n_transitions = ARRAY_SIZE(transitions),
	.create = rc_create,
	.destroy = rc_destroy,
	.modify = rc_modify,
	.query = rc_query,
	.settle = rc_settle,
	.reset = rc_reset,
	.stop = rc_stop,
	.accepts = rc_accepts,
	.post = rc_post,
	.rx = rc_rx,
	.tx = rc_tx,
	.tick = rc_tick,
	.deadline = rc_deadline,
	.count = rc_count,
	.check = dp_rc_check,
};

/* ---- what is of connections alone ---------------------------------------------------- */

static bool is_rc(const struct dp_qp *qp)
{
	return qp->ops == &dp_rc_ops;
}

int dp_qp_set_cc(struct dp_qp *qp, const struct dp_cc_algo *algo, uint64_t now)
{
	struct dp_rc *rc = dp_rc_of(qp);
	int err;

	if (!is_rc(qp))
		return -EOPNOTSUPP;
	if (rc->flow)
		err = dp_flow_replace(rc->flow, algo, now);
	else
		err = dp_flow_takes(algo) ? 0 : -EINVAL;
	if (err)
		return err;
	rc->cc = algo;
	dp_grants_close(rc); /* its records are those of the algorithm before */
	dp_requester_wake(rc);
	return 0;
}

const struct dp_cc_flow *dp_qp_flow(const struct dp_qp *qp)
{
	const struct dp_rc *rc = dp_rc_of_const(qp);

	if (!is_rc(qp) || !qp->attr.path_mtu)
		return NULL;
	if (rc->flow)
		return dp_flow_record(rc->flow, &qp->engine->constant_flow);
	return dp_first_flow(rc, &qp->engine->constant_flow) ? NULL : &qp->engine->constant_flow;
}

int dp_qp_extended(const struct dp_qp *qp)
{
	return is_rc(qp) && dp_rc_of_const(qp)->hello_done;
}

uint32_t dp_qp_segment(const struct dp_qp *qp)
{
	return is_rc(qp) ? dp_rc_of_const(qp)->req.segment : qp->engine->cfg.path_mtu_max;
}
