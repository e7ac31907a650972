// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The invariants of reliable connections; see engine/check.c. */
#include "engine/check.h"
#include "engine/rc/answers.h"
#include "engine/rc/credit.h"
#include "engine/rc/received.h"
#include "engine/rc/scoreboard.h"

/* PSNs run through the send queue without gaps, and all PSNs that were sent lie within it. */
static const char *check_numbers(const struct dp_rc *rc)
{
	const struct dp_requester *r = &rc->req;
	uint32_t i, answers = 0, psn = r->snd_una;
	uint64_t queued = 0; /* PSNs from snd_una on, which may be more than there are */
	const struct dp_swqe *wqe;

	for (i = rc->qp.sq_ci; i != rc->qp.sq_pi; i++) {
		wqe = dp_sq(&rc->qp, i);
		if (i == rc->qp.sq_ci)
			MUST(dp_psn_diff(r->snd_una, wqe->first_psn) >= 0 &&
				     dp_psn_diff(r->snd_una, wqe->first_psn) < (int32_t)wqe->n_psn,
			     "the oldest unacknowledged PSN is not of the oldest request");
		else
			MUST(wqe->first_psn == psn, "the PSNs of the send queue have a gap");
		MUST(wqe->n_psn && wqe->base <= wqe->len, "a request without PSNs");
		queued += wqe->n_psn - (uint32_t)dp_psn_diff(psn, wqe->first_psn);
		psn = dp_psn_add(wqe->first_psn, wqe->n_psn);
		answers += wqe->started;
		MUST(!wqe->started || dp_is_answered(wqe->opcode), "a request waits for no answer");
	}
	MUST(psn == r->post_psn, "the next PSN to be posted is wrong");
	MUST(answers == rc->qp.rd_outstanding, "READs and atomics under way are counted wrong");
	MUST(dp_psn_diff(r->snd_nxt, r->snd_una) >= 0 && dp_psn_diff(r->snd_max, r->snd_nxt) >= 0 &&
		     (uint32_t)dp_psn_diff(r->snd_max, r->snd_una) <= queued,
	     "una, nxt, max and the next PSN to be posted are out of order");
	if (rc->qp.sq_tx != rc->qp.sq_pi) {
		wqe = dp_sq(&rc->qp, rc->qp.sq_tx);
		MUST(dp_psn_diff(r->snd_nxt, wqe->first_psn) >= 0 &&
			     dp_psn_diff(r->snd_nxt, wqe->first_psn) < (int32_t)wqe->n_psn,
		     "the next PSN is not of the request being sent");
	}
	return NULL;
}

/* ---- extended mode: records --------------------------------------------------------------- */

/* Every PSN in flight has a page, and no other page exists.  One exception: a page that was made
 * for a packet which then could not be sent. */
static const char *check_tx_pages(const struct dp_rc *rc)
{
	const struct dp_requester *r = &rc->req;
	uint32_t n = (uint32_t)dp_psn_diff(r->snd_nxt, r->snd_una), i, made = 0;
	uint32_t first = r->snd_una & (rc->window - 1), pages = dp_pages(rc->window);

	MUST(n <= rc->window, "more PSNs in flight than the window has records for");
	for (i = 0; i < pages; i++)
		made += !!r->block->page[i];
	MUST(made == r->block->pages, "the pages of records are counted wrong");
	for (i = 0; i < n; i += DP_PAGE_PSNS)
		MUST(r->block->page[((first + i) & (rc->window - 1)) / DP_PAGE_PSNS],
		     "a PSN in flight has no page");
	MUST(!n || r->block->page[((first + n - 1) & (rc->window - 1)) / DP_PAGE_PSNS],
	     "the newest PSN has no page");
	MUST(made <= (first % DP_PAGE_PSNS + n) / DP_PAGE_PSNS + 2, "pages of records are kept");
	return NULL;
}

static bool has_psn(const struct dp_rc *rc, uint32_t index, uint32_t psn)
{
	const struct dp_swqe *wqe = dp_sq(&rc->qp, index);

	return index - rc->qp.sq_ci < rc->qp.sq_pi - rc->qp.sq_ci &&
	       dp_psn_diff(psn, wqe->first_psn) >= 0 &&
	       dp_psn_diff(psn, wqe->first_psn) < (int32_t)wqe->n_psn;
}

struct tally {
	uint32_t flight, lost;
	uint64_t bytes;
};

static const char *check_records(const struct dp_rc *rc, struct tally *t)
{
	const struct dp_requester *r = &rc->req;
	const struct dp_rec *rec;
	uint32_t psn;

	MUST(dp_rec_at(rc, r->snd_una)->state != DP_REC_DONE, "the oldest PSN is delivered");
	for (psn = r->snd_una; psn != r->snd_nxt; psn = dp_psn_add(psn, 1)) {
		rec = dp_rec_at(rc, psn);
		MUST(rec->state != DP_REC_NONE, "a PSN that was sent has no record");
		MUST(has_psn(rc, rec->wqe, psn),
		     "a record names a request that does not hold its PSN");
		MUST(rec->response == dp_is_answered(dp_sq(&rc->qp, rec->wqe)->opcode),
		     "a record waits for the wrong thing");
		t->flight += rec->state == DP_REC_FLIGHT;
		t->lost += rec->state == DP_REC_LOST;
		t->bytes += rec->state == DP_REC_FLIGHT ? rec->len : 0;
	}
	return NULL;
}

/* Walks one list; returns how many records of it are in state `state`. */
static const char *check_list(const struct dp_rc *rc, const struct dp_rec_list *l, uint8_t state,
			      uint32_t *n)
{
	const struct dp_tx_block *b = rc->req.block;
	uint32_t i, prev = DP_NIL;
	uint32_t steps = 0;

	for (i = l->head; i != DP_NIL; prev = i, i = dp_rec(b, i)->next) {
		MUST(i < rc->window && ++steps <= rc->window, "a list of records is broken");
		MUST(dp_rec(b, i)->prev == prev, "a list of records does not lead back");
		MUST(dp_rec(b, i)->state == state, "a record is in the wrong list");
		if (state == DP_REC_FLIGHT && prev != DP_NIL)
			MUST(dp_rec(b, i)->sent_ns >= dp_rec(b, prev)->sent_ns,
			     "a list is out of order");
	}
	MUST(l->tail == prev, "a list of records has lost its end");
	*n += steps;
	return NULL;
}

static const char *check_block(const struct dp_rc *rc)
{
	const struct dp_tx_block *b = rc->req.block;
	uint32_t flight = 0, lost = 0, owed = 0;
	struct tally t = { 0 };
	const char *why;
	unsigned kind;

	why = check_tx_pages(rc);
	if (!why)
		why = check_records(rc, &t);
	for (kind = 0; !why && kind < dp_classes(b); kind++)
		why = check_list(rc, &b->class[kind].flight, DP_REC_FLIGHT, &flight);
	if (!why)
		why = check_list(rc, &b->lost, DP_REC_LOST, &lost);
	if (why)
		return why;
	MUST(flight == t.flight && lost == t.lost, "a record is in no list");
	MUST(b->listed == flight + lost, "the records in lists are counted wrong");
	for (kind = 0; kind < b->paths; kind++)
		owed += b->owing >> kind & 1 ? b->owed[kind] : 0;
	MUST(owed == b->owed_all, "the packets that paths are owed are counted wrong");
	MUST(t.bytes == rc->flow->inflight_bytes, "the bytes in flight are counted wrong");
	return NULL;
}

static const char *check_requester(const struct dp_rc *rc)
{
	const struct dp_requester *r = &rc->req;
	uint32_t psns = (uint32_t)dp_psn_diff(r->snd_nxt, r->snd_una);
	const char *why = check_numbers(rc);

	if (why)
		return why;
	if (!rc->extended) {
		MUST(!r->block, "standard mode with records of extended mode");
		MUST((rc->flow ? rc->flow->inflight_bytes : 0) ==
			     (uint64_t)psns * rc->qp.attr.path_mtu,
		     "the bytes in flight are counted wrong");
		return NULL;
	}
	MUST(rc->hello_done, "extended mode without a peer that agreed to it");
	MUST(rc->flow || !psns, "packets in flight of no flow");
	MUST(!!r->block == !!psns, "records without packets in flight, or the reverse");
	MUST(!psns || r->timer_ns || r->rnr_until_ns, "packets in flight and no time-out");
	return r->block ? check_block(rc) : NULL;
}

/* ---- responder ----------------------------------------------------------------------------- */

static const char *check_rx_page(const struct dp_rx_page *page, uint32_t window)
{
	uint32_t bits = 0, i;

	for (i = 0; i < DP_PAGE_PSNS / 64; i++) {
		MUST(i < window / 64 || !page->bits[i], "a bit beyond the window");
		bits += (uint32_t)__builtin_popcountll(page->bits[i]);
	}
	MUST(bits == page->count && bits, "the packets ahead in a page are counted wrong");
	return NULL;
}

static const struct dp_held *held_at(const struct dp_rx_block *b, uint32_t slot)
{
	const struct dp_rx_page *page = b->page[slot / DP_PAGE_PSNS];
	uint32_t i = slot % DP_PAGE_PSNS;

	return page && page->bits[i / 64] >> (i % 64) & 1 ? &page->held[i] : NULL;
}

/* The rest of a READ is answered with its first PSN, so it is held only behind that. */
static const char *check_rests(const struct dp_rx_block *b, uint32_t window)
{
	const struct dp_held *h, *before;
	uint32_t i;

	for (i = 0; i < window; i++) {
		if (!b->page[i / DP_PAGE_PSNS]) {
			i |= DP_PAGE_PSNS - 1;
			continue;
		}
		h = held_at(b, i);
		if (!h || h->kind != DP_HELD_REST)
			continue;
		before = held_at(b, (i - 1) & (window - 1));
		MUST(before && (before->kind == DP_HELD_READ || before->kind == DP_HELD_REST),
		     "the rest of a READ is held without the READ");
	}
	return NULL;
}

static uint32_t rx_pages(const struct dp_rc *rc)
{
	uint32_t i, n = 0;

	for (i = 0; rc->resp.block && i < dp_pages(rc->qp.engine->cfg.window_psns); i++)
		n += !!rc->resp.block->page[i];
	return n;
}

static const char *check_ahead(const struct dp_rc *rc)
{
	const struct dp_rx_block *b = rc->resp.block;
	uint32_t window = rc->qp.engine->cfg.window_psns, bits = 0, i;
	const char *why;

	MUST(b->trimmed.n <= DP_LIST_MAX && b->marked.n <= DP_LIST_MAX,
	     "a list of PSNs is too long");
	for (i = 0; i < dp_pages(window); i++) {
		why = b->page[i] ? check_rx_page(b->page[i], window) : NULL;
		if (why)
			return why;
		bits += b->page[i] ? b->page[i]->count : 0;
	}
	MUST(bits == b->count, "the packets ahead are counted wrong");
	MUST(bits || !b->spans.root, "memory of no packets ahead");
	why = dp_spans_check(&b->spans);
	if (why)
		return why;
	i = rc->resp.epsn & (window - 1);
	MUST(!dp_qp_receives(&rc->qp) || !held_at(b, i), "the expected PSN has arrived");
	return check_rests(b, window);
}

static const char *check_answers(const struct dp_rc *rc)
{
	const struct dp_answers *q = rc->resp.answers;
	const struct dp_answer *a;
	uint32_t i;

	MUST(q->tail - q->head <= DP_READ_QUEUE, "more answers than the queue holds");
	for (i = q->head; i != q->tail; i++) {
		a = &q->ring[i % DP_READ_QUEUE];
		MUST(a->done < a->n_psn, "an answer that has left is still queued");
		MUST(dp_psn_diff(dp_psn_add(a->psn, a->n_psn), rc->resp.epsn) <= 0,
		     "an answer for a request that has not come");
	}
	return NULL;
}

static const char *check_responder(const struct dp_rc *rc)
{
	const struct dp_responder *r = &rc->resp;
	const char *why = NULL;

	MUST((uint32_t)(r->expected & DP_PSN_MASK) == r->epsn || !dp_qp_receives(&rc->qp),
	     "the expected PSN is counted wrong");
	MUST(dp_psn_diff(r->highest, r->epsn) >= 0 || !dp_qp_receives(&rc->qp),
	     "the highest PSN is behind the expected one");
	if (r->block)
		why = check_ahead(rc);
	if (!why && r->answers)
		why = check_answers(rc);
	return why;
}

/* The QP's timer fires no later than its earliest deadline; see dp_qp_rearm(). */
static const char *check_timer(const struct dp_rc *rc)
{
	const struct dp_requester *r = &rc->req;
	const struct dp_sender *s = rc->sender;
	bool waits = r->rnr_until_ns || r->timer_ns || (s && (s->tlp_ns || s->reorder_ns)) ||
		     rc->resp.ack_ns || (rc->flow && rc->flow->paced);

	MUST(rc->qp.ready || !waits || !dp_qp_sends(&rc->qp) || dp_timer_armed(&rc->qp.timer),
	     "a QP waits for a time and has no timer");
	return NULL;
}

const char *dp_rc_check(const struct dp_qp *qp)
{
	const struct dp_rc *rc = dp_rc_of_const(qp);
	const char *why;

	if (dp_qp_receives(qp))
		MUST(rc->resp.rq_seq == qp->rq.ci, "completed receives and messages differ");
	if ((why = check_responder(rc)) || (why = check_timer(rc)) || (why = dp_credit_check(rc)))
		return why;
	if (dp_qp_sends(qp))
		return check_requester(rc);
	MUST(!rc->req.block, "a QP that sends nothing holds records");
	return NULL;
}

/* ---- the store ------------------------------------------------------------------ */

/* Blocks of the pools in use. */
struct used {
	uint32_t tx, tx_pages, rx, rx_pages, spans, answers;
};

static void count_blocks(const struct dp_engine *e, struct used *all)
{
	const struct dp_rc *rc;
	const struct dp_qp *qp;
	uint32_t i;

	for (i = 0; i < DP_QPN_SPACE; i++) {
		if (!e->qps[i / DP_QP_PAGE])
			i |= DP_QP_PAGE - 1;
		qp = dp_find_qp(e, i);
		if (!qp || qp->ops != &dp_rc_ops)
			continue;
		rc = dp_rc_of_const(qp);
		all->tx += !!rc->req.block;
		all->tx_pages += rc->req.block ? rc->req.block->pages : 0;
		all->rx += !!rc->resp.block;
		all->rx_pages += rx_pages(rc);
		all->spans += rc->resp.block ? rc->resp.block->spans.n : 0;
		all->answers += !!rc->resp.answers;
	}
}

static bool whole(const struct dp_pool *p, uint32_t used)
{
	const void *b = p->free;
	uint32_t n = 0;

	for (; b && n <= p->made; n++)
		memcpy(&b, b, sizeof(b));
	return n == p->idle && n + used == p->made && n <= p->keep;
}

const char *dp_store_check(const struct dp_engine *e)
{
	const struct dp_store *s = e->store;
	struct used all = { 0 };

	/* In a store that several engines share, the blocks of one engine cannot be told apart. */
	if (s != e->own)
		return NULL;
	count_blocks(e, &all);
	MUST(whole(&s->tx, all.tx), "a block of send records is lost");
	MUST(whole(&s->tx_page, all.tx_pages), "a page of send records is lost");
	MUST(whole(&s->rx, all.rx), "a block of packets ahead is lost");
	MUST(whole(&s->rx_page, all.rx_pages), "a page of packets ahead is lost");
	MUST(whole(&s->span, all.spans), "a span of memory is lost");
	MUST(whole(&s->answers, all.answers), "a block of answers is lost");
	return NULL;
}
