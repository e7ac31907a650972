// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/rc/store.h"

#include <assert.h>

#include "engine/rc/answers.h"
#include "engine/rc/received.h"
#include "engine/rc/scoreboard.h"

/* Free pages that an engine keeps beyond one for each QP.  They suffice for a window of 10 Gbit/s
 * and 40 ms that comes and goes. */
#define PAGES_SPARE 256

/* Free spans that a store keeps: 72 KiB. */
#define SPANS_SPARE 1024

/* QPs of an engine for which blocks are set aside, 110 KiB each.  Those of further QPs come from
 * the system when packets are under way: few of so many QPs are at work at a time. */
#define QPS_RESERVED 256

uint32_t dp_window_of(uint32_t asked)
{
	return asked ? asked : DP_WINDOW_MAX;
}

bool dp_window_valid(uint32_t w)
{
	return !w || (w >= DP_WINDOW_MIN && w <= DP_WINDOW_MAX && !(w & (w - 1)));
}

void dp_store_init(struct dp_store *s, uint32_t window_psns, bool shared)
{
	uint32_t window = dp_window_of(window_psns), pages = dp_pages(window);

	s->window_psns = window;
	s->shared = shared;
	s->tx.size = sizeof(struct dp_tx_block) + pages * sizeof(struct dp_tx_page *);
	s->tx_page.size = sizeof(struct dp_tx_page);
	s->rx.size = sizeof(struct dp_rx_block) + pages * sizeof(struct dp_rx_page *);
	s->rx_page.size = sizeof(struct dp_rx_page);
	s->span.size = sizeof(struct dp_span);
	s->answers.size = sizeof(struct dp_answers);
	s->tx.keep = s->rx.keep = s->answers.keep = shared ? UINT32_MAX : 0;
	s->tx_page.keep = s->rx_page.keep = shared ? UINT32_MAX : PAGES_SPARE;
	s->span.keep = SPANS_SPARE;
}

void dp_store_drain(struct dp_store *s)
{
	dp_pool_drain(&s->tx);
	dp_pool_drain(&s->tx_page);
	dp_pool_drain(&s->rx);
	dp_pool_drain(&s->rx_page);
	dp_pool_drain(&s->span);
	dp_pool_drain(&s->answers);
}

int dp_store_create(uint32_t window_psns, struct dp_store **out)
{
	struct dp_store *s;

	if (!dp_window_valid(window_psns))
		return -EINVAL;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	dp_store_init(s, window_psns, true);
	*out = s;
	return 0;
}

void dp_store_destroy(struct dp_store *s)
{
	assert(!s->engines);
	dp_store_drain(s);
	free(s);
}

int dp_store_reserve(struct dp_store *s)
{
	struct dp_pool *pools[] = { &s->tx, &s->tx_page, &s->rx, &s->rx_page, &s->answers };
	unsigned i;

	if (s->shared || s->qps >= QPS_RESERVED) {
		s->qps++;
		return 0;
	}
	for (i = 0; i < ARRAY_SIZE(pools); i++) {
		if (!dp_pool_reserve(pools[i]))
			continue;
		while (i--)
			dp_pool_unreserve(pools[i]);
		return -ENOMEM;
	}
	s->qps++;
	return 0;
}

void dp_store_release(struct dp_store *s)
{
	if (--s->qps >= QPS_RESERVED || s->shared)
		return;
	dp_pool_unreserve(&s->tx);
	dp_pool_unreserve(&s->tx_page);
	dp_pool_unreserve(&s->rx);
	dp_pool_unreserve(&s->rx_page);
	dp_pool_unreserve(&s->answers);
}
