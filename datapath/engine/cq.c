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

void dp_cq_push(struct dp_cq *cq, const struct dp_wc *wc, bool solicited)
{
	if (cq->tail - cq->head > cq->mask) {
		if (!cq->overrun)
			dp_raise(cq->engine, &cq->event, DP_EVENT_CQ_OVERRUN);
		cq->overrun = true;
		return;
	}
	cq->ring[cq->tail & cq->mask] = *wc;
	cq->ring[cq->tail++ & cq->mask].completed_ns = cq->engine->now_ns;
	if (!cq->armed || (cq->armed_solicited && !solicited && wc->status == DP_WC_SUCCESS))
		return;
	cq->armed = false;
	dp_raise(cq->engine, &cq->event, DP_EVENT_CQ);
}
