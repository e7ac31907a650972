// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Requester of the standard mode (IBTA vol. 1, section 9.7): cumulative
 * acknowledgements, go-back-N on a NAK or time-out, READ responses strictly in
 * order.  Bytes in flight are counted in whole packets.
 */
#include "core/internal.h"

static void count_inflight(struct dp_qp *qp)
{
	uint32_t psns = (uint32_t)dp_psn_diff(qp->req.snd_nxt, qp->req.snd_una);

	qp->flow.inflight_bytes = (uint64_t)psns * qp->attr.path_mtu;
}

static void restart_timer(struct dp_qp *qp, uint64_t now)
{
	uint64_t timeout = dp_ib_timeout_ns(qp);

	qp->req.timer_ns = timeout && qp->req.snd_una != qp->req.snd_max ? now + timeout : 0;
}

static bool wants_ack(const struct dp_qp *qp, const struct dp_swqe *wqe, uint32_t psn)
{
	const struct dp_requester *r = &qp->req;
	uint32_t ahead = (uint32_t)dp_psn_diff(psn, r->snd_una) + 1, mtu = qp->attr.path_mtu;

	if (psn == dp_psn_add(wqe->first_psn, wqe->n_psn - 1) || ahead >= DP_STD_WINDOW)
		return true;
	return r->since_ack_req + 1 >= DP_STD_ACK_EVERY ||
	       (double)(qp->flow.inflight_bytes + 2 * mtu) > qp->flow.record->cwnd_bytes;
}

static bool may_send(struct dp_qp *qp, const struct dp_swqe *wqe, uint32_t bytes, uint64_t now)
{
	struct dp_requester *r = &qp->req;

	if (r->snd_nxt == r->snd_max) {
		if (dp_is_changing(qp)) /* let the line run dry */
			return false;
		if (r->snd_nxt == wqe->first_psn && !dp_may_start(qp, wqe))
			return false;
		if (dp_psn_diff(r->snd_nxt, r->snd_una) >= DP_STD_WINDOW)
			return false;
	}
	return dp_flow_allows(qp, bytes, now);
}

static void account(struct dp_qp *qp, struct dp_swqe *wqe, uint32_t n, bool ack_req, uint64_t now)
{
	struct dp_requester *r = &qp->req;
	bool again = r->snd_nxt != r->snd_max;

	if (dp_is_answered(wqe->opcode) && !wqe->started) {
		wqe->started = true;
		r->rd_outstanding++;
	}
	r->since_ack_req = ack_req ? 0 : r->since_ack_req + 1;
	if (!again && !qp->flow.timed_ns && (ack_req || dp_is_answered(wqe->opcode))) {
		qp->flow.timed_psn = r->snd_nxt;
		qp->flow.timed_ns = now;
	}
	r->snd_nxt = dp_psn_add(r->snd_nxt, n);
	if (r->snd_nxt == dp_psn_add(wqe->first_psn, wqe->n_psn))
		qp->sq_tx++;
	if (dp_psn_diff(r->snd_nxt, r->snd_max) > 0)
		r->snd_max = r->snd_nxt;
	dp_flow_sent(qp, n * qp->attr.path_mtu, now);
	if (!r->timer_ns)
		restart_timer(qp, now);
	qp->stats.tx_packets++;
	qp->stats.retransmits += again;
}

int dp_std_tx(struct dp_qp *qp, struct dp_packet *pkt, uint64_t now)
{
	struct dp_requester *r = &qp->req;
	struct dp_swqe *wqe;
	uint32_t n = 1;
	bool ack_req;

	if (qp->sq_tx == dp_send_limit(qp))
		return 0;
	wqe = dp_sq(qp, qp->sq_tx);
	if (wqe->opcode == DP_WR_RDMA_READ)
		n = wqe->n_psn - (uint32_t)dp_psn_diff(r->snd_nxt, wqe->first_psn);
	if (!may_send(qp, wqe, n * qp->attr.path_mtu, now))
		return 0;
	ack_req = wants_ack(qp, wqe, r->snd_nxt);
	if (dp_build_request(qp, wqe, r->snd_nxt, n, ack_req, pkt, now))
		return dp_local_fault(qp);
	if (!dp_is_answered(wqe->opcode))
		qp->stats.tx_bytes += dp_payload_of(qp, wqe, r->snd_nxt);
	account(qp, wqe, n, ack_req, now);
	return 1;
}

static void go_back(struct dp_qp *qp, uint64_t now, bool congestion)
{
	struct dp_requester *r = &qp->req;
	uint64_t lost = qp->flow.inflight_bytes;

	r->snd_nxt = r->snd_una;
	qp->sq_tx = qp->sq_ci; /* what holds snd_una */
	r->since_ack_req = 0;
	qp->flow.timed_ns = 0;
	qp->flow.inflight_bytes = 0;
	if (congestion && lost) {
		struct dp_cc_loss loss = {
			.lost_bytes = (double)lost,
			.prior_delivered_bytes = (double)qp->flow.delivered_bytes,
		};

		dp_flow_loss(qp, &loss, now);
	}
}

/* All of the request lies before `psn`. */
static bool covers(const struct dp_swqe *wqe, uint32_t psn)
{
	return dp_psn_diff(psn, wqe->first_psn) >= (int32_t)wqe->n_psn;
}

/* The request that PSN `psn`, which was sent, belongs to. */
static uint32_t request_of(const struct dp_qp *qp, uint32_t psn)
{
	uint32_t i = qp->sq_ci;

	while (i != qp->sq_pi && covers(dp_sq(qp, i), psn))
		i++;
	return i;
}

/* Everything before `una` has been delivered. */
static void progress(struct dp_qp *qp, uint32_t una, uint64_t now)
{
	struct dp_requester *r = &qp->req;
	uint64_t bytes = (uint64_t)(uint32_t)dp_psn_diff(una, r->snd_una) * qp->attr.path_mtu;
	struct dp_cc_ack ack = { .acked_bytes = (double)bytes };

	if (!bytes)
		return;
	r->snd_una = una;
	if (dp_psn_diff(r->snd_nxt, una) < 0)
		r->snd_nxt = una;
	if (qp->flow.timed_ns && dp_psn_diff(qp->flow.timed_psn, una) < 0) {
		ack.rtt_ns = (double)(now - qp->flow.timed_ns);
		dp_flow_rtt(qp, now - qp->flow.timed_ns, now);
		qp->flow.timed_ns = 0;
	}
	r->retry_left = qp->attr.retry_cnt;
	r->rnr_left = qp->attr.rnr_retry;
	r->implied_nak = false;
	restart_timer(qp, now);
	ack.prior_delivered_bytes = (double)qp->flow.delivered_bytes;
	qp->flow.delivered_bytes += bytes;
	count_inflight(qp);
	dp_flow_ack(qp, &ack, now);
	while (qp->sq_tx != qp->sq_pi && covers(dp_sq(qp, qp->sq_tx), r->snd_nxt))
		qp->sq_tx++;
	dp_retire(qp);
}

/* A response is missing although a later packet was answered. */
static void implied_nak(struct dp_qp *qp, uint64_t now)
{
	if (qp->req.implied_nak)
		return;
	qp->req.implied_nak = true;
	go_back(qp, now, true);
}

/* The responder has everything before `upto`; READs and atomics among it still
 * wait for their answers.  True if one of them was passed over. */
static bool acknowledged(struct dp_qp *qp, uint32_t upto, uint64_t now)
{
	uint32_t una = qp->req.snd_una, i;
	bool passed = false;
	struct dp_swqe *wqe;

	for (i = qp->sq_ci; i != qp->sq_pi; i++) {
		wqe = dp_sq(qp, i);
		if (dp_psn_diff(upto, wqe->first_psn) <= 0)
			break;
		if (dp_is_answered(wqe->opcode)) {
			passed = dp_psn_diff(upto, wqe->first_psn) > (int32_t)wqe->n_psn;
			break;
		}
		una = dp_psn_add(wqe->first_psn, wqe->n_psn);
		if (dp_psn_diff(una, upto) > 0)
			una = upto;
	}
	if (dp_psn_diff(una, qp->req.snd_una) > 0)
		progress(qp, una, now);
	return passed;
}

/* A NAK shows that the peer lives, so a retry count of 7 stands for ever, as
 * Linux' rxe takes it; time-outs are counted always. */
static void sequence_nak(struct dp_qp *qp, uint64_t now)
{
	struct dp_requester *r = &qp->req;

	if (r->snd_nxt == r->snd_una)
		return; /* told before, and not yet sent again */
	if (!r->retry_left) {
		dp_fail_send(qp, qp->sq_ci, DP_WC_RETRY_EXC_ERR);
		return;
	}
	if (qp->attr.retry_cnt != 7)
		r->retry_left--;
	go_back(qp, now, true);
}

void dp_std_ack(struct dp_qp *qp, const struct dp_parsed *p, uint64_t now)
{
	uint8_t syndrome = dp_aeth_syndrome(p->aeth), type = syndrome & DP_AETH_TYPE_MASK;
	struct dp_requester *r = &qp->req;

	if (dp_psn_diff(p->psn, r->snd_una) < 0 || dp_psn_diff(p->psn, r->snd_max) >= 0)
		return;
	if (type == DP_AETH_ACK) {
		if (acknowledged(qp, dp_psn_add(p->psn, 1), now))
			implied_nak(qp, now);
		return;
	}
	acknowledged(qp, p->psn, now);
	if (type == DP_AETH_RNR_NAK) {
		if (dp_rnr_wait(qp, syndrome, now)) {
			go_back(qp, now, false);
			r->timer_ns = 0;
		}
		return;
	}
	qp->stats.naks_rx++;
	if ((syndrome & DP_AETH_VALUE_MASK) == DP_NAK_PSN_SEQUENCE)
		sequence_nak(qp, now);
	else
		dp_fail_send(qp, request_of(qp, p->psn), dp_nak_status(syndrome));
}

void dp_std_response(struct dp_qp *qp, const struct dp_parsed *p, uint64_t now)
{
	struct dp_requester *r = &qp->req;
	struct dp_swqe *wqe;
	uint32_t i;
	int err;

	if (dp_psn_diff(p->psn, r->snd_una) < 0 || dp_psn_diff(p->psn, r->snd_max) >= 0)
		return;
	i = request_of(qp, p->psn);
	if (i == qp->sq_pi || !dp_is_answered(dp_sq(qp, i)->opcode))
		return;
	wqe = dp_sq(qp, i);
	acknowledged(qp, wqe->first_psn, now);
	if (r->snd_una != p->psn) {
		implied_nak(qp, now);
		return;
	}
	err = dp_place_response(qp, wqe, p, p->psn);
	if (err)
		dp_fail_send(qp, i, err == -EINVAL ? DP_WC_BAD_RESP_ERR : DP_WC_LOC_PROT_ERR);
	else
		progress(qp, dp_psn_add(p->psn, 1), now);
}

void dp_std_timeout(struct dp_qp *qp, uint64_t now)
{
	struct dp_requester *r = &qp->req;

	qp->stats.timeouts++;
	if (!r->retry_left) {
		dp_fail_send(qp, qp->sq_ci, DP_WC_RETRY_EXC_ERR);
		return;
	}
	r->retry_left--;
	r->implied_nak = false;
	go_back(qp, now, false);
	dp_flow_timeout(qp, now);
	restart_timer(qp, now);
}
