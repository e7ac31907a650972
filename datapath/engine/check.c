/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The invariants of the engine's state, for tests and fuzzers.
 *
 * Every function returns the first invariant that does not hold, in words, or
 * NULL.  An invariant says what holds between two calls of the engine, not
 * within one.
 */
#include "engine/check.h"
#include "engine/granting.h"
#include "engine/qp.h"
#include "engine/rc/store.h"
#include "engine/multicast.h"

/* ---- lists of the engine ---------------------------------------------------------------- */

/* Sums over all QPs. */
struct totals {
	uint32_t qps, ready;
};

static const char *check_transmit_list(const struct dp_engine *e, const struct totals *all)
{
	const struct dp_qp *qp, *last;
	uint32_t listed = 0, rank;

	for (rank = 0; rank < DP_RANKS; rank++) {
		const struct dp_qp_list *l = &e->ready[rank];

		last = NULL;
		for (qp = l->head; qp; last = qp, qp = qp->ready_next) {
			MUST(qp->ready, "a QP in the transmit list is not marked ready");
			MUST(qp->rank == rank, "a QP is in the transmit list of another rank");
			MUST(dp_find_qp(e, qp->qpn) == qp,
			     "the transmit list holds a QP that is gone");
			MUST(++listed <= e->n_qps, "the transmit list has a loop");
		}
		MUST(l->tail == last || !l->head, "the transmit list has lost its end");
		MUST(!l->head == !(e->ready_mask >> rank & 1),
		     "a rank of the transmit list is lost");
	}
	MUST(all->ready == listed, "a QP is marked ready and not in the transmit list");
	return NULL;
}

static const char *check_events(const struct dp_engine *e)
{
	const struct dp_event_node *n, *last = NULL;
	uint32_t listed = 0;

	for (n = e->event_head; n; last = n, n = n->next) {
		MUST(n->pending, "an object in the event list has no event");
		MUST(++listed <= e->n_qps + e->n_cqs + e->n_srqs, "the event list has a loop");
	}
	MUST(e->event_tail == last || !e->event_head, "the event list has lost its end");
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
		MUST(!e->mrs[i]->region || (e->mrs[i]->window && e->mrs[i]->region->windows),
		     "a window does not count in its region");
		MUST(e->mrs[i]->pd->engine == e && e->mrs[i]->pd->users, "memory has lost its PD");
	}
	return NULL;
}

static const char *check_cq(const struct dp_cq *cq)
{
	MUST(cq->users, "a QP's CQ does not count it as a user");
	MUST(cq->tail - cq->head <= cq->mask + 1, "a CQ holds more than it has room for");
	MUST(cq->armed || !cq->pending, "a CQ has an event to raise, and is not armed");
	MUST(cq->pending || !dp_timer_armed(&cq->timer), "a CQ waits, and has no event to raise");
	return NULL;
}

/* ---- queues ------------------------------------------------------------------------------- */

static const char *check_queues(const struct dp_qp *qp)
{
	uint32_t posted = qp->sq_pi - qp->sq_ci;

	MUST(posted + dp_locals_waiting(qp) <= qp->sq_mask + 1,
	     "more send requests than the queue holds");
	MUST(dp_receives_count(&qp->rq) <= qp->rq.mask + 1, "more receives than the queue holds");
	if (qp->srq)
		MUST(qp->srq->users && dp_receives_count(&qp->rq) <= qp->srq->lent,
		     "a QP holds receives that its shared queue has not lent");
	MUST(qp->sq_tx - qp->sq_ci <= posted, "the request being sent is not in the queue");
	if (qp->state == DP_QPS_SQD)
		MUST(qp->sq_drain - qp->sq_ci <= posted, "the drain ends outside of the queue");
	if (qp->state == DP_QPS_SQE)
		MUST(!posted, "a QP in SQE has requests to send left");
	if (qp->state == DP_QPS_ERR)
		MUST(!posted && !dp_receives_count(&qp->rq), "a QP in error has requests left");
	return NULL;
}

/* ---- the whole ------------------------------------------------------------------- */

static const char *check_qp(const struct dp_qp *qp)
{
	const char *why;

	MUST(qp->pd->users, "a QP's PD does not count it as a user");
	if ((why = check_cq(qp->send_cq)) || (why = check_cq(qp->recv_cq)) ||
	    (why = check_queues(qp)))
		return why;
	return qp->ops->check(qp);
}

static const char *check_qps(const struct dp_engine *e, struct totals *all)
{
	const struct dp_qp *qp;
	const char *why;
	uint32_t i;

	for (i = 0; i < DP_QPN_SPACE && all->qps < e->n_qps; i++) {
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
	}
	MUST(all->qps == e->n_qps, "a QP cannot be found by its number");
	return NULL;
}

const char *dp_engine_check(const struct dp_engine *e)
{
	struct totals all = { 0 };
	const char *why = check_qps(e, &all);

	if (why || (why = check_transmit_list(e, &all)) || (why = check_events(e)) ||
	    (why = check_memory(e)) || (why = dp_multicast_check(e)) ||
	    (why = dp_granting_check(e)))
		return why;
	return dp_store_check(e);
}
