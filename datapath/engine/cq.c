// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/cq.h"

int dp_cq_create(struct dp_engine *e, uint32_t entries, void *user, struct dp_cq **out)
{
	struct dp_cq *cq;

	if (!entries || entries > 1u << 22)
		return -EINVAL;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return -ENOMEM;
	cq->ring = calloc(dp_pow2(entries), sizeof(*cq->ring));
	if (!cq->ring) {
		free(cq);
		return -ENOMEM;
	}
	cq->engine = e;
	cq->event.source = DP_SOURCE_CQ;
	cq->timer.owner = DP_TIMER_OF_CQ;
	cq->mask = dp_pow2(entries) - 1;
	cq->entries = entries;
	cq->user = user;
	e->n_cqs++;
	*out = cq;
	return 0;
}

int dp_cq_destroy(struct dp_cq *cq)
{
	if (cq->users)
		return -EBUSY;
	dp_unraise(cq->engine, &cq->event);
	dp_wheel_cancel(&cq->engine->wheel, &cq->timer);
	cq->engine->n_cqs--;
	free(cq->ring);
	free(cq);
	return 0;
}

int dp_cq_resize(struct dp_cq *cq, uint32_t entries)
{
	uint32_t held = cq->tail - cq->head, i;
	struct dp_wc *ring;

	if (!entries || entries > 1u << 22 || entries < held)
		return -EINVAL;
	ring = calloc(dp_pow2(entries), sizeof(*ring));
	if (!ring)
		return -ENOMEM;
	for (i = 0; i < held; i++)
		ring[i] = cq->ring[(cq->head + i) & cq->mask];
	free(cq->ring);
	cq->ring = ring;
	cq->mask = dp_pow2(entries) - 1;
	cq->entries = entries;
	cq->head = 0;
	cq->tail = held;
	return 0;
}

int dp_cq_poll(struct dp_cq *cq, int max, struct dp_wc *out)
{
	int n;

	for (n = 0; n < max && cq->head != cq->tail; n++)
		out[n] = cq->ring[cq->head++ & cq->mask];
	return n;
}

void dp_cq_arm(struct dp_cq *cq, bool solicited_only)
{
	/* A CQ armed for all completions stays so when it is armed for solicited ones as well. */
	if (cq->armed && !cq->armed_solicited)
		return;
	cq->armed = true;
	cq->armed_solicited = solicited_only;
}

void *dp_cq_user(const struct dp_cq *cq)
{
	return cq->user;
}

uint32_t dp_cq_entries(const struct dp_cq *cq)
{
	return cq->entries;
}

void dp_cq_forget(struct dp_cq *cq, uint32_t qpn)
{
	uint32_t from, to = cq->head;

	for (from = cq->head; from != cq->tail; from++)
		if (cq->ring[from & cq->mask].qpn != qpn)
			cq->ring[to++ & cq->mask] = cq->ring[from & cq->mask];
	cq->tail = to;
}

static void tell(struct dp_cq *cq)
{
	cq->armed = false;
	cq->pending = 0;
	dp_wheel_cancel(&cq->engine->wheel, &cq->timer);
	dp_raise(cq->engine, &cq->event, DP_EVENT_CQ);
}

static bool is_full(const struct dp_cq *cq)
{
	return cq->tail - cq->head > cq->mask;
}

static bool waits_for_more(struct dp_cq *cq)
{
	uint64_t period_ns = cq->event_period_us * UINT64_C(1000);

	if (!cq->event_count && !period_ns)
		return false;
	if ((cq->event_count && cq->pending >= cq->event_count) || is_full(cq))
		return false;
	if (!cq->engine->wheel_started)
		return false; /* nothing has told the time yet */
	if (period_ns && !dp_timer_armed(&cq->timer))
		dp_wheel_arm(&cq->engine->wheel, &cq->timer, cq->engine->now_ns + period_ns);
	return true;
}

void dp_cq_tick(struct dp_cq *cq)
{
	if (cq->pending)
		tell(cq);
}

void dp_cq_moderate(struct dp_cq *cq, uint16_t count, uint16_t period_us)
{
	cq->event_count = count;
	cq->event_period_us = period_us;
	/* What the event waited for is no longer so. */
	if (cq->pending)
		tell(cq);
}

void dp_cq_push(struct dp_cq *cq, const struct dp_wc *wc, bool solicited)
{
	if (cq->head == cq->tail)
		cq->overrun = false;
	if (is_full(cq)) {
		if (!cq->overrun)
			dp_raise(cq->engine, &cq->event, DP_EVENT_CQ_OVERRUN);
		cq->overrun = true;
		return;
	}
	cq->ring[cq->tail & cq->mask] = *wc;
	cq->ring[cq->tail++ & cq->mask].completed_ns = cq->engine->now_ns;
	if (!cq->armed || (cq->armed_solicited && !solicited && wc->status == DP_WC_SUCCESS))
		return;
	cq->pending++;
	if (!waits_for_more(cq))
		tell(cq);
}
