/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The invariants of the engine's state, for tests and fuzzers.
 *
 * Every function returns the first invariant that does not hold, in words, or
 * NULL.  An invariant says what holds between two calls of the engine, not
 * within one.
 */
#include "core/internal.h"

#define MUST(condition, words)                                                                     \
	do {                                                                                       \
		if (!(condition))                                                                  \
			return words;                                                              \
	} while (0)

static bool connected(const struct dp_qp *qp)
{
	return qp->state == DP_QPS_RTR || qp->state == DP_QPS_RTS || qp->state == DP_QPS_SQD;
}

static bool requests(const struct dp_qp *qp)
{
	return qp->state == DP_QPS_RTS || qp->state == DP_QPS_SQD;
}

/* ---- lists of the engine ---------------------------------------------------------------- */

/* What all QPs together have. */
struct totals {
	uint32_t qps, ready;
	uint32_t tx, rx, answers; /* blocks of the pools */
};

static const char *check_transmit_list(const struct dp_engine *e, const struct totals *all)
{
	const struct dp_qp *qp, *last = NULL;
	uint32_t listed = 0;

	for (qp = e->ready_head; qp; last = qp, qp = qp->ready_next) {
		MUST(qp->ready, "a QP in the transmit list is not marked ready");
		MUST(dp_find_qp(e, qp->qpn) == qp, "the transmit list holds a QP that is gone");
		MUST(++listed <= e->n_qps, "the transmit list has a loop");
	}
	MUST(e->ready_tail == last || !e->ready_head, "the transmit list has lost its end");
	MUST(all->ready == listed, "a QP is marked ready and not in the transmit list");
	return NULL;
}

static const char *check_events(const struct dp_engine *e)
{
	const struct dp_event_node *n, *last = NULL;
	uint32_t listed = 0;

	for (n = e->event_head; n; last = n, n = n->next) {
		MUST(n->pending, "an object in the event list has no event");
		MUST(++listed <= e->n_qps + e->n_cqs, "the event list has a loop");
	}
	MUST(e->event_tail == last || !e->event_head, "the event list has lost its end");
	return NULL;
}

static uint32_t pool_count(const struct dp_pool *p)
{
	const void *b = p->free;
	uint32_t n = 0;

	for (; b; n++)
		memcpy(&b, b, sizeof(b));
	return n;
}

/* Each QP has put one block of each kind into the engine's own store. */
static const char *check_pools(const struct dp_engine *e, const struct totals *all)
{
	const struct dp_store *s = e->store;

	if (s != &e->own)
		return NULL;
	MUST(pool_count(&s->tx) + all->tx == e->n_qps, "a block of send records is lost");
	MUST(pool_count(&s->rx) + all->rx == e->n_qps, "a block of packets ahead is lost");
	MUST(pool_count(&s->answers) + all->answers == e->n_qps, "a block of answers is lost");
	return NULL;
}

static const char *check_memory(const struct dp_engine *e)
{
	uint32_t i;

	for (i = 0; i < e->mr_cap; i++) {
		if (!e->mrs[i])
			continue;
		MUST(i, "key 0 is in use");
		MUST(e->mrs[i]->key >> 16 == i, "a key does not name its slot");
		MUST(e->mrs[i]->pd->engine == e && e->mrs[i]->pd->users, "memory has lost its PD");
	}
	return NULL;
}

static const char *check_cq(const struct dp_cq *cq)
{
	MUST(cq->users, "a QP's CQ does not count it as a user");
	MUST(cq->tail - cq->head <= cq->mask + 1, "a CQ holds more than it has room for");
	return NULL;
}

/* ---- queues ------------------------------------------------------------------------------- */

static const char *check_queues(const struct dp_qp *qp)
{
	uint32_t posted = qp->sq_pi - qp->sq_ci;

	MUST(posted <= qp->sq_mask + 1, "more send requests than the queue holds");
	MUST(qp->rq_pi - qp->rq_ci <= qp->rq_mask + 1, "more receives than the queue holds");
	MUST(qp->sq_tx - qp->sq_ci <= posted, "the request being sent is not in the queue");
	if (qp->state == DP_QPS_SQD)
		MUST(qp->sq_drain - qp->sq_ci <= posted, "the drain ends outside of the queue");
	if (qp->state == DP_QPS_ERR)
		MUST(!posted && qp->rq_pi == qp->rq_ci, "a QP in error has requests left");
	if (connected(qp))
		MUST(qp->resp.rq_seq == qp->rq_ci, "completed receives and messages differ");
	return NULL;
}

/* PSNs run through the send queue without gaps, and what was sent lies within it. */
static const char *check_numbers(const struct dp_qp *qp)
{
	const struct dp_requester *r = &qp->req;
	uint32_t i, answers = 0, psn = r->snd_una;
	const struct dp_swqe *wqe;

	for (i = qp->sq_ci; i != qp->sq_pi; i++) {
		wqe = dp_sq(qp, i);
		if (i == qp->sq_ci)
			MUST(dp_psn_diff(r->snd_una, wqe->first_psn) >= 0 &&
				     dp_psn_diff(r->snd_una, wqe->first_psn) < (int32_t)wqe->n_psn,
			     "the oldest unacknowledged PSN is not of the oldest request");
		else
			MUST(wqe->first_psn == psn, "the PSNs of the send queue have a gap");
		MUST(wqe->n_psn && wqe->base <= wqe->len, "a request without PSNs");
		psn = dp_psn_add(wqe->first_psn, wqe->n_psn);
		answers += wqe->started;
		MUST(!wqe->started || dp_is_answered(wqe->opcode), "a request waits for no answer");
	}
	MUST(psn == r->post_psn, "the next PSN to be posted is wrong");
	MUST(answers == r->rd_outstanding, "READs and atomics under way are counted wrong");
	MUST(dp_psn_diff(r->snd_nxt, r->snd_una) >= 0 && dp_psn_diff(r->snd_max, r->snd_nxt) >= 0 &&
		     dp_psn_diff(r->post_psn, r->snd_max) >= 0,
	     "una, nxt, max and the next PSN to be posted are out of order");
	if (qp->sq_tx != qp->sq_pi) {
		wqe = dp_sq(qp, qp->sq_tx);
		MUST(dp_psn_diff(r->snd_nxt, wqe->first_psn) >= 0 &&
			     dp_psn_diff(r->snd_nxt, wqe->first_psn) < (int32_t)wqe->n_psn,
		     "the next PSN is not of the request being sent");
	}
	return NULL;
}

/* ---- extended mode: records --------------------------------------------------------------- */

static unsigned classes(const struct dp_tx_block *b)
{
	return b->paths + 2;
}

static const struct dp_rec *rec_at(const struct dp_qp *qp, uint32_t psn)
{
	return &qp->req.block->rec[psn & (qp->window - 1)];
}

static bool has_psn(const struct dp_qp *qp, uint32_t index, uint32_t psn)
{
	const struct dp_swqe *wqe = dp_sq(qp, index);

	return index - qp->sq_ci < qp->sq_pi - qp->sq_ci && dp_psn_diff(psn, wqe->first_psn) >= 0 &&
	       dp_psn_diff(psn, wqe->first_psn) < (int32_t)wqe->n_psn;
}

struct tally {
	uint32_t flight, lost;
	uint64_t bytes;
};

static const char *check_records(const struct dp_qp *qp, struct tally *t)
{
	const struct dp_requester *r = &qp->req;
	uint32_t psn, n = (uint32_t)dp_psn_diff(r->snd_nxt, r->snd_una);
	const struct dp_rec *rec;

	MUST(n <= qp->window, "more PSNs in flight than the window has records for");
	MUST(rec_at(qp, r->snd_una)->state != DP_REC_DONE, "the oldest PSN is delivered");
	for (psn = r->snd_una; psn != r->snd_nxt; psn = dp_psn_add(psn, 1)) {
		rec = rec_at(qp, psn);
		MUST(rec->state != DP_REC_NONE, "a PSN that was sent has no record");
		MUST(has_psn(qp, rec->wqe, psn),
		     "a record names a request that does not hold its PSN");
		MUST(rec->response == dp_is_answered(dp_sq(qp, rec->wqe)->opcode),
		     "a record waits for the wrong thing");
		t->flight += rec->state == DP_REC_FLIGHT;
		t->lost += rec->state == DP_REC_LOST;
		t->bytes += rec->state == DP_REC_FLIGHT ? rec->len : 0;
	}
	return NULL;
}

/* Walks one list; returns how many records of it are in state `state`. */
static const char *check_list(const struct dp_qp *qp, const struct dp_rec_list *l, uint8_t state,
			      uint32_t *n)
{
	const struct dp_tx_block *b = qp->req.block;
	uint16_t i, prev = DP_NIL;
	uint32_t steps = 0;

	for (i = l->head; i != DP_NIL; prev = i, i = b->rec[i].next) {
		MUST(i < qp->window && ++steps <= qp->window, "a list of records is broken");
		MUST(b->rec[i].prev == prev, "a list of records does not lead back");
		MUST(b->rec[i].state == state, "a record is in the wrong list");
		if (state == DP_REC_FLIGHT && prev != DP_NIL)
			MUST(b->rec[i].sent_ns >= b->rec[prev].sent_ns, "a list is out of order");
	}
	MUST(l->tail == prev, "a list of records has lost its end");
	*n += steps;
	return NULL;
}

static const char *check_block(const struct dp_qp *qp)
{
	const struct dp_tx_block *b = qp->req.block;
	uint32_t flight = 0, lost = 0;
	struct tally t = { 0 };
	const char *why;
	unsigned kind;

	why = check_records(qp, &t);
	for (kind = 0; !why && kind < classes(b); kind++)
		why = check_list(qp, &b->rack[kind].flight, DP_REC_FLIGHT, &flight);
	if (!why)
		why = check_list(qp, &b->lost, DP_REC_LOST, &lost);
	if (why)
		return why;
	MUST(flight == t.flight && lost == t.lost, "a record is in no list");
	MUST(t.bytes == qp->flow.inflight_bytes, "the bytes in flight are counted wrong");
	return NULL;
}

static const char *check_requester(const struct dp_qp *qp)
{
	const struct dp_requester *r = &qp->req;
	uint32_t psns = (uint32_t)dp_psn_diff(r->snd_nxt, r->snd_una);
	const char *why = check_numbers(qp);

	if (why)
		return why;
	if (!qp->extended) {
		MUST(!r->block, "standard mode with records of extended mode");
		MUST(qp->flow.inflight_bytes == (uint64_t)psns * qp->attr.path_mtu,
		     "the bytes in flight are counted wrong");
		return NULL;
	}
	MUST(qp->hello_done, "extended mode without a peer that agreed to it");
	MUST(!!r->block == !!psns, "records without packets in flight, or the reverse");
	MUST(!psns || r->timer_ns || r->rnr_until_ns, "packets in flight and no time-out");
	return r->block ? check_block(qp) : NULL;
}

/* ---- responder ----------------------------------------------------------------------------- */

static const char *check_ahead(const struct dp_qp *qp)
{
	const struct dp_rx_block *b = qp->resp.block;
	uint32_t window = qp->engine->cfg.window_psns, bits = 0, i;

	MUST(b->trimmed.n <= DP_LIST_MAX && b->marked.n <= DP_LIST_MAX,
	     "a list of PSNs is too long");
	for (i = 0; i < 32; i++) {
		MUST(i < window / 64 || !b->bits[i], "a bit beyond the window");
		bits += (uint32_t)__builtin_popcountll(b->bits[i]);
	}
	MUST(bits == b->count, "the packets ahead are counted wrong");
	i = qp->resp.epsn & (window - 1);
	MUST(!connected(qp) || !(b->bits[i / 64] >> (i % 64) & 1), "the expected PSN has arrived");
	return NULL;
}

static const char *check_answers(const struct dp_qp *qp)
{
	const struct dp_answers *q = qp->resp.answers;
	const struct dp_answer *a;
	uint32_t i;

	MUST(q->tail - q->head <= DP_READ_QUEUE, "more answers than the queue holds");
	for (i = q->head; i != q->tail; i++) {
		a = &q->ring[i % DP_READ_QUEUE];
		MUST(a->done < a->n_psn, "an answer that has left is still queued");
		MUST(dp_psn_diff(dp_psn_add(a->psn, a->n_psn), qp->resp.epsn) <= 0,
		     "an answer for a request that has not come");
	}
	return NULL;
}

static const char *check_responder(const struct dp_qp *qp)
{
	const struct dp_responder *r = &qp->resp;
	const char *why = NULL;

	MUST((uint32_t)(r->expected & DP_PSN_MASK) == r->epsn || !connected(qp),
	     "the expected PSN is counted wrong");
	if (r->block)
		why = check_ahead(qp);
	if (!why && r->answers)
		why = check_answers(qp);
	return why;
}

/* ---- timers and the whole ------------------------------------------------------------------- */

/* The earliest time at which the QP wants to be looked at; see dp_qp_rearm(). */
static const char *check_timer(const struct dp_qp *qp)
{
	const struct dp_requester *r = &qp->req;
	bool waits = r->rnr_until_ns || r->timer_ns || r->tlp_ns || r->reorder_ns ||
		     qp->resp.ack_ns || qp->flow.paced;

	MUST(qp->ready || !waits || !requests(qp) || dp_timer_armed(&qp->timer),
	     "a QP waits for a time and has no timer");
	return NULL;
}

static const char *check_qp(const struct dp_qp *qp)
{
	const char *why;

	MUST(qp->pd->users, "a QP's PD does not count it as a user");
	if ((why = check_cq(qp->send_cq)) || (why = check_cq(qp->recv_cq)) ||
	    (why = check_queues(qp)) || (why = check_responder(qp)) || (why = check_timer(qp)))
		return why;
	if (requests(qp))
		return check_requester(qp);
	MUST(!qp->req.block, "a QP that sends nothing holds records");
	return NULL;
}

static const char *check_qps(const struct dp_engine *e, struct totals *all)
{
	const struct dp_qp *qp;
	const char *why;
	uint32_t i;

	for (i = 0; i < DP_MAX_QPS && all->qps < e->n_qps; i++) {
		if (!e->qps[i / DP_QP_PAGE])
			i |= DP_QP_PAGE - 1;
		qp = dp_find_qp(e, i);
		if (!qp)
			continue;
		why = check_qp(qp);
		if (why)
			return why;
		all->qps++;
		all->ready += qp->ready;
		all->tx += !!qp->req.block;
		all->rx += !!qp->resp.block;
		all->answers += !!qp->resp.answers;
	}
	MUST(all->qps == e->n_qps, "a QP cannot be found by its number");
	return NULL;
}

const char *dp_engine_check(const struct dp_engine *e)
{
	struct totals all = { 0 };
	const char *why = check_qps(e, &all);

	if (why || (why = check_transmit_list(e, &all)) || (why = check_events(e)) ||
	    (why = check_memory(e)))
		return why;
	return check_pools(e, &all);
}
