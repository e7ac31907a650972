// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/rc/scoreboard.h"

bool dp_tx_block_get(struct dp_rc *rc)
{
	struct dp_tx_block *b = dp_pool_get(&rc->qp.engine->store->tx);
	unsigned kind;

	if (!b)
		return false;
	b->paths = dp_paths(rc);
	b->pages = b->listed = 0;
	b->xmit_ns = b->delivered = b->owing = 0;
	b->owed_all = 0;
	b->lost.head = b->lost.tail = DP_NIL;
	for (kind = 0; kind < dp_classes(b); kind++)
		b->class[kind] = (struct dp_class){ .flight = b->lost };
	rc->req.block = b;
	return true;
}

bool dp_tx_pages_get(struct dp_rc *rc, uint32_t n)
{
	struct dp_tx_block *b = rc->req.block;
	uint32_t psn = rc->req.snd_nxt, last = dp_psn_add(psn, n - 1), i;

	for (;; psn = last) { /* n is less than a page, so the PSNs touch at most two pages */
		i = dp_rec_slot(rc, psn) / DP_PAGE_PSNS;
		if (!b->page[i]) {
			b->page[i] = dp_pool_get(&rc->qp.engine->store->tx_page);
			if (!b->page[i])
				return false;
			b->pages++;
		}
		if (psn == last)
			return true;
	}
}

void dp_tx_page_put(struct dp_rc *rc, uint32_t psn)
{
	struct dp_tx_block *b = rc->req.block;
	uint32_t i = dp_rec_slot(rc, psn) / DP_PAGE_PSNS;

	if (!b->page[i])
		return;
	dp_pool_put(&rc->qp.engine->store->tx_page, b->page[i]);
	b->page[i] = NULL;
	b->pages--;
}

void dp_tx_release(struct dp_rc *rc)
{
	uint32_t last = dp_psn_add(rc->req.snd_una, DP_PSN_MASK), i;
	struct dp_tx_block *b = rc->req.block;

	if (!b)
		return;
	dp_tx_page_put(rc, last); /* usually the only page */
	for (i = 0; b->pages; i += DP_PAGE_PSNS)
		dp_tx_page_put(rc, i);
	dp_pool_put(&rc->qp.engine->store->tx, b);
	rc->req.block = NULL;
}
