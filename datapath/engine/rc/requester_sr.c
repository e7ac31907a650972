// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Requester of the extended mode: one record per PSN in flight, selective
 * acknowledgements, loss detection by order and time (RACK-TLP, RFC 8985) and
 * a measured time-out (RFC 6298).
 */
#include "engine/rc/credit.h"
#include "engine/rc/loss.h"
#include "engine/rc/negotiate.h"
#include "engine/rc/packets.h"
#include "engine/rc/requester.h"
#include "wire/random.h"

/* Doubling stops at this time-out. */
#define BACKOFF_MAX_NS 1000000000ull
#define STALL_MAX_NS 1500000000ull
/* Time-outs in a row of a thin flow that are not doubled, as Linux has it for TCP. */
#define THIN_TRIES 6
/* A READ's wait at the peer adds so many time-outs to the time-out at most. */
#define HELD_MOST 7

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

/* ---- timers ---------------------------------------------------------------------- */

/* How long the peer may be silent; 0: without limit. */
static uint64_t patience_ns(const struct dp_rc *rc)
{
	return dp_ib_timeout_ns(rc) * (rc->qp.attr.retry_cnt + 1u);
}

/* The RTO of packets that are acknowledged, before it is doubled. */
static uint64_t first_rto(const struct dp_rc *rc)
{
	return dp_flow_rto(rc->flow, rc->hello_rtt_ns) + dp_flow_thinned_ns(rc->flow);
}

/* The RTO of READs and atomics, which also wait at the peer: behind others, or for a host that
 * stands still.  The hold time counts up to a limit: behind a gap it contains our own time-out. */
static uint64_t first_answer_rto(const struct dp_rc *rc)
{
	uint64_t rto = first_rto(rc), held = rc->flow->rtt.held_ns;

	return rto + (held < HELD_MOST * rto ? held : HELD_MOST * rto);
}

/* Whether all packets in flight are READs and atomics. */
static bool only_answers(const struct dp_rc *rc)
{
	const struct dp_tx_block *b = rc->req.block;
	unsigned path;

	for (path = 0; b && path < b->paths; path++)
		if (b->class[path].flight.head != DP_NIL)
			return false;
	return b && b->lost.head == DP_NIL;
}

/* Up to a quarter less, different for each QP and each expiry in a row.  QPs whose packets were lost
 * together must not send them again together: where a queue is full, it has room for one. */
static uint64_t scattered(const struct dp_rc *rc, uint64_t rto)
{
	uint64_t any =
		dp_mix64(rc->qp.engine->cfg.seed ^ (uint64_t)rc->qp.qpn << 32 ^ rc->req.backoff);

	return rto - (rto / 4 * (any >> 48) >> 16);
}

/* Whether so little is in flight, a packet's worth and a small part of the window, that to send it
 * again soon is no load.  Requests of READs and atomics are, for they ask for more than they are. */
static bool is_thin(const struct dp_rc *rc)
{
	const struct dp_flow *f = rc->flow;

	return f->rtt.srtt_ns && !rc->qp.rd_outstanding && f->inflight_bytes <= f->mss_bytes &&
	       DP_PROBED_PART * (double)f->inflight_bytes <= dp_flow_cwnd_bytes(f);
}

/* The RTO, doubled with each expiry in a row; of a thin flow not with the first ones.  The doubling
 * stops early enough for dp_tries() time-outs within the time that the QP's attributes grant.  While
 * the RTT is not known, the second half of these time-outs may grow to the IB time-out: the path may
 * be so long that all of them would fit into a few round trips. */
static uint64_t time_out(const struct dp_rc *rc)
{
	bool long_path = !rc->flow->rtt.srtt_ns && !rc->hello_rtt_ns &&
			 rc->req.backoff >= dp_tries(rc) / 2;
	uint64_t first = only_answers(rc) ? first_answer_rto(rc) : first_rto(rc),
		 longest = long_path ? dp_ib_timeout_ns(rc) : patience_ns(rc) / dp_tries(rc), rto;
	uint32_t doublings;

	if (!longest || longest > BACKOFF_MAX_NS)
		longest = BACKOFF_MAX_NS;
	doublings = rc->req.backoff < 8 ? rc->req.backoff : 8;
	if (doublings && is_thin(rc))
		doublings = doublings > THIN_TRIES ? doublings - THIN_TRIES : 0;
	rto = first << doublings;
	if (rto > longest)
		rto = first > longest ? first : longest;
	return rc->req.backoff ? scattered(rc, rto) : rto;
}

void dp_ext_arm_timers(struct dp_rc *rc, uint64_t now)
{
	struct dp_requester *r = &rc->req;
	uint64_t rto = time_out(rc), pto = dp_probe_timeout(rc);

	if (r->snd_una == r->snd_nxt) {
		r->timer_ns = 0;
		dp_loss_timers_off(rc);
		return;
	}
	r->timer_ns = now + rto;
	rc->sender->tlp_ns = rc->flow->rtt.srtt_ns && !r->probes && pto < rto ? now + pto : 0;
}

/* ---- transmit ------------------------------------------------------------------------ */

/* Sets the path of the next packet: the algorithm's choice, or each path in turn.  A lost packet
 * takes another path than before. */
static void choose_path(struct dp_rc *rc)
{
	double chosen = dp_flow_next_path(rc->flow);
	uint32_t paths = dp_paths(rc);

	if (chosen >= 0 && chosen < paths)
		rc->req.path = (uint8_t)chosen;
	else
		rc->req.path = (uint8_t)((rc->req.path + 1u) % paths);
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

static int resend(struct dp_rc *rc, struct dp_packet *pkt, uint64_t now)
{
	struct dp_tx_block *b = rc->req.block;
	uint32_t psn = next_lost(rc), n = 0, index;
	struct dp_rec *rec = dp_rec_at(rc, psn);
	bool read, response = rec->response, ack_req;
	uint32_t bytes = 0;
	uint16_t len;

	if (!rc->req.forced && !((response || dp_credit_allows(rc, rec->len, now)) &&
				 dp_flow_allows(rc->flow, rec->len, now)))
		return 0;
	ack_req = rc->req.forced || !rc->flow->thinning.level;
	rc->req.forced = false;
	choose_path(rc);
	if (rc->req.path == rec->path && dp_flow_next_path(rc->flow) < 0)
		choose_path(rc);
	index = rec->wqe;
	read = dp_sq(&rc->qp, index)->opcode == DP_WR_RDMA_READ;
	do { /* one request asks for neighbouring PSNs of a READ */
		len = dp_rec_at(rc, dp_psn_add(psn, n))->len;
		bytes += len;
		dp_rec_remove(b, &b->lost, dp_rec_slot(rc, dp_psn_add(psn, n)));
		record_sent(rc, dp_psn_add(psn, n), index, len, response, now);
		n++;
	} while (read && n < DP_READ_CHUNK && lost_of(rc, dp_psn_add(psn, n), index));
	if (dp_build_request(rc, dp_sq(&rc->qp, index), psn, n, ack_req, pkt, now)) {
		dp_fail_send(&rc->qp, index, DP_WC_LOC_PROT_ERR);
		return 0;
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

/* Whether a packet asks for an acknowledgement: usually at the end of a message.  Of short messages
 * that leave together only one in each segment asks: its acknowledgement completes all of them. */
static bool wants_ack(const struct dp_rc *rc, const struct dp_swqe *wqe, uint32_t n)
{
	const struct dp_requester *r = &rc->req;
	uint32_t after = dp_psn_add(r->snd_nxt, n), bytes;
	bool ends = after == dp_psn_add(wqe->first_psn, wqe->n_psn);
	bool last = ends && rc->qp.sq_tx + 1 == dp_send_limit(rc);

	if ((uint32_t)dp_psn_diff(after, r->snd_una) + 1 >= rc->window)
		return true;
	if (rc->flow->thinning.level) /* the receiver counts packets, and waits as asked */
		return last;
	if (ends && !last) {
		bytes = rc->flow->unasked_bytes + dp_payload_of(rc, wqe, dp_psn_add(after, -1));
		ends = bytes >= r->segment || wqe->n_psn > 1;
	}
	return ends || r->since_ack_req + 1 >= DP_EXT_ACK_EVERY ||
	       (double)(rc->flow->inflight_bytes + 2 * r->segment) > dp_flow_window_bytes(rc->flow);
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
	/* The first packet that is acknowledged does not wait for as long as the READs before. */
	if (!r->timer_ns || (!response && r->timer_ns > now + time_out(rc)))
		dp_ext_arm_timers(rc, now);
	else if (!r->probes && rc->flow->rtt.srtt_ns)
		rc->sender->tlp_ns = now + dp_probe_timeout(rc); /* RFC 8985, section 7.2 */
	rc->qp.stats.tx_packets++;
	rc->qp.stats.tx_bytes += response ? 0 : bytes;
	wqe->packets++;
}

int dp_ext_tx(struct dp_rc *rc, struct dp_packet *pkt, uint64_t now)
{
	struct dp_requester *r = &rc->req;
	struct dp_swqe *wqe;
	uint32_t n;

	if (r->block && r->block->lost.head != DP_NIL)
		return resend(rc, pkt, now);
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
	choose_path(rc);
	if (dp_build_request(rc, wqe, r->snd_nxt, n, wants_ack(rc, wqe, n), pkt, now))
		return dp_local_fault(rc);
	account(rc, wqe, n, pkt, now);
	return 1;
}

/* ---- time-outs --------------------------------------------------------------------------------- */

/* A host of virtual CPUs stands still now and then.  So the peer gets more time than the attributes
 * grant; the standard allows four times as much (IBTA vol. 1, section 9.7.6.1.3). */
static uint64_t stall_ns(uint64_t patience)
{
	return 3 * patience < STALL_MAX_NS ? 3 * patience : STALL_MAX_NS;
}

/* Whether the peer counts as dead: nothing has come through for the time that the attributes grant
 * and that of a stall, in any number of tries.  The tries allow for loss: with retry_cnt 7 and 30 %
 * loss in each direction, all of 32 round trips fail once in 2 * 10^9 times.  A peer that replies to
 * HELLOs lives: other flows may keep a queue so full that it takes only small packets.  Such a peer
 * counts as dead much later, for the path may have got a smaller MTU. */
static bool peer_is_dead(const struct dp_rc *rc, uint64_t now)
{
	uint64_t patience = patience_ns(rc), progress = rc->req.progress_ns,
		 heard = rc->sender->heard_ns;

	if (!patience || rc->req.backoff < dp_tries(rc) ||
	    now < progress + patience + stall_ns(patience))
		return false;
	if (heard > progress && now < heard + patience)
		return now >= progress + DP_STARVED * patience;
	return true;
}

/* Sends only the oldest packet again, whatever the window; the others still count as in flight.
 * Its acknowledgement tells which of them are lost.  So a spurious time-out, because a host stood
 * still or a queue is long, costs a packet and not a window. */
static void timeout(struct dp_rc *rc, uint64_t now)
{
	struct dp_tx_block *b = rc->req.block;
	uint32_t oldest = dp_oldest_answer(rc);
	uint64_t due = 0;
	bool first = !rc->req.backoff;
	unsigned path;

	if (oldest != DP_NIL)
		due = dp_rec(b, oldest)->sent_ns + first_answer_rto(rc);
	if (now < due && only_answers(rc)) { /* asked for again a short time ago: no try yet */
		rc->req.timer_ns = due;
		return;
	}
	if (peer_is_dead(rc, now)) {
		rc->sender->stats.timeouts++;
		dp_fail_send(&rc->qp, rc->qp.sq_ci, DP_WC_RETRY_EXC_ERR);
		return;
	}
	for (path = 0; path < b->paths; path++)
		if (b->class[path].flight.head != DP_NIL)
			dp_mark_lost(rc, b->class[path].flight.head);
	if (oldest != DP_NIL && now >= due)
		dp_ask_again(rc, oldest);
	rc->sender->stats.timeouts++;
	if (first)
		rc->sender->timeout_ns = now;
	if (rc->req.backoff < UINT16_MAX)
		rc->req.backoff++;
	if (rc->req.backoff > dp_tries(rc) / 2)
		dp_hello_once(rc, now);
	rc->req.forced = true;
	dp_flow_timeout(rc->flow, first, now);
	dp_ext_arm_timers(rc, now);
	rc->sender->tlp_ns = 0;
}

void dp_ext_tick(struct dp_rc *rc, uint64_t now)
{
	struct dp_requester *r = &rc->req;

	if (!r->block || !rc->sender)
		return;
	if (dp_has_expired(rc, rc->sender->reorder_ns, now))
		dp_detect_losses(rc, now);
	if (dp_has_expired(rc, rc->sender->tlp_ns, now))
		dp_probe(rc, now);
	if (!r->timer_ns && r->snd_una != r->snd_nxt)
		dp_ext_arm_timers(rc, now); /* after the wait for a receiver that was not ready */
	if (dp_has_expired(rc, r->timer_ns, now))
		timeout(rc, now);
}
