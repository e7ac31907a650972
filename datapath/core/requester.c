// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The requester: what both modes have in common.  standard.c and extended.c
 * decide what is sent and what an acknowledgement means.
 */
#include "core/internal.h"

void dp_requester_start(struct dp_qp *qp, uint64_t now)
{
	struct dp_requester *r = &qp->req;
	uint32_t psn = qp->attr.sq_psn;

	memset(r, 0, sizeof(*r));
	r->snd_una = r->snd_nxt = r->snd_max = r->post_psn = r->cum = psn;
	r->segment = qp->attr.path_mtu;
	r->retry_left = qp->attr.retry_cnt;
	r->rnr_left = qp->attr.rnr_retry;
	r->reo_mult = 1;
	r->progress_ns = now;
}

void dp_requester_reset(struct dp_qp *qp)
{
	if (qp->req.block)
		dp_pool_put(&qp->engine->store->tx, qp->req.block);
	memset(&qp->req, 0, sizeof(qp->req));
	qp->flow.inflight_bytes = 0;
	qp->flow.paced = false;
	qp->flow.late_ns = 0;
}

bool dp_is_changing(const struct dp_qp *qp)
{
	if (!qp->extended)
		return qp->hello_done && !qp->probing;
	return qp->req.segment != qp->segment;
}

/* What is not sent yet gets its PSNs anew; of the oldest, a part may be sent. */
static void renumber(struct dp_qp *qp)
{
	struct dp_requester *r = &qp->req;
	uint32_t i = qp->sq_tx;

	if (i != qp->sq_pi)
		dp_sq(qp, i)->base = dp_offset_of(qp, dp_sq(qp, i), r->snd_nxt);
	r->segment = qp->segment;
	r->post_psn = r->snd_nxt;
	for (; i != qp->sq_pi; i++)
		dp_number(qp, dp_sq(qp, i));
}

/* Changes mode and segment when nothing is under way. */
static void maybe_change(struct dp_qp *qp, uint64_t now)
{
	if (!dp_is_changing(qp) || qp->req.snd_una != qp->req.snd_max)
		return;
	if (qp->req.segment != qp->segment)
		renumber(qp);
	if (!qp->extended)
		dp_ext_start(qp, now);
}

static void end_rnr_wait(struct dp_requester *r)
{
	r->rnr_until_ns = r->timer_ns = r->tlp_ns = r->reorder_ns = 0;
}

int dp_requester_tx(struct dp_qp *qp, struct dp_packet *pkt, uint64_t now)
{
	if ((qp->state != DP_QPS_RTS && qp->state != DP_QPS_SQD) || now < qp->req.rnr_until_ns)
		return 0;
	if (qp->req.rnr_until_ns) /* over, and the clock has not said so yet */
		end_rnr_wait(&qp->req);
	maybe_change(qp, now);
	return qp->extended ? dp_ext_tx(qp, pkt, now) : dp_std_tx(qp, pkt, now);
}

void dp_requester_rx(struct dp_qp *qp, const struct dp_parsed *p, uint64_t now)
{
	bool answer = p->mask & DP_IS_READ_RESP || p->atomic_ack;

	if (qp->state != DP_QPS_RTS && qp->state != DP_QPS_SQD)
		return;
	if (!answer)
		qp->stats.acks_rx++;
	if (qp->extended) {
		if (!dp_op_is_ext(p->opcode))
			return; /* late, from before the change of mode */
		if (answer)
			dp_ext_response(qp, p, now);
		else
			dp_ext_ack(qp, p, now);
	} else if (answer) {
		dp_std_response(qp, p, now);
	} else {
		dp_std_ack(qp, p, now);
	}
	dp_requester_wake(qp);
}

void dp_requester_wake(struct dp_qp *qp)
{
	const struct dp_tx_block *b = qp->req.block;

	if (qp->sq_tx != dp_send_limit(qp) || (b && b->lost.head != DP_NIL))
		dp_qp_wake(qp);
}

void dp_requester_tick(struct dp_qp *qp, uint64_t now)
{
	struct dp_requester *r = &qp->req;

	if (r->rnr_until_ns) {
		if (now < r->rnr_until_ns)
			return;
		end_rnr_wait(r);
	}
	if (qp->state != DP_QPS_RTS && qp->state != DP_QPS_SQD)
		return;
	if (qp->extended)
		dp_ext_tick(qp, now);
	else if (r->timer_ns && now >= r->timer_ns)
		dp_std_timeout(qp, now);
}

uint32_t dp_payload_of(const struct dp_qp *qp, const struct dp_swqe *wqe, uint32_t psn)
{
	uint32_t left = wqe->len - dp_offset_of(qp, wqe, psn);

	return left < qp->req.segment ? left : qp->req.segment;
}

bool dp_may_start(const struct dp_qp *qp, const struct dp_swqe *wqe)
{
	if (wqe->flags & DP_SEND_FENCE && qp->req.rd_outstanding)
		return false;
	return !dp_is_answered(wqe->opcode) || qp->req.rd_outstanding < qp->attr.max_rd_atomic;
}

void dp_retire(struct dp_qp *qp)
{
	struct dp_swqe *wqe;

	for (; qp->sq_ci != qp->sq_pi; qp->sq_ci++) {
		wqe = dp_sq(qp, qp->sq_ci);
		if (dp_psn_diff(qp->req.snd_una, wqe->first_psn) < (int32_t)wqe->n_psn)
			break;
		dp_complete_send(qp, wqe, DP_WC_SUCCESS);
	}
	if ((int32_t)(qp->sq_tx - qp->sq_ci) < 0)
		qp->sq_tx = qp->sq_ci;
	dp_qp_drained(qp);
}

uint32_t dp_send_limit(const struct dp_qp *qp)
{
	return qp->state == DP_QPS_SQD ? qp->sq_drain : qp->sq_pi;
}

int dp_place_response(struct dp_qp *qp, const struct dp_swqe *wqe, const struct dp_parsed *p,
		      uint32_t psn)
{
	uint32_t len = p->payload_len + p->payload2_len;
	uint64_t value;

	if (dp_is_atomic(wqe->opcode)) {
		if (!p->atomic_ack)
			return -EINVAL;
		value = dp_get64(p->atomic_ack);
		return dp_scatter(qp->pd, wqe->sge, wqe->num_sge, 0, (const uint8_t *)&value, 8);
	}
	if (wqe->opcode != DP_WR_RDMA_READ || p->atomic_ack)
		return -EINVAL;
	if (len != dp_payload_of(qp, wqe, psn))
		return -EINVAL;
	qp->stats.rx_bytes += len;
	return dp_scatter_payload(qp->pd, wqe->sge, wqe->num_sge, dp_offset_of(qp, wqe, psn), p,
				  len);
}

int dp_local_fault(struct dp_qp *qp)
{
	if (qp->sq_tx == qp->sq_ci)
		dp_fail_send(qp, qp->sq_tx, DP_WC_LOC_PROT_ERR);
	return 0;
}

uint64_t dp_ib_timeout_ns(const struct dp_qp *qp)
{
	return qp->attr.timeout ? 4096ull << qp->attr.timeout : 0;
}

/* IBTA vol. 1, table 46, in units of 10 us. */
static const uint16_t rnr_timer[32] = { 0,    1,    2,	  3,	 4,	6,     8,     12,
					16,   24,   32,	  48,	 64,	96,    128,   192,
					256,  384,  512,  768,	 1024,	1536,  2048,  3072,
					4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152 };

/* The peer has no receive: false if the QP has waited often enough. */
bool dp_rnr_wait(struct dp_qp *qp, uint8_t syndrome, uint64_t now)
{
	struct dp_requester *r = &qp->req;
	uint8_t code = syndrome & DP_AETH_VALUE_MASK;

	qp->stats.rnr_rx++;
	if (qp->attr.rnr_retry != 7) {
		if (!r->rnr_left) {
			dp_fail_send(qp, qp->sq_ci, DP_WC_RNR_RETRY_EXC_ERR);
			return false;
		}
		r->rnr_left--;
	}
	r->rnr_until_ns = now + 10000ull * (code ? rnr_timer[code] : 65536);
	r->progress_ns = r->rnr_until_ns;
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
