// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Responder of the extended mode.  Every packet says where its payload belongs, so the payload is
 * placed when the packet arrives.  The end of a message (it completes a receive, or runs a READ or
 * atomic) waits until all packets before it have arrived.  So do the last bytes of a message, since
 * programs watch them.  Nothing is placed over bytes that a packet of a higher PSN has been placed
 * in (placing.h): what lies in memory does not depend on the order in which packets came.
 *
 * Some packets cannot be taken out of order: no receive is posted yet, or they cause an error that
 * must be reported in order.  They are dropped and come again.
 */
#include "engine/rc/answers.h"
#include "engine/rc/packets.h"
#include "engine/rc/placing.h"
#include "engine/rc/received.h"
#include "engine/rc/requester.h"

/* ---- packets ------------------------------------------------------------------------------- */

/* Number of PSNs that a packet stands for; 0: a READ of a size that no requester asks for. */
static uint32_t psns_of(const struct dp_rc *rc, const struct dp_parsed *p)
{
	struct dp_xdh xdh;
	uint32_t n;

	if (!(p->mask & DP_IS_READ))
		return 1;
	dp_xdh_get(p->xdh, &xdh);
	if (xdh.segment < DP_SEGMENT_MIN || xdh.segment > dp_segment_limit(rc) || xdh.segment & 3)
		return 0;
	n = dp_read_psns(dp_reth_len(p->reth), xdh.segment);
	return n <= DP_READ_CHUNK ? n : 0;
}

/* Number of PSNs from `psn` on, n at most, before the first that has arrived already. */
static uint32_t missing(const struct dp_rc *rc, uint32_t psn, uint32_t n)
{
	uint32_t i = 0;

	while (i < n && !dp_rx_test(rc, dp_psn_add(psn, i)))
		i++;
	return i;
}

/* Keeps only the first n_psn PSNs of a READ.  The rest is held already, as a part of another
 * request, which may end elsewhere. */
static void cut_read(const struct dp_parsed *p, struct dp_held *h, uint32_t n_psn)
{
	if (p->mask & DP_IS_READ && n_psn < dp_read_psns(h->len, h->segment))
		h->len = n_psn * h->segment;
}

/* Whether as many messages as the packet says can have come since the expected PSN: each that takes
 * a receive has at least one PSN. */
static bool may_take(const struct dp_rc *rc, const struct dp_parsed *p, const struct dp_held *h)
{
	const struct dp_responder *r = &rc->resp;

	return !(p->mask & (DP_IS_SEND | DP_HAS_IMM)) ||
	       h->rq_seq - r->rq_seq <= (uint32_t)dp_psn_diff(p->psn, r->epsn);
}

/* Takes a packet behind a gap: places its payload and remembers the rest. */
static int take_ahead(struct dp_rc *rc, const struct dp_parsed *p, uint32_t n_psn, uint64_t now)
{
	uint32_t whole = p->payload_len + p->payload2_len, tail = 0, i;
	struct dp_held h;

	n_psn = missing(rc, p->psn, n_psn);
	dp_held_from(p, &h, now);
	cut_read(p, &h, n_psn);
	if (!may_take(rc, p, &h) || !dp_rx_pages_get(rc, p->psn, n_psn))
		return -EAGAIN;
	if (p->mask & DP_IS_LAST)
		tail = whole < DP_TAIL_HELD ? whole : DP_TAIL_HELD;
	if (p->mask & (DP_IS_READ | DP_IS_ATOMIC))
		h.kind = p->mask & DP_IS_READ ? DP_HELD_READ : DP_HELD_ATOMIC;
	else if (dp_place_packet(rc, p, &h, tail)) {
		dp_rx_pages_put(rc, p->psn);
		return -EAGAIN;
	}
	if (p->mask & DP_IS_LAST && !h.kind) {
		h.kind = DP_HELD_LAST;
		h.tail_len = (uint8_t)tail;
		dp_copy_payload(h.tail, p, whole - tail, tail);
		h.len = h.offset + whole;
		h.va += whole - tail;
		h.offset += whole - tail;
	}
	*dp_rx_held(rc, p->psn) = h;
	for (i = 0; i < n_psn; i++) {
		dp_rx_set(rc, dp_psn_add(p->psn, i));
		if (i)
			dp_rx_held(rc, dp_psn_add(p->psn, i))->kind = DP_HELD_REST;
	}
	return 0;
}

/* A message that consumes a receive must take the next one, whatever the sender said when the
 * packet was placed. */
static int take_turn(struct dp_rc *rc, const struct dp_held *h)
{
	if (!(dp_opcodes[h->opcode].mask & (DP_IS_SEND | DP_HAS_IMM)))
		return 0;
	if (h->rq_seq != rc->resp.rq_seq)
		return DP_NAK(DP_NAK_INVALID_REQUEST);
	return dp_recv_of(rc, h->rq_seq) ? 0 : dp_rnr_syndrome(rc);
}

static int run(struct dp_rc *rc, const struct dp_held *h, uint32_t psn)
{
	int err;

	switch (h->kind) {
	case DP_HELD_READ:
		return dp_execute_read(rc, h, psn, true);
	case DP_HELD_ATOMIC:
		return dp_execute_once(rc, h, psn, true);
	case DP_HELD_LAST:
		err = take_turn(rc, h);
		if (!err)
			err = dp_place_tail(rc, h);
		return err ? err : dp_finish_message(rc, h);
	default:
		return 0;
	}
}

/* Takes the packet that was missing. */
static int take_expected(struct dp_rc *rc, const struct dp_parsed *p, struct dp_held *h)
{
	uint32_t whole = p->payload_len + p->payload2_len;
	int err;

	if (p->mask & DP_IS_READ)
		return dp_execute_read(rc, h, p->psn, true);
	if (p->mask & DP_IS_ATOMIC)
		return dp_execute_once(rc, h, p->psn, true);
	err = take_turn(rc, h);
	if (err)
		return err;
	err = dp_place_packet(rc, p, h, 0);
	if (err == DP_NAK(DP_NAK_INVALID_REQUEST) && p->mask & DP_IS_SEND && dp_receive(&rc->qp, 0))
		dp_fail_recv(rc, DP_WC_LOC_LEN_ERR);
	else if (err == DP_NAK(DP_NAK_REMOTE_OPERATION))
		dp_fail_recv(rc, DP_WC_LOC_PROT_ERR);
	if (err || !(p->mask & DP_IS_LAST))
		return err;
	h->len = h->offset + whole;
	return dp_finish_message(rc, h);
}

/* Of a READ that could not be answered yet all PSNs count as not received: the requester asks for
 * them again. */
static void forget_rest(struct dp_rc *rc, const struct dp_held *h, uint32_t psn)
{
	uint32_t i, n = h->kind == DP_HELD_READ ? dp_read_psns(h->len, h->segment) : 1;

	for (i = 1; i < n; i++)
		dp_rx_clear(rc, dp_psn_add(psn, i));
}

/* Executes what is in order now.  What could not be executed counts as not received. */
static void drain(struct dp_rc *rc)
{
	struct dp_responder *r = &rc->resp;
	struct dp_held h;
	int err;

	while (r->block && dp_rx_test(rc, r->epsn)) {
		h = *dp_rx_held(rc, r->epsn);
		err = run(rc, &h, r->epsn);
		dp_rx_clear(rc, r->epsn);
		if (err)
			forget_rest(rc, &h, r->epsn);
		if (err > 0)
			dp_responder_nak(rc, r->epsn, (uint8_t)err);
		if (err)
			return;
		dp_responder_advance(r, 1);
	}
}

/* Whether all of [psn, psn + n) still waits for its answer. */
static bool queued(const struct dp_rc *rc, uint32_t psn, uint32_t n)
{
	const struct dp_answers *q = rc->resp.answers;
	const struct dp_answer *a;
	int32_t from;
	uint32_t i;

	for (i = q ? q->head : 0; q && i != q->tail; i++) {
		a = &q->ring[i % DP_READ_QUEUE];
		from = dp_psn_diff(psn, a->psn);
		if (from >= (int32_t)a->done && from + n <= a->n_psn)
			return true;
	}
	return false;
}

/* A packet that came before.  True: the requester has to be told. */
static bool again(struct dp_rc *rc, const struct dp_parsed *p, uint64_t now)
{
	struct dp_held h;

	rc->qp.stats.duplicates++;
	dp_held_from(p, &h, now);
	if (p->mask & (DP_IS_READ | DP_IS_ATOMIC) && queued(rc, p->psn, psns_of(rc, p)))
		return false;
	if (p->mask & (DP_IS_READ | DP_IS_ATOMIC))
		dp_replay(rc, &h, p->psn, true);
	else
		rc->resp.duplicates++;
	return true;
}

/* Takes the rest of a READ whose first part is in order or held as part of another request: those
 * PSNs that never came. */
static void rest_of_read(struct dp_rc *rc, const struct dp_parsed *p, uint32_t n_psn, uint64_t now)
{
	struct dp_responder *r = &rc->resp;
	uint32_t done, new;
	struct dp_held h;

	while ((done = (uint32_t)dp_psn_diff(r->epsn, p->psn)) < n_psn) {
		new = missing(rc, r->epsn, n_psn - done);
		dp_held_from(p, &h, now);
		h.va += done * h.segment;
		h.offset += done * h.segment;
		h.len -= done * h.segment;
		cut_read(p, &h, new);
		if (!new || dp_execute_read(rc, &h, r->epsn, true))
			return;
		dp_responder_advance(r, new);
		drain(rc);
	}
}

/* Takes a request that covers the expected PSN, which lies in [p->psn, p->psn + n_psn).  A READ may
 * ask again for a part that was answered, together with a part that never came.  True: a gap
 * closed. */
static bool in_order(struct dp_rc *rc, const struct dp_parsed *p, uint32_t n_psn, uint64_t now)
{
	struct dp_responder *r = &rc->resp;
	uint32_t known = (uint32_t)dp_psn_diff(r->epsn, p->psn);
	uint32_t new = missing(rc, r->epsn, n_psn - known);
	bool closed = r->block && r->block->count;
	struct dp_held h;
	int err;

	dp_held_from(p, &h, now);
	cut_read(p, &h, known + new);
	if (known && !dp_was_accepted(rc, &h, p->psn, known))
		return false;
	err = take_expected(rc, p, &h);
	if (err == -EAGAIN)
		return false;
	if (err) {
		dp_responder_nak(rc, r->epsn, (uint8_t)err);
		return false;
	}
	r->nak_sent = false;
	r->message = 0;
	dp_responder_advance(r, new);
	if (closed)
		drain(rc);
	if (p->mask & DP_IS_READ)
		rest_of_read(rc, p, n_psn, now);
	return closed;
}

/* Notes how far the received PSNs reach.  True: this packet leaves out PSNs that were not missing
 * before. */
static bool opens_gap(struct dp_responder *r, uint32_t psn, uint32_t n_psn)
{
	uint32_t end = dp_psn_add(psn, n_psn);
	bool gap;

	r->latest = psn;
	gap = dp_psn_diff(psn, r->highest) > 0;
	if (dp_psn_diff(end, r->highest) > 0)
		r->highest = end;
	return gap;
}

/* Sends an acknowledgement within `delay`. */
static void ack_within(struct dp_responder *r, uint64_t delay, uint64_t now)
{
	if (!r->ack_ns || r->ack_ns > now + delay)
		r->ack_ns = now + delay;
}

/* Tells the requester that a gap has opened or closed; later if it wants few acknowledgements. */
static void tell_news(struct dp_rc *rc, uint64_t now)
{
	if (rc->resp.thin)
		ack_within(&rc->resp, dp_ack_delay_ns(rc->resp.thin) / 2, now);
	else
		dp_ack_soon(rc);
}

/* How long the acknowledgement of this packet waits for the program's reply; 0: it does not wait.
 * Only a program that learns of the message can reply: because the message completes a receive, or
 * because the program spins on the memory, as one does that has replied to the messages before
 * (TCP's ping-pong mode of delayed acknowledgements is alike). */
static uint64_t reply_hold_ns(struct dp_rc *rc, const struct dp_parsed *p)
{
	struct dp_responder *r = &rc->resp;

	if (!(p->mask & DP_IS_LAST) || !(p->mask & (DP_IS_SEND | DP_IS_WRITE)))
		return 0;
	r->reply_due = true;
	if (r->replies >= DP_REPLIES_MIN && !r->thin && dp_ack_fits_request(rc))
		return DP_REPLY_HOLD_NS;
	if (p->mask & (DP_IS_SEND | DP_HAS_IMM) && (p->ack_req || !r->thin))
		return DP_ACK_HOLD_NS;
	return 0;
}

/* A READ whose one answer is all that there is to send: that tells what an acknowledgement would. */
static bool answer_tells(const struct dp_rc *rc, const struct dp_parsed *p)
{
	const struct dp_responder *r = &rc->resp;
	const struct dp_answers *q = r->answers;

	return p->mask & DP_IS_READ && q && q->tail - q->head == 1 &&
	       q->ring[q->head % DP_READ_QUEUE].n_psn == 1 && !r->unacked && !r->ack_now &&
	       dp_ack_fits_request(rc);
}

/* Schedules an acknowledgement.  It leaves at once if the requester asks for it (as it does for
 * retransmissions) and no reply is expected.  It leaves soon if there is news: a gap opens or
 * closes, or a packet came twice.  Otherwise it waits for a number of packets or some time.  An ACK
 * for each packet behind a gap would cost more than the loss. */
static void schedule_ack(struct dp_rc *rc, const struct dp_parsed *p, bool news, uint64_t now)
{
	struct dp_responder *r = &rc->resp;
	uint32_t every = rc->peer_paths ? DP_PATHS_ACK_EVERY : DP_EXT_ACK_EVERY;
	uint64_t hold = reply_hold_ns(rc, p);

	if (news)
		tell_news(rc, now);
	else if (answer_tells(rc, p))
		return;
	if (++r->unacked >= every << r->thin || (p->ack_req && !hold))
		r->ack_now = true;
	if (r->ack_now)
		dp_qp_wake(&rc->qp);
	else
		ack_within(r, hold ? hold : dp_ack_delay_ns(r->thin), now);
}

/* Keeps the telemetry that the next acknowledgement will echo. */
static void keep_hops(struct dp_echo *e, const uint8_t *room, uint32_t records)
{
	uint32_t n = room[0];

	if (!n || n > records)
		return;
	memcpy(e->record, room + DP_ROOM_HEAD_LEN, n * DP_HOP_LEN);
	e->n = n;
	e->fresh = true;
}

void dp_reorder_rx(struct dp_rc *rc, const struct dp_packet *pkt, const struct dp_parsed *p,
		   uint64_t now)
{
	struct dp_responder *r = &rc->resp;
	int32_t ahead = dp_psn_diff(p->psn, r->epsn);
	uint32_t window = rc->qp.engine->cfg.window_psns, n_psn = psns_of(rc, p);
	struct dp_xdh xdh;
	bool news;

	if (!n_psn || n_psn > window || ahead + (int32_t)n_psn > (int32_t)window ||
	    ahead < -(int32_t)window)
		return;
	dp_xdh_get(p->xdh, &xdh);
	if (xdh.ack)
		dp_ext_carried_ack(rc, p, &xdh, now);
	r->thin = (uint8_t)xdh.thin;
	r->ts_ns = xdh.ts_ns;
	r->ts_at_ns = dp_arrived(p, now);
	if (p->room && rc->echo)
		keep_hops(rc->echo, p->room, xdh.records);
	if ((pkt->tos & DP_ECN_MASK) == DP_ECN_CE)
		dp_reorder_marked(rc, p->psn);
	if (ahead > 0 && dp_rx_test(rc, p->psn)) {
		rc->qp.stats.duplicates++;
		r->duplicates++;
		news = true;
	} else if (ahead + (int32_t)n_psn <= 0) {
		news = again(rc, p, now);
	} else if (ahead > 0) {
		if (take_ahead(rc, p, n_psn, now))
			return;
		rc->qp.stats.out_of_order++;
		/* A gap between paths of different length is no sign of loss. */
		news = opens_gap(r, p->psn, n_psn) && !rc->peer_paths;
	} else {
		news = in_order(rc, p, n_psn, now) && !rc->peer_paths;
	}
	if (rc->qp.state != DP_QPS_ERR)
		schedule_ack(rc, p, news, now);
}

void dp_reorder_trimmed(struct dp_rc *rc, const struct dp_parsed *p, uint64_t now)
{
	uint32_t n = p->mask & DP_IS_BUNDLE ? dp_xdh_parts(p->xdh) : 1, i;
	bool news = false;

	for (i = 0; i < n && i < DP_BUNDLE_MAX; i++)
		news |= dp_rx_trimmed(rc, dp_psn_add(p->psn, i));
	if (news)
		tell_news(rc, now);
}
