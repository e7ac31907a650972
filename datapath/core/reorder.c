// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Responder of the extended mode.  Every packet says where it belongs, so its
 * payload is placed when it arrives; what a message's end has to do (complete
 * a receive, run a READ or an atomic) waits until all before it has arrived,
 * and so do the last bytes of a message, since programs watch them.
 *
 * A packet that cannot be taken out of order (no receive posted yet, or an
 * error that has to be told in order) is dropped and comes again.
 */
#include "core/internal.h"

/* ---- the set of PSNs received ahead ------------------------------------------------ */

static bool test_bit(const struct dp_qp *qp, uint32_t psn)
{
	uint32_t i = psn & (qp->engine->cfg.window_psns - 1);

	return qp->resp.block && qp->resp.block->bits[i / 64] >> (i % 64) & 1;
}

static void set_bit(struct dp_qp *qp, uint32_t psn)
{
	uint32_t i = psn & (qp->engine->cfg.window_psns - 1);

	qp->resp.block->bits[i / 64] |= 1ull << (i % 64);
	qp->resp.block->count++;
}

static struct dp_held *held_at(struct dp_qp *qp, uint32_t psn)
{
	return &qp->resp.block->held[psn & (qp->engine->cfg.window_psns - 1)];
}

/* Gives the block back if nothing is in it. */
static void block_put(struct dp_qp *qp)
{
	struct dp_rx_block *b = qp->resp.block;

	if (b->count || b->trimmed.n || b->marked.n)
		return;
	dp_pool_put(&qp->engine->store->rx, b);
	qp->resp.block = NULL;
}

static void clear_bit(struct dp_qp *qp, uint32_t psn)
{
	uint32_t i = psn & (qp->engine->cfg.window_psns - 1);
	struct dp_rx_block *b = qp->resp.block;

	b->bits[i / 64] &= ~(1ull << (i % 64));
	b->count--;
	block_put(qp);
}

static bool block_get(struct dp_qp *qp)
{
	struct dp_rx_block *b = dp_pool_get(&qp->engine->store->rx);

	if (!b)
		return false;
	b->count = b->trimmed.n = b->marked.n = 0;
	memset(b->bits, 0, sizeof(b->bits));
	qp->resp.block = b;
	return true;
}

/* ---- PSNs for the next acknowledgement ---------------------------------------------- */

static void list_add(struct dp_psn_list *l, uint32_t psn)
{
	uint32_t i;

	for (i = 0; i < l->n; i++)
		if (l->psn[i] == psn)
			return;
	if (l->n < DP_LIST_MAX)
		l->psn[l->n++] = psn;
}

void dp_reorder_told(struct dp_qp *qp)
{
	qp->resp.block->trimmed.n = qp->resp.block->marked.n = 0;
	block_put(qp);
}

void dp_reorder_trimmed(struct dp_qp *qp, const struct dp_parsed *p)
{
	struct dp_responder *r = &qp->resp;
	int32_t ahead = dp_psn_diff(p->psn, r->epsn);

	if (ahead < 0 || ahead >= (int32_t)qp->engine->cfg.window_psns || test_bit(qp, p->psn))
		return;
	if (!r->block && !block_get(qp))
		return;
	list_add(&r->block->trimmed, p->psn);
	r->ack_now = true;
	dp_qp_wake(qp);
}

/* Which path a mark belongs to is known to the sender, by the PSN. */
static void note_mark(struct dp_qp *qp, uint32_t psn)
{
	qp->resp.marked++;
	if (qp->peer_paths && (qp->resp.block || block_get(qp)))
		list_add(&qp->resp.block->marked, psn);
}

unsigned dp_reorder_sack(const struct dp_qp *qp, uint32_t *base, uint8_t *words)
{
	const struct dp_rx_block *b = qp->resp.block;
	uint32_t window = qp->engine->cfg.window_psns, seen = 0, word, i;
	unsigned w, used = 0;

	*base = qp->resp.epsn & ~31u;
	if (!b)
		return 0;
	/* The last word of the window shares its place with the first: what lies
	 * there is told when epsn has moved on. */
	for (w = 0; w < window / 32 && seen < b->count; w++) {
		i = (*base + 32 * w) & (window - 1);
		word = (uint32_t)(b->bits[i / 64] >> (i % 64));
		if (!w)
			word &= ~0u << (qp->resp.epsn & 31);
		seen += (uint32_t)__builtin_popcount(word);
		dp_put32(words + 4 * w, word);
		if (word)
			used = w + 1;
	}
	return used;
}

/* ---- placement --------------------------------------------------------------------------- */

/* The receive that the message will take; NULL: not posted (yet). */
static struct dp_rwqe *recv_of(const struct dp_qp *qp, uint32_t rq_seq)
{
	uint32_t ahead = rq_seq - qp->resp.rq_seq;

	return ahead < qp->rq_pi - qp->rq_ci ? dp_rq(qp, qp->rq_ci + ahead) : NULL;
}

static int place_send(struct dp_qp *qp, const struct dp_parsed *p, const struct dp_held *h,
		      uint32_t len)
{
	struct dp_rwqe *wqe = recv_of(qp, h->rq_seq);

	if (!wqe)
		return dp_rnr_syndrome(qp);
	if (h->offset > wqe->len || p->payload_len + p->payload2_len > wqe->len - h->offset)
		return DP_NAK(DP_NAK_INVALID_REQUEST);
	if (dp_scatter_payload(qp->pd, wqe->sge, wqe->num_sge, h->offset, p, len))
		return DP_NAK(DP_NAK_REMOTE_OPERATION);
	return 0;
}

/* The RETH of an extended WRITE gives the packet's own address and the length
 * of the whole message. */
static int place_write(struct dp_qp *qp, const struct dp_parsed *p, const struct dp_held *h,
		       uint32_t len)
{
	uint32_t whole = p->payload_len + p->payload2_len;
	uint8_t *to;

	if (!(qp->attr.access & DP_ACCESS_REMOTE_WRITE) || h->len > DP_MSG_MAX ||
	    h->offset > h->len || whole > h->len - h->offset)
		return DP_NAK(DP_NAK_INVALID_REQUEST);
	if (p->imm && !recv_of(qp, h->rq_seq))
		return dp_rnr_syndrome(qp);
	to = dp_mr_reach(qp->pd, h->rkey, h->va - h->offset, h->len, DP_ACCESS_REMOTE_WRITE);
	if (!to)
		return DP_NAK(DP_NAK_REMOTE_ACCESS);
	dp_copy_payload(to + h->offset, p, 0, len);
	return 0;
}

/* Places all but the last `tail` bytes of the payload. */
static int place(struct dp_qp *qp, const struct dp_parsed *p, const struct dp_held *h,
		 uint32_t tail)
{
	uint32_t whole = p->payload_len + p->payload2_len;
	int err;

	if (whole > dp_segment_limit(qp))
		return DP_NAK(DP_NAK_INVALID_REQUEST);
	err = p->mask & DP_IS_SEND ? place_send(qp, p, h, whole - tail) :
				     place_write(qp, p, h, whole - tail);
	if (!err)
		qp->stats.rx_bytes += whole;
	return err;
}

static int place_tail(struct dp_qp *qp, const struct dp_held *h)
{
	struct dp_rwqe *wqe;
	uint8_t *to;

	if (!h->tail_len || qp->engine->cfg.no_payload)
		return 0;
	if (dp_opcodes[h->opcode].mask & DP_IS_SEND) {
		wqe = dp_rq(qp, qp->rq_ci);
		return dp_scatter(qp->pd, wqe->sge, wqe->num_sge, h->offset, h->tail, h->tail_len) ?
			       DP_NAK(DP_NAK_REMOTE_OPERATION) :
			       0;
	}
	to = dp_mr_reach(qp->pd, h->rkey, h->va, h->tail_len, DP_ACCESS_REMOTE_WRITE);
	if (!to)
		return DP_NAK(DP_NAK_REMOTE_ACCESS);
	memcpy(to, h->tail, h->tail_len);
	return 0;
}

/* ---- packets ------------------------------------------------------------------------------- */

/* 0: a READ of a size that no requester asks for. */
static uint32_t psns_of(const struct dp_qp *qp, const struct dp_parsed *p)
{
	struct dp_xdh xdh;

	if (!(p->mask & DP_IS_READ))
		return 1;
	dp_xdh_get(p->xdh, &xdh);
	if (xdh.rq_seq < DP_SEGMENT_MIN || xdh.rq_seq > dp_segment_limit(qp) || xdh.rq_seq & 3)
		return 0;
	return dp_read_psns(dp_reth_len(p->reth), xdh.rq_seq);
}

/* Behind a gap: place the payload, remember the rest. */
static int take_ahead(struct dp_qp *qp, const struct dp_parsed *p, uint32_t n_psn, uint64_t now)
{
	uint32_t whole = p->payload_len + p->payload2_len, tail = 0, i;
	struct dp_held h;

	dp_held_from(p, &h, now);
	if (p->mask & DP_IS_LAST)
		tail = whole < DP_TAIL_HELD ? whole : DP_TAIL_HELD;
	if (p->mask & (DP_IS_READ | DP_IS_ATOMIC))
		h.kind = p->mask & DP_IS_READ ? DP_HELD_READ : DP_HELD_ATOMIC;
	else if (place(qp, p, &h, tail))
		return -EAGAIN;
	if (p->mask & DP_IS_LAST && !h.kind) {
		h.kind = DP_HELD_LAST;
		h.tail_len = (uint8_t)tail;
		dp_copy_payload(h.tail, p, whole - tail, tail);
		h.len = h.offset + whole;
		h.va += whole - tail;
		h.offset += whole - tail;
	}
	if (!qp->resp.block && !block_get(qp))
		return -EAGAIN;
	*held_at(qp, p->psn) = h;
	for (i = 0; i < n_psn; i++) {
		if (!test_bit(qp, dp_psn_add(p->psn, i)))
			set_bit(qp, dp_psn_add(p->psn, i));
		if (i)
			held_at(qp, dp_psn_add(p->psn, i))->kind = DP_HELD_NOTHING;
	}
	return 0;
}

/* A message that consumes a receive: it must be the next one's turn, whatever the sender
 * said when the packet was placed. */
static int take_turn(const struct dp_qp *qp, const struct dp_held *h)
{
	if (!(dp_opcodes[h->opcode].mask & (DP_IS_SEND | DP_HAS_IMM)))
		return 0;
	if (h->rq_seq != qp->resp.rq_seq)
		return DP_NAK(DP_NAK_INVALID_REQUEST);
	return recv_of(qp, h->rq_seq) ? 0 : dp_rnr_syndrome(qp);
}

static int run(struct dp_qp *qp, const struct dp_held *h, uint32_t psn)
{
	int err;

	switch (h->kind) {
	case DP_HELD_READ:
		return dp_execute_read(qp, h, psn, true);
	case DP_HELD_ATOMIC:
		return dp_execute_atomic(qp, h, psn, true);
	case DP_HELD_LAST:
		err = take_turn(qp, h);
		if (!err)
			err = place_tail(qp, h);
		return err ? err : dp_finish_message(qp, h);
	default:
		return 0;
	}
}

/* The packet that was missing. */
static int take_expected(struct dp_qp *qp, const struct dp_parsed *p, struct dp_held *h)
{
	uint32_t whole = p->payload_len + p->payload2_len;
	int err;

	if (p->mask & DP_IS_READ)
		return dp_execute_read(qp, h, p->psn, true);
	if (p->mask & DP_IS_ATOMIC)
		return dp_execute_atomic(qp, h, p->psn, true);
	err = p->mask & DP_IS_LAST ? take_turn(qp, h) : 0;
	if (err)
		return err;
	err = place(qp, p, h, 0);
	if (err == DP_NAK(DP_NAK_INVALID_REQUEST) && p->mask & DP_IS_SEND && qp->rq_ci != qp->rq_pi)
		dp_fail_recv(qp, DP_WC_LOC_LEN_ERR);
	else if (err == DP_NAK(DP_NAK_REMOTE_OPERATION))
		dp_fail_recv(qp, DP_WC_LOC_PROT_ERR);
	if (err || !(p->mask & DP_IS_LAST))
		return err;
	h->len = h->offset + whole;
	return dp_finish_message(qp, h);
}

/* Runs what is now in order. */
static void drain(struct dp_qp *qp)
{
	struct dp_responder *r = &qp->resp;
	struct dp_held h;
	int err;

	while (r->block && test_bit(qp, r->epsn)) {
		h = *held_at(qp, r->epsn);
		err = run(qp, &h, r->epsn);
		clear_bit(qp, r->epsn); /* what could not run counts as if it had not come */
		if (err > 0)
			dp_responder_nak(qp, r->epsn, (uint8_t)err);
		if (err)
			return;
		dp_responder_advance(r, 1);
	}
}

/* All of [psn, psn + n) is still to be answered. */
static bool queued(const struct dp_qp *qp, uint32_t psn, uint32_t n)
{
	const struct dp_answers *q = qp->resp.answers;
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

static void again(struct dp_qp *qp, const struct dp_parsed *p, uint64_t now)
{
	struct dp_held h;

	qp->stats.duplicates++;
	dp_held_from(p, &h, now);
	if (p->mask & (DP_IS_READ | DP_IS_ATOMIC) && queued(qp, p->psn, psns_of(qp, p)))
		return;
	if (p->mask & (DP_IS_READ | DP_IS_ATOMIC))
		dp_replay(qp, &h, p->psn, true);
	else
		qp->resp.duplicates++;
	qp->resp.ack_now = true;
}

/* The expected PSN lies in [p->psn, p->psn + n_psn): a READ may ask again for
 * part of what was answered and for part of what was never seen. */
static void in_order(struct dp_qp *qp, const struct dp_parsed *p, uint32_t n_psn, uint64_t now)
{
	struct dp_responder *r = &qp->resp;
	uint32_t end = dp_psn_add(p->psn, n_psn);
	uint32_t known = (uint32_t)dp_psn_diff(r->epsn, p->psn);
	struct dp_held h;
	int err;

	dp_held_from(p, &h, now);
	if (known && !dp_was_accepted(qp, &h, p->psn, known))
		return;
	err = take_expected(qp, p, &h);
	if (err == -EAGAIN)
		return;
	if (err) {
		dp_responder_nak(qp, r->epsn, (uint8_t)err);
		return;
	}
	r->nak_sent = false;
	r->message = 0;
	while (dp_psn_diff(r->epsn, end) < 0) {
		if (test_bit(qp, r->epsn))
			clear_bit(qp, r->epsn);
		dp_responder_advance(r, 1);
	}
	if (r->block && r->block->count) {
		drain(qp);
		r->ack_now = r->ack_now || !qp->peer_paths;
	}
}

/* Notes how far the PSNs received reach; true if this packet leaves some out that
 * were not missing before. */
static bool opens_gap(struct dp_responder *r, uint32_t psn, uint32_t n_psn)
{
	uint32_t end = dp_psn_add(psn, n_psn);
	bool gap;

	if (dp_psn_diff(r->highest, r->epsn) < 0)
		r->highest = r->epsn;
	gap = dp_psn_diff(psn, r->highest) > 0;
	if (dp_psn_diff(end, r->highest) > 0)
		r->highest = end;
	return gap;
}

/* At once when the requester asks for it (as it does for what it sends again)
 * and when a gap opens or is filled; else after a number of packets or a while.  An ACK for
 * each packet behind a gap would cost more than the loss. */
static void schedule_ack(struct dp_qp *qp, const struct dp_parsed *p, uint64_t now)
{
	struct dp_responder *r = &qp->resp;
	bool received = p->mask & DP_IS_LAST && p->mask & (DP_IS_SEND | DP_HAS_IMM);
	uint64_t delay = received ? DP_ACK_HOLD_NS : DP_ACK_DELAY_NS;

	uint32_t every = qp->peer_paths ? DP_PATHS_ACK_EVERY : DP_EXT_ACK_EVERY;

	if (++r->unacked >= every || (p->ack_req && !received))
		r->ack_now = true;
	if (r->ack_now)
		dp_qp_wake(qp);
	else if (!r->ack_ns || r->ack_ns > now + delay)
		r->ack_ns = now + delay;
}

/* Telemetry to be echoed by the next acknowledgement. */
static void keep_hops(struct dp_echo *e, const uint8_t *room, uint32_t records)
{
	uint32_t n = room[0];

	if (!n || n > records)
		return;
	memcpy(e->record, room + DP_ROOM_HEAD_LEN, n * DP_HOP_LEN);
	e->n = n;
	e->fresh = true;
}

void dp_reorder_rx(struct dp_qp *qp, const struct dp_packet *pkt, const struct dp_parsed *p,
		   uint64_t now)
{
	struct dp_responder *r = &qp->resp;
	int32_t ahead = dp_psn_diff(p->psn, r->epsn);
	uint32_t window = qp->engine->cfg.window_psns, n_psn = psns_of(qp, p);
	struct dp_xdh xdh;

	if (!n_psn || n_psn > window || ahead + (int32_t)n_psn > (int32_t)window ||
	    ahead < -(int32_t)window)
		return;
	if (ahead + (int32_t)n_psn > 0)
		dp_peer_is_extended(qp, now);
	dp_xdh_get(p->xdh, &xdh);
	if (xdh.ack)
		dp_ext_carried_ack(qp, &xdh, now);
	r->ts_ns = xdh.ts_ns;
	r->ts_at_ns = now;
	if (p->room && qp->echo)
		keep_hops(qp->echo, p->room, xdh.records);
	if ((pkt->tos & DP_ECN_MASK) == DP_ECN_CE)
		note_mark(qp, p->psn);
	if (ahead + (int32_t)n_psn <= 0 || (ahead > 0 && test_bit(qp, p->psn))) {
		if (ahead > 0) {
			qp->stats.duplicates++;
			r->duplicates++;
			r->ack_now = true;
		} else {
			again(qp, p, now);
		}
	} else if (ahead > 0) {
		if (take_ahead(qp, p, n_psn, now))
			return;
		qp->stats.out_of_order++;
		/* Paths of different length are no sign of loss. */
		if (opens_gap(r, p->psn, n_psn) && !qp->peer_paths)
			r->ack_now = true;
	} else {
		in_order(qp, p, n_psn, now);
	}
	if (qp->state != DP_QPS_ERR)
		schedule_ack(qp, p, now);
}
