// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Requester of the extended mode: what leaves next, new or again, with one record per PSN in
 * flight.
 */
#include "engine/rc/bundle.h"
#include "engine/rc/credit.h"
#include "engine/rc/loss.h"
#include "engine/rc/packets.h"
#include "engine/rc/paths.h"
#include "engine/rc/requester.h"

#define FLIGHT_ACKS 4  /* acknowledgements that a flight asks for */
#define FLIGHT_LEAST 2 /* packets for each of them, at least */

void dp_ext_start(struct dp_rc *rc, uint64_t now)
{
	struct dp_requester *r = &rc->req;
	uint64_t delivered;

	rc->extended = true;
	r->cum = r->snd_una;
	r->timer_ns = 0;
	r->backoff = 0;
	r->progress_ns = now;
	if (!rc->flow)
		return;
	delivered = rc->flow->delivered_bytes; /* counts on from the standard mode */
	dp_flow_connect(rc->flow, r->segment, rc->window, (uint8_t)dp_paths(rc), now);
	rc->flow->delivered_bytes = delivered;
}

static void record_sent(struct dp_rc *rc, uint32_t psn, uint32_t wqe, uint16_t len, bool response,
			uint64_t now)
{
	struct dp_rec *rec = dp_rec_at(rc, psn);
	bool resent = rec->state == DP_REC_LOST && dp_psn_diff(psn, rc->req.snd_nxt) < 0;

	dp_flow_begin_sample(rc->flow, now);
	*rec = (struct dp_rec){
		.sent_ns = now,
		.delivered = rc->flow->delivered_bytes,
		.delivered_ns = rc->flow->delivered_ns,
		.first_sent_ns = rc->flow->first_sent_ns,
		.wqe = wqe,
		.len = len,
		.state = DP_REC_FLIGHT,
		.response = response,
		.path = rc->req.path,
		.resent = resent,
		.app_limited = rc->flow->app_limited_at > rc->flow->delivered_bytes,
	};
	dp_rec_append(rc->req.block, dp_rec_list_of(rc->req.block, rec), dp_rec_slot(rc, psn));
	dp_path_sent(rc->req.block, rec->path);
}

/* Whether the PSN was sent, is lost, and belongs to request `index`. */
static bool lost_of(const struct dp_rc *rc, uint32_t psn, uint32_t index)
{
	const struct dp_rec *rec;

	if (dp_psn_diff(psn, rc->req.snd_nxt) >= 0)
		return false;
	rec = dp_rec_at(rc, psn);
	return rec->state == DP_REC_LOST && rec->wqe == index;
}

/* The lost packet to send next.  The oldest comes first, since the window waits for it. */
static uint32_t next_lost(const struct dp_rc *rc)
{
	uint32_t una = rc->req.snd_una;

	return dp_rec_at(rc, una)->state == DP_REC_LOST ? una :
							  dp_rec_psn(rc, rc->req.block->lost.head);
}

/* How many PSNs of a READ to ask for at once, at most `most`: what fits into the window, in chunks of
 * no less than half of it, or a quarter of the longest, since each costs a request.  They come back
 * in a burst, so a short path, which holds few packets, gets small chunks. */
static uint32_t chunk(const struct dp_rc *rc, uint32_t most)
{
	double window = dp_flow_window_bytes(rc->flow), segment = rc->req.segment;
	double inflight = (double)rc->flow->inflight_bytes, least = window / segment / 2;
	uint32_t n = most < DP_READ_CHUNK ? most : DP_READ_CHUNK;

	if (least > DP_READ_CHUNK / 4)
		least = DP_READ_CHUNK / 4;
	while (n > 1 && n > least && inflight + n * segment > window)
		n /= 2;
	return n;
}

/* How many PSNs of a READ fit into the window, at most a request's worth. */
static uint32_t window_room(const struct dp_rc *rc)
{
	double room = (dp_flow_window_bytes(rc->flow) - (double)rc->flow->inflight_bytes) /
		      rc->req.segment;

	return room < 1 ? 1 : room < DP_READ_CHUNK ? (uint32_t)room : DP_READ_CHUNK;
}

/* How many PSNs the next copy asks for or carries: one, or lost neighbours of a READ. */
static uint32_t copied(const struct dp_rc *rc, uint32_t psn)
{
	uint32_t index = dp_rec_at(rc, psn)->wqe, n = 1, most = DP_READ_CHUNK;

	if (dp_sq(&rc->qp, index)->opcode != DP_WR_RDMA_READ)
		return 1;
	if (!rc->req.forced)
		most = window_room(rc);
	while (n < most && lost_of(rc, dp_psn_add(psn, n), index))
		n++;
	return n;
}

/* Builds the packet of a lost PSN again.  1, 0: it may not leave now, or an error. */
static int copy(struct dp_rc *rc, uint32_t psn, struct dp_packet *pkt, uint64_t now)
{
	struct dp_tx_block *b = rc->req.block;
	uint32_t n = copied(rc, psn), index, bytes = 0, i;
	struct dp_rec *rec = dp_rec_at(rc, psn);
	bool read, response = rec->response, ack_req;
	uint16_t len;
	int err;

	for (i = 0; i < n; i++)
		bytes += dp_rec_at(rc, dp_psn_add(psn, i))->len;
	if (!rc->req.forced && !((response || dp_credit_allows(rc, bytes, now)) &&
				 dp_flow_allows(rc->flow, bytes, now)))
		return 0;
	ack_req = rc->req.forced || !rc->flow->thinning.level;
	dp_path_choose(rc);
	/* taken in turn, a lost packet takes another path than before */
	if (rc->req.path == rec->path && dp_flow_next_path(rc->flow) < 0)
		dp_path_choose(rc);
	index = rec->wqe;
	err = dp_build_request(rc, dp_sq(&rc->qp, index), psn, n, ack_req, pkt, now);
	if (err)
		return err;
	rc->req.forced = false;
	read = dp_sq(&rc->qp, index)->opcode == DP_WR_RDMA_READ;
	for (i = 0; i < n; i++) {
		len = dp_rec_at(rc, dp_psn_add(psn, i))->len;
		dp_rec_remove(b, &b->lost, dp_rec_slot(rc, dp_psn_add(psn, i)));
		record_sent(rc, dp_psn_add(psn, i), index, len, response, now);
	}
	dp_flow_sent(rc->flow, bytes, now);
	if (!response)
		dp_credit_sent(rc, bytes, pkt);
	if (!rc->req.timer_ns)
		dp_ext_arm_timers(rc, now);
	rc->qp.stats.tx_packets++;
	rc->qp.stats.tx_bytes += read ? 0 : bytes;
	rc->sender->stats.retransmits++;
	dp_sq(&rc->qp, index)->packets++;
	dp_sq(&rc->qp, index)->resent++;
	return 1;
}

/* The first lost packet of a request before `index`, or DP_NIL: a walk of the list, for each request
 * whose memory is gone. */
static uint32_t lost_before(const struct dp_rc *rc, uint32_t index)
{
	const struct dp_tx_block *b = rc->req.block;
	uint32_t i = b->lost.head;

	while (i != DP_NIL && (int32_t)(dp_rec(b, i)->wqe - index) >= 0)
		i = dp_rec(b, i)->next;
	return i;
}

/* A request whose memory is gone keeps none of those before it waiting. */
static int resend(struct dp_rc *rc, struct dp_packet *pkt, uint64_t now)
{
	uint32_t psn = next_lost(rc), index, before;
	int n;

	while ((n = copy(rc, psn, pkt, now)) < 0) {
		index = dp_rec_at(rc, psn)->wqe;
		before = lost_before(rc, index);
		if (before == DP_NIL)
			return dp_fail_in_turn(rc, index, DP_WC_LOC_PROT_ERR);
		psn = dp_rec_psn(rc, before);
	}
	return n;
}

/* How many PSNs of the request may be sent now: one, or a chunk of a READ. */
static uint32_t allowance(struct dp_rc *rc, const struct dp_swqe *wqe, uint64_t now)
{
	struct dp_requester *r = &rc->req;
	uint32_t index, left, room, n = 1, bytes;

	index = (uint32_t)dp_psn_diff(r->snd_nxt, wqe->first_psn);
	if (!index && !wqe->base && !dp_may_start(rc, wqe))
		return 0;
	room = rc->window - (uint32_t)dp_psn_diff(r->snd_nxt, r->snd_una);
	left = wqe->n_psn - index;
	bytes = wqe->len - dp_offset_of(rc, wqe, r->snd_nxt);
	if (wqe->opcode == DP_WR_RDMA_READ)
		n = chunk(rc, left < room ? left : room);
	if (!room)
		return 0;
	if (bytes > n * r->segment)
		bytes = n * r->segment;
	if (!dp_is_answered(wqe->opcode) && !dp_credit_allows(rc, bytes, now))
		return 0;
	return dp_flow_allows(rc->flow, bytes, now) ? n : 0;
}

/* Whether so many bytes that no packet asked for are more than a flight's share for each of its
 * acknowledgements.  With fewer of these an algorithm sees rates and delays of one flight after the
 * other, and sends each in a burst.  The receiver acknowledges after its delay unasked, so that an
 * RTT of two delays or more has enough.  The answers of a READ tell as much. */
static bool is_share_of_flight(const struct dp_rc *rc, const struct dp_swqe *wqe, uint32_t bytes)
{
	const struct dp_flow *f = rc->flow;
	uint64_t rtt_ns = f->rtt.srtt_ns + f->rtt.host_ns;

	return rtt_ns && rtt_ns < 2 * dp_ack_delay_ns(0) &&
	       bytes >= FLIGHT_LEAST * rc->req.segment && !dp_is_answered(wqe->opcode) &&
	       FLIGHT_ACKS * (double)bytes > dp_flow_flight_bytes(f);
}

/* Whether a packet asks for an acknowledgement: at the end of a message, and several times in each
 * flight of longer ones.  Of short messages that leave together only one in each segment asks: its
 * acknowledgement completes all of them. */
static bool wants_ack(const struct dp_rc *rc, const struct dp_swqe *wqe, uint32_t n)
{
	const struct dp_requester *r = &rc->req;
	const struct dp_flow *f = rc->flow;
	uint32_t after = dp_psn_add(r->snd_nxt, n);
	uint32_t bytes = f->unasked_bytes + dp_payload_of(rc, wqe, dp_psn_add(after, -1));
	bool ends = after == dp_psn_add(wqe->first_psn, wqe->n_psn);
	bool last = ends && rc->qp.sq_tx + 1 == dp_send_limit(rc);

	if (last || (uint32_t)dp_psn_diff(after, r->snd_una) + 1 >= rc->window)
		return true;
	if (f->thinning.level) /* the receiver counts packets, and waits as asked */
		return false;
	return (ends && (bytes >= r->segment || wqe->n_psn > 1)) ||
	       r->since_ack_req + 1 >= DP_EXT_ACK_EVERY || is_share_of_flight(rc, wqe, bytes) ||
	       (double)(f->inflight_bytes + 2 * r->segment) > dp_flow_window_bytes(f);
}

/* Whether the peer acknowledges the end of this request at once, and waits for no reply of its
 * program. */
static bool ends_promptly(const struct dp_rc *rc, const struct dp_swqe *wqe)
{
	return wqe->opcode == DP_WR_RDMA_WRITE && !rc->sender->peer_replies;
}

static void account(struct dp_rc *rc, struct dp_swqe *wqe, uint32_t n, struct dp_packet *pkt,
		    uint64_t now)
{
	struct dp_requester *r = &rc->req;
	bool response = dp_is_answered(wqe->opcode), ack_req = dp_bth_ack_req(pkt->data);
	uint32_t last = dp_psn_add(wqe->first_psn, wqe->n_psn - 1), i, bytes = 0, psn;
	uint16_t len;

	if (response && !wqe->started) {
		wqe->started = true;
		rc->qp.rd_outstanding++;
	}
	for (i = 0; i < n; i++) {
		psn = dp_psn_add(r->snd_nxt, i);
		len = (uint16_t)dp_payload_of(rc, wqe, psn);
		bytes += len;
		dp_rec_at(rc, psn)->state = DP_REC_NONE;
		record_sent(rc, psn, rc->qp.sq_tx, len, response, now);
	}
	dp_rec_at(rc, r->snd_nxt)->prompt = ack_req && !response &&
					    (r->snd_nxt != last || ends_promptly(rc, wqe));
	if (r->snd_una == r->snd_nxt)
		r->progress_ns = now;
	r->snd_nxt = r->snd_max = dp_psn_add(r->snd_nxt, n);
	if (r->snd_nxt == dp_psn_add(wqe->first_psn, wqe->n_psn))
		rc->qp.sq_tx++;
	r->since_ack_req = ack_req ? 0 : r->since_ack_req + 1;
	rc->flow->unasked_bytes = ack_req ? 0 : rc->flow->unasked_bytes + bytes;
	dp_flow_sent(rc->flow, bytes, now);
	if (!response)
		dp_credit_sent(rc, bytes, pkt);
	rc->qp.stats.tx_bytes += response ? 0 : bytes;
	wqe->packets++;
}

/* Builds a packet of this request and of as many behind it as fit. */
static int send_bundle(struct dp_rc *rc, struct dp_packet *pkt, bool *timed, uint64_t now)
{
	struct dp_swqe *wqe = dp_sq(&rc->qp, rc->qp.sq_tx);
	struct dp_bundle b = { .opcode = wqe->opcode };

	dp_build_bundle(rc, wqe, rc->req.snd_nxt, pkt, now);
	do {
		if (wants_ack(rc, wqe, 1))
			dp_bth_set_ack_req(pkt->data);
		if (dp_bundle_add(rc, &b, wqe, pkt))
			break;
		account(rc, wqe, 1, pkt, now);
		if (!*timed)
			*timed = dp_ext_time_sent(rc, false, now);
		wqe = dp_sq(&rc->qp, rc->qp.sq_tx);
	} while (rc->qp.sq_tx != dp_send_limit(rc) && dp_bundle_takes(rc, &b, wqe) &&
		 allowance(rc, wqe, now) && dp_tx_pages_get(rc, 1));
	if (!b.parts)
		return dp_fail_in_turn(rc, rc->qp.sq_tx, DP_WC_LOC_PROT_ERR);
	dp_build_bundle_end(rc, b.parts, pkt, now);
	rc->qp.stats.tx_packets++;
	return 1;
}

/* Whether the next request can share a packet with the one behind it. */
static bool bundles(const struct dp_rc *rc, const struct dp_swqe *wqe)
{
	uint32_t next = rc->qp.sq_tx + 1;

	return next != dp_send_limit(rc) && dp_bundle_begins(rc, wqe, dp_sq(&rc->qp, next));
}

/* Builds a packet of new data.  timed: whether the timers are right for it already. */
static int send_new(struct dp_rc *rc, struct dp_packet *pkt, bool *timed, uint64_t now)
{
	struct dp_requester *r = &rc->req;
	struct dp_swqe *wqe;
	uint32_t n;

	if (rc->qp.sq_tx == dp_send_limit(rc)) {
		rc->flow->app_limited_at = rc->flow->delivered_bytes + rc->flow->inflight_bytes + 1;
		return 0;
	}
	if (dp_is_changing(rc))
		return 0;
	wqe = dp_sq(&rc->qp, rc->qp.sq_tx);
	n = allowance(rc, wqe, now);
	if (!n)
		return 0;
	if (!r->block && !dp_tx_block_get(rc)) {
		dp_fail_send(&rc->qp, rc->qp.sq_tx, DP_WC_LOC_QP_OP_ERR);
		return 0;
	}
	if (!dp_tx_pages_get(rc, n)) {
		if (r->snd_una ==
		    r->snd_nxt) /* nothing is in flight whose acknowledgement would return memory */
			dp_fail_send(&rc->qp, rc->qp.sq_tx, DP_WC_LOC_QP_OP_ERR);
		return 0;
	}
	dp_path_choose(rc);
	if (bundles(rc, wqe))
		return send_bundle(rc, pkt, timed, now);
	if (dp_build_request(rc, wqe, r->snd_nxt, n, wants_ack(rc, wqe, n), pkt, now))
		return dp_fail_in_turn(rc, rc->qp.sq_tx, DP_WC_LOC_PROT_ERR);
	account(rc, wqe, n, pkt, now);
	if (!*timed)
		*timed = dp_ext_time_sent(rc, dp_is_answered(wqe->opcode), now);
	rc->qp.stats.tx_packets++;
	return 1;
}

static bool has_lost(const struct dp_rc *rc)
{
	return rc->req.block && rc->req.block->lost.head != DP_NIL;
}

int dp_ext_tx(struct dp_rc *rc, struct dp_packet *out, int max, uint64_t now)
{
	bool timed = false;
	int n = 0;

	while (n < max &&
	       (has_lost(rc) ? resend(rc, &out[n], now) : send_new(rc, &out[n], &timed, now)))
		n++;
	return n;
}
