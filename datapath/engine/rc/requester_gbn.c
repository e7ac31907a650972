// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Requester of the standard mode (IBTA vol. 1, section 9.7): cumulative
 * acknowledgements, go-back-N on a NAK or time-out, READ responses strictly in
 * order.  Bytes in flight are counted in whole packets.
 */
#include "engine/rc/packets.h"
#include "engine/rc/requester.h"

/* How often the time-out is doubled at most. */
#define STRETCH_MOST 2

static void count_inflight(struct dp_rc *rc)
{
	uint32_t psns = (uint32_t)dp_psn_diff(rc->req.snd_nxt, rc->req.snd_una);

	rc->flow->inflight_bytes = (uint64_t)psns * rc->qp.attr.path_mtu;
}

/* What the program asked for, or more if the HELLO exchange has shown a longer path.  From the third
 * time-out in a row on it is longer, up to four times: the standard allows that (IBTA vol. 1, section
 * 9.7.6.1.3), a host of virtual CPUs stands still now and then, and the number of tries is limited.
 * A peer that has agreed to extended mode gets more tries instead. */
static uint64_t time_out(const struct dp_rc *rc)
{
	uint64_t timeout = dp_ib_timeout_ns(rc), path = 3ull * rc->hello_rtt_ns;
	uint32_t doublings = rc->hello_done ? 0 : rc->req.backoff / 2u;

	if (timeout && timeout < path)
		timeout = path;
	return timeout << (doublings < STRETCH_MOST ? doublings : STRETCH_MOST);
}

static void restart_timer(struct dp_rc *rc, uint64_t now)
{
	uint64_t timeout = time_out(rc);

	rc->req.timer_ns = timeout && rc->req.snd_una != rc->req.snd_max ? now + timeout : 0;
}

static int32_t window(const struct dp_rc *rc)
{
	return rc->hello_ns && !rc->hello_done ? DP_STD_FIRST : DP_STD_WINDOW;
}

static bool wants_ack(const struct dp_rc *rc, const struct dp_swqe *wqe, uint32_t psn)
{
	const struct dp_requester *r = &rc->req;
	uint32_t ahead = (uint32_t)dp_psn_diff(psn, r->snd_una) + 1, mtu = rc->qp.attr.path_mtu;

	if (psn == dp_psn_add(wqe->first_psn, wqe->n_psn - 1) || (int32_t)ahead >= window(rc))
		return true;
	return r->since_ack_req + 1 >= DP_STD_ACK_EVERY ||
	       (double)(rc->flow->inflight_bytes + 2 * mtu) > dp_flow_cwnd_bytes(rc->flow);
}

static bool may_send(struct dp_rc *rc, const struct dp_swqe *wqe, uint32_t bytes, uint64_t now)
{
	struct dp_requester *r = &rc->req;

	if (r->snd_nxt == r->snd_max) {
		if (dp_is_changing(rc)) /* wait until nothing is under way */
			return false;
		if (r->snd_nxt == wqe->first_psn && !dp_may_start(rc, wqe))
			return false;
		/* One request of a READ is under way: the peer counts each for max_rd_atomic. */
		if (wqe->started && r->snd_nxt != r->snd_una)
			return false;
		if (dp_psn_diff(r->snd_nxt, r->snd_una) >= window(rc))
			return false;
	}
	return dp_flow_allows(rc->flow, bytes, now);
}

static void account(struct dp_rc *rc, struct dp_swqe *wqe, uint32_t n, bool ack_req, uint64_t now)
{
	struct dp_requester *r = &rc->req;
	bool again = r->snd_nxt != r->snd_max;

	if (dp_is_answered(wqe->opcode) && !wqe->started) {
		wqe->started = true;
		rc->qp.rd_outstanding++;
	}
	r->since_ack_req = ack_req ? 0 : r->since_ack_req + 1;
	if (!again && !rc->flow->timed_ns && (ack_req || dp_is_answered(wqe->opcode))) {
		rc->flow->timed_psn = r->snd_nxt;
		rc->flow->timed_ns = now;
	}
	r->snd_nxt = dp_psn_add(r->snd_nxt, n);
	if (r->snd_nxt == dp_psn_add(wqe->first_psn, wqe->n_psn))
		rc->qp.sq_tx++;
	if (dp_psn_diff(r->snd_nxt, r->snd_max) > 0)
		r->snd_max = r->snd_nxt;
	dp_flow_sent(rc->flow, n * rc->qp.attr.path_mtu, now);
	if (!r->timer_ns)
		restart_timer(rc, now);
	rc->qp.stats.tx_packets++;
	rc->sender->stats.retransmits += again;
	wqe->packets++;
	wqe->resent += again;
}

/* PSNs that one request for the answers of a READ from snd_nxt on asks for: as many as the window
 * has, or those of the request that is made again. */
static uint32_t asked_for(const struct dp_rc *rc, const struct dp_swqe *wqe)
{
	const struct dp_requester *r = &rc->req;
	uint32_t left = wqe->n_psn - (uint32_t)dp_psn_diff(r->snd_nxt, wqe->first_psn);
	uint32_t most = (uint32_t)(r->snd_nxt == r->snd_max ? window(rc) :
							      dp_psn_diff(r->snd_max, r->snd_nxt));

	return left < most ? left : most;
}

int dp_std_tx(struct dp_rc *rc, struct dp_packet *pkt, uint64_t now)
{
	struct dp_requester *r = &rc->req;
	struct dp_swqe *wqe;
	uint32_t n = 1;
	bool ack_req;

	if (rc->qp.sq_tx == dp_send_limit(rc))
		return 0;
	wqe = dp_sq(&rc->qp, rc->qp.sq_tx);
	if (wqe->opcode == DP_WR_RDMA_READ)
		n = asked_for(rc, wqe);
	if (!may_send(rc, wqe, n * rc->qp.attr.path_mtu, now))
		return 0;
	ack_req = wants_ack(rc, wqe, r->snd_nxt);
	if (dp_build_request(rc, wqe, r->snd_nxt, n, ack_req, pkt, now))
		return dp_fail_in_turn(rc, rc->qp.sq_tx, DP_WC_LOC_PROT_ERR);
	if (!dp_is_answered(wqe->opcode))
		rc->qp.stats.tx_bytes += dp_payload_of(rc, wqe, r->snd_nxt);
	account(rc, wqe, n, ack_req, now);
	return 1;
}

static void go_back(struct dp_rc *rc, uint64_t now, bool congestion)
{
	struct dp_requester *r = &rc->req;
	uint64_t lost = rc->flow->inflight_bytes;

	r->snd_nxt = r->snd_una;
	rc->qp.sq_tx = rc->qp.sq_ci; /* the request that holds snd_una */
	r->since_ack_req = 0;
	rc->flow->timed_ns = 0;
	rc->flow->inflight_bytes = 0;
	if (congestion && lost) {
		struct dp_cc_loss loss = {
			.lost_bytes = (double)lost,
			.prior_delivered_bytes = (double)rc->flow->delivered_bytes,
		};

		dp_flow_loss(rc->flow, &loss, now);
	}
}

/* Whether all of the request lies before `psn`. */
static bool covers(const struct dp_swqe *wqe, uint32_t psn)
{
	return dp_psn_diff(psn, wqe->first_psn) >= (int32_t)wqe->n_psn;
}

/* The request to which PSN `psn`, which was sent, belongs. */
static uint32_t request_of(const struct dp_rc *rc, uint32_t psn)
{
	uint32_t i = rc->qp.sq_ci;

	while (i != rc->qp.sq_pi && covers(dp_sq(&rc->qp, i), psn))
		i++;
	return i;
}

/* Takes an RTT sample from a timed packet whose answer has arrived.  How long the peer held the
 * packet is not known. */
static void time_answer(struct dp_rc *rc, const struct dp_parsed *p, struct dp_cc_ack *ack,
			uint64_t now)
{
	uint64_t arrived = dp_arrived(p, now);

	if (arrived < rc->flow->timed_ns)
		arrived = now;
	ack->rtt_ns = (double)(arrived - rc->flow->timed_ns);
	ack->host_ns = (double)(now - arrived);
	dp_rtt_sample(&rc->flow->rtt, arrived - rc->flow->timed_ns, now - arrived, now - arrived,
		      now);
	rc->flow->timed_ns = 0;
}

/* Packet `p` shows that all PSNs before `una` have been delivered; marked: by an answer with CE. */
static void progress(struct dp_rc *rc, const struct dp_parsed *p, uint32_t una, bool marked,
		     uint64_t now)
{
	struct dp_requester *r = &rc->req;
	uint64_t bytes = (uint64_t)(uint32_t)dp_psn_diff(una, r->snd_una) * rc->qp.attr.path_mtu;
	struct dp_cc_ack ack = {
		.acked_bytes = (double)bytes,
		.marked_bytes = marked ? (double)bytes : 0,
	};

	if (!bytes)
		return;
	r->snd_una = una;
	if (dp_psn_diff(r->snd_nxt, una) < 0)
		r->snd_nxt = una;
	if (rc->flow->timed_ns && dp_psn_diff(rc->flow->timed_psn, una) < 0)
		time_answer(rc, p, &ack, now);
	r->retry_left = rc->qp.attr.retry_cnt;
	r->implied_nak = false;
	r->backoff = 0;
	restart_timer(rc, now);
	ack.prior_delivered_bytes = (double)rc->flow->delivered_bytes;
	rc->flow->delivered_bytes += bytes;
	count_inflight(rc);
	dp_flow_ack(rc->flow, &ack, now);
	while (rc->qp.sq_tx != rc->qp.sq_pi && covers(dp_sq(&rc->qp, rc->qp.sq_tx), r->snd_nxt))
		rc->qp.sq_tx++;
	dp_retire(rc);
}

/* A response is missing, although a later packet was answered. */
static void implied_nak(struct dp_rc *rc, uint64_t now)
{
	if (rc->req.implied_nak)
		return;
	rc->req.implied_nak = true;
	go_back(rc, now, true);
}

/* The responder has everything before `upto`.  READs and atomics before it still wait for their
 * answers.  True: one of them was passed over. */
static bool acknowledged(struct dp_rc *rc, const struct dp_parsed *p, uint32_t upto, uint64_t now)
{
	uint32_t una = rc->req.snd_una, i;
	bool passed = false;
	struct dp_swqe *wqe;

	dp_rnr_passed(rc, upto);
	for (i = rc->qp.sq_ci; i != rc->qp.sq_pi; i++) {
		wqe = dp_sq(&rc->qp, i);
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
	if (dp_psn_diff(una, rc->req.snd_una) > 0)
		progress(rc, p, una, false, now);
	return passed;
}

/* A NAK shows that the peer lives.  So a retry count of 7 means no limit, as in Linux' rxe;
 * time-outs are always counted. */
static void sequence_nak(struct dp_rc *rc, uint64_t now)
{
	struct dp_requester *r = &rc->req;

	if (r->snd_nxt == r->snd_una)
		return; /* told before; the retransmission has not begun yet */
	if (!r->retry_left) {
		dp_fail_send(&rc->qp, rc->qp.sq_ci, DP_WC_RETRY_EXC_ERR);
		return;
	}
	if (rc->qp.attr.retry_cnt != 7)
		r->retry_left--;
	go_back(rc, now, true);
}

void dp_std_ack(struct dp_rc *rc, const struct dp_parsed *p, uint64_t now)
{
	uint8_t syndrome = dp_aeth_syndrome(p->aeth), type = syndrome & DP_AETH_TYPE_MASK;
	struct dp_requester *r = &rc->req;

	if (dp_psn_diff(p->psn, r->snd_una) < 0 || dp_psn_diff(p->psn, r->snd_max) >= 0)
		return;
	if (type == DP_AETH_ACK) {
		if (acknowledged(rc, p, dp_psn_add(p->psn, 1), now))
			implied_nak(rc, now);
		return;
	}
	acknowledged(rc, p, p->psn, now);
	if (type == DP_AETH_RNR_NAK) {
		/* What is not sent again yet can only be refused by an old NAK. */
		if (dp_rnr_wait(rc, p->psn, syndrome, dp_psn_diff(p->psn, r->snd_nxt) < 0 ? now : 0,
				now)) {
			go_back(rc, now, false);
			r->timer_ns = 0;
		}
		return;
	}
	rc->sender->stats.naks_rx++;
	if ((syndrome & DP_AETH_VALUE_MASK) == DP_NAK_PSN_SEQUENCE)
		sequence_nak(rc, now);
	else
		dp_fail_send(&rc->qp, request_of(rc, p->psn), dp_nak_status(syndrome));
}

void dp_std_response(struct dp_rc *rc, const struct dp_parsed *p, bool marked, uint64_t now)
{
	struct dp_requester *r = &rc->req;
	struct dp_swqe *wqe;
	uint32_t i;
	int err;

	if (dp_psn_diff(p->psn, r->snd_una) < 0 || dp_psn_diff(p->psn, r->snd_max) >= 0)
		return;
	i = request_of(rc, p->psn);
	if (i == rc->qp.sq_pi || !dp_is_answered(dp_sq(&rc->qp, i)->opcode))
		return;
	wqe = dp_sq(&rc->qp, i);
	acknowledged(rc, p, wqe->first_psn, now);
	if (r->snd_una != p->psn) {
		implied_nak(rc, now);
		return;
	}
	err = dp_place_response(rc, wqe, p, p->psn);
	if (err)
		dp_fail_send(&rc->qp, i, err == -EINVAL ? DP_WC_BAD_RESP_ERR : DP_WC_LOC_PROT_ERR);
	else
		progress(rc, p, dp_psn_add(p->psn, 1), marked, now);
}

/* A peer that has agreed to extended mode only has to finish the packets under way. */
static bool is_last_try(const struct dp_rc *rc)
{
	return !rc->req.retry_left && (!rc->hello_done || rc->req.backoff >= dp_tries(rc));
}

void dp_std_timeout(struct dp_rc *rc, uint64_t now)
{
	struct dp_requester *r = &rc->req;

	rc->sender->stats.timeouts++;
	if (is_last_try(rc)) {
		dp_fail_send(&rc->qp, rc->qp.sq_ci, DP_WC_RETRY_EXC_ERR);
		return;
	}
	if (r->retry_left)
		r->retry_left--;
	r->backoff++;
	r->implied_nak = false;
	go_back(rc, now, false);
	dp_flow_timeout(rc->flow, false, now);
	restart_timer(rc, now);
}
