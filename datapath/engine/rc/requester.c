// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The part of the requester that both modes share.  requester_gbn.c and requester_sr.c decide what
 * is sent and what an acknowledgement means.
 */
#include "engine/rc/requester.h"
#include "engine/rc/credit.h"
#include "engine/rc/scoreboard.h"
#include "engine/rc/stray.h"

void dp_requester_start(struct dp_rc *rc, uint64_t now)
{
	struct dp_requester *r = &rc->req;
	uint32_t psn = rc->qp.attr.sq_psn;

	memset(r, 0, sizeof(*r));
	r->snd_una = r->snd_nxt = r->snd_max = r->post_psn = r->cum = psn;
	r->segment = rc->qp.attr.path_mtu;
	r->retry_left = rc->qp.attr.retry_cnt;
	r->progress_ns = now;
}

void dp_requester_reset(struct dp_rc *rc)
{
	dp_tx_release(rc);
	dp_credit_stop(rc);
	memset(&rc->req, 0, sizeof(rc->req));
	dp_loss_timers_off(rc);
	if (rc->flow)
		dp_flow_stop(rc->flow);
}

bool dp_is_changing(const struct dp_rc *rc)
{
	if (!rc->extended)
		return rc->hello_done && !rc->probing;
	return rc->req.segment != rc->segment;
}

void dp_number(struct dp_rc *rc, struct dp_swqe *wqe)
{
	uint32_t segment = rc->req.segment, left = wqe->len - wqe->base;

	wqe->first_psn = rc->req.post_psn;
	wqe->n_psn = dp_is_atomic(wqe->opcode) || !left ? 1 : (left + segment - 1) / segment;
	rc->req.post_psn = dp_psn_add(rc->req.post_psn, wqe->n_psn);
}

/* Renumber unsent requests.  The oldest may be partly sent. */
static void renumber(struct dp_rc *rc)
{
	struct dp_requester *r = &rc->req;
	uint32_t i = rc->qp.sq_tx;

	if (i != rc->qp.sq_pi)
		dp_sq(&rc->qp, i)->base = dp_offset_of(rc, dp_sq(&rc->qp, i), r->snd_nxt);
	r->segment = rc->segment;
	if (rc->flow)
		rc->flow->mss_bytes = rc->segment;
	r->post_psn = r->snd_nxt;
	for (; i != rc->qp.sq_pi; i++)
		dp_number(rc, dp_sq(&rc->qp, i));
}

/* Changes mode and segment once nothing is under way. */
static void maybe_change(struct dp_rc *rc, uint64_t now)
{
	if (!dp_is_changing(rc) || rc->req.snd_una != rc->req.snd_max)
		return;
	if (rc->req.segment != rc->segment)
		renumber(rc);
	if (!rc->extended)
		dp_ext_start(rc, now);
}

static void end_rnr_wait(struct dp_rc *rc)
{
	rc->req.rnr_until_ns = rc->req.timer_ns = 0;
	dp_loss_timers_off(rc);
}

/* Begins a zeroed flow.  stats: NULL if it will send nothing. */
static int start_flow(const struct dp_rc *rc, struct dp_flow *f, struct dp_sender_stats *stats,
		      uint64_t now)
{
	int err = dp_flow_init(f, &rc->qp.engine->cfg, rc->cc, stats);

	if (err)
		return err;
	f->needs_grants = rc->credit;
	dp_flow_connect(f, rc->req.segment, rc->extended ? rc->window : DP_STD_WINDOW,
			(uint8_t)dp_paths(rc), now);
	return 0;
}

int dp_first_flow(const struct dp_rc *rc, struct dp_cc_flow *out)
{
	struct dp_flow f = { 0 };
	const struct dp_cc_flow *record;
	int err = start_flow(rc, &f, NULL, 0);

	if (err)
		return err;
	record = dp_flow_record(&f, out);
	if (record != out)
		*out = *record;
	dp_flow_free(&f);
	return 0;
}

static int begin_sender(struct dp_rc *rc, uint64_t now)
{
	struct dp_sender *s = rc->sender ? rc->sender : calloc(1, sizeof(*s));
	int err;

	if (!s)
		return -ENOMEM;
	rc->sender = s;
	*s = (struct dp_sender){ .reordering.quarters = 1, .stats = s->stats };
	err = start_flow(rc, &s->flow, &s->stats, now);
	if (!err)
		rc->flow = &s->flow;
	return err;
}

/* Begins the flow with the first packet.  False: no memory. */
static bool begin_flow(struct dp_rc *rc, uint64_t now)
{
	if (begin_sender(rc, now))
		dp_fail_send(&rc->qp, rc->qp.sq_tx, DP_WC_LOC_QP_OP_ERR);
	return rc->flow;
}

int dp_requester_tx(struct dp_rc *rc, struct dp_packet *out, int max, uint64_t now)
{
	int n;

	if ((rc->qp.state != DP_QPS_RTS && rc->qp.state != DP_QPS_SQD) ||
	    now < rc->req.rnr_until_ns)
		return 0;
	if (rc->req.rnr_until_ns) /* the wait is over, but the timer has not fired yet */
		end_rnr_wait(rc);
	maybe_change(rc, now);
	if (!rc->flow && (rc->qp.sq_tx == dp_send_limit(rc) || !begin_flow(rc, now)))
		return 0;
	if (!rc->extended)
		return dp_std_tx(rc, out, now);
	n = dp_ext_tx(rc, out, max, now);
	return n ? n : dp_credit_tx(rc, out, now);
}

void dp_requester_rx(struct dp_rc *rc, const struct dp_parsed *p, bool marked, uint64_t now)
{
	bool answer = p->mask & DP_IS_READ_RESP || p->atomic_ack;

	if (rc->qp.state != DP_QPS_RTS && rc->qp.state != DP_QPS_SQD)
		return;
	if (!answer)
		rc->qp.stats.acks_rx++;
	if (!rc->flow)
		return; /* nothing was sent, so the packet answers nothing */
	if (dp_is_stray_answer(rc, p, now)) {
		rc->qp.stats.duplicates++;
		return;
	}
	if (rc->extended) {
		if (!dp_op_is_ext(p->opcode))
			return; /* late: the peer sent it before the change of mode */
		if (answer)
			dp_ext_response(rc, p, marked, now);
		else
			dp_ext_ack(rc, p, now);
	} else if (answer) {
		dp_std_response(rc, p, marked, now);
	} else {
		dp_std_ack(rc, p, now);
	}
	dp_requester_wake(rc);
}

void dp_requester_wake(struct dp_rc *rc)
{
	const struct dp_tx_block *b = rc->req.block;

	if (rc->qp.sq_tx != dp_send_limit(rc) || (b && b->lost.head != DP_NIL))
		dp_qp_wake(&rc->qp);
}

void dp_requester_tick(struct dp_rc *rc, uint64_t now)
{
	struct dp_requester *r = &rc->req;

	if (r->rnr_until_ns) {
		if (now < r->rnr_until_ns)
			return;
		end_rnr_wait(rc);
	}
	if (rc->qp.state != DP_QPS_RTS && rc->qp.state != DP_QPS_SQD)
		return;
	if (rc->extended)
		dp_ext_tick(rc, now);
	else if (dp_has_expired(rc, r->timer_ns, now))
		dp_std_timeout(rc, now);
}

uint32_t dp_payload_of(const struct dp_rc *rc, const struct dp_swqe *wqe, uint32_t psn)
{
	uint32_t left = wqe->len - dp_offset_of(rc, wqe, psn);

	return left < rc->req.segment ? left : rc->req.segment;
}

bool dp_may_start(const struct dp_rc *rc, const struct dp_swqe *wqe)
{
	if (wqe->flags & DP_SEND_FENCE && rc->qp.rd_outstanding)
		return false;
	return !dp_is_answered(wqe->opcode) || rc->qp.rd_outstanding < rc->qp.attr.max_rd_atomic;
}

void dp_retire(struct dp_rc *rc)
{
	struct dp_swqe *wqe;

	while (rc->qp.sq_ci != rc->qp.sq_pi) {
		wqe = dp_sq(&rc->qp, rc->qp.sq_ci);
		if (dp_psn_diff(rc->req.snd_una, wqe->first_psn) < (int32_t)wqe->n_psn)
			break;
		dp_pop_send(&rc->qp, DP_WC_SUCCESS);
	}
	if ((int32_t)(rc->qp.sq_tx - rc->qp.sq_ci) < 0)
		rc->qp.sq_tx = rc->qp.sq_ci;
	dp_qp_drained(&rc->qp);
}

uint32_t dp_send_limit(const struct dp_rc *rc)
{
	return rc->qp.state == DP_QPS_SQD ? rc->qp.sq_drain : rc->qp.sq_pi;
}

int dp_place_response(struct dp_rc *rc, const struct dp_swqe *wqe, const struct dp_parsed *p,
		      uint32_t psn)
{
	uint32_t len = p->payload_len + p->payload2_len;
	uint64_t value;
	int err;

	if (dp_is_atomic(wqe->opcode)) {
		if (!p->atomic_ack)
			return -EINVAL;
		value = dp_get64(p->atomic_ack);
		return dp_scatter(rc->qp.pd, wqe->sge, wqe->num_sge, 0, (const uint8_t *)&value, 8);
	}
	if (p->atomic_ack)
		return -EINVAL;
	if (dp_is_confirmed(wqe->opcode))
		return len ? -EINVAL : 0;
	if (wqe->opcode != DP_WR_RDMA_READ)
		return -EINVAL;
	if (len != dp_payload_of(rc, wqe, psn))
		return -EINVAL;
	err = dp_scatter_payload(rc->qp.pd, wqe->sge, wqe->num_sge, dp_offset_of(rc, wqe, psn), p,
				 len);
	if (!err)
		rc->qp.stats.rx_bytes += len;
	return err;
}

int dp_fail_in_turn(struct dp_rc *rc, uint32_t index, enum dp_wc_status status)
{
	if (index == rc->qp.sq_ci)
		dp_fail_send(&rc->qp, index, status);
	return 0;
}

uint64_t dp_ib_timeout_ns(const struct dp_rc *rc)
{
	return rc->qp.attr.timeout ? 4096ull << rc->qp.attr.timeout : 0;
}

/* IBTA vol. 1, table 46, in units of 10 us. */
static const uint16_t rnr_timer[32] = { 0,    1,    2,	  3,	 4,	6,     8,     12,
					16,   24,   32,	  48,	 64,	96,    128,   192,
					256,  384,  512,  768,	 1024,	1536,  2048,  3072,
					4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152 };

void dp_rnr_passed(struct dp_rc *rc, uint32_t psn)
{
	if (dp_psn_diff(psn, rc->sender->rnr_psn) > 0)
		rc->req.rnr_naks = 0;
}

/* Whether an RNR NAK refuses a copy that was sent before the last wait ended: that wait was for it
 * as well.  In standard mode nobody can tell once the packet has been sent again. */
static bool has_waited(const struct dp_rc *rc, uint32_t psn, uint64_t sent_ns)
{
	return dp_psn_diff(psn, rc->sender->rnr_psn) <= 0 &&
	       (rc->req.rnr_until_ns || sent_ns < rc->sender->rnr_over_ns);
}

bool dp_rnr_wait(struct dp_rc *rc, uint32_t psn, uint8_t syndrome, uint64_t sent_ns, uint64_t now)
{
	struct dp_requester *r = &rc->req;
	uint8_t code = syndrome & DP_AETH_VALUE_MASK;

	rc->sender->stats.rnr_rx++;
	if (has_waited(rc, psn, sent_ns))
		return false;
	if (rc->qp.attr.rnr_retry != 7 && r->rnr_naks++ >= rc->qp.attr.rnr_retry) {
		dp_fail_send(&rc->qp, rc->qp.sq_ci, DP_WC_RNR_RETRY_EXC_ERR);
		return false;
	}
	r->rnr_until_ns = now + 10000ull * (code ? rnr_timer[code] : 65536);
	r->progress_ns = r->rnr_until_ns;
	rc->sender->rnr_psn = psn;
	rc->sender->rnr_over_ns = r->rnr_until_ns;
	return true;
}

enum dp_wc_status dp_nak_status(uint8_t syndrome)
{
	switch (syndrome & DP_AETH_VALUE_MASK) {
	case DP_NAK_REMOTE_ACCESS:
		return DP_WC_REM_ACCESS_ERR;
	case DP_NAK_REMOTE_OPERATION:
		return DP_WC_REM_OP_ERR;
	default:
		return DP_WC_REM_INV_REQ_ERR;
	}
}
