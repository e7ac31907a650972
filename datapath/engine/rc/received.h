/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The packets that arrived ahead of a gap: a bit and a struct dp_held for each PSN of the
 * window, in pages that are there only where bits are set. */
#ifndef DP_ENGINE_RC_RECEIVED_H
#define DP_ENGINE_RC_RECEIVED_H

#include "engine/rc/responder.h"
#include "engine/rc/spans.h"

/* PSNs for the next acknowledgement; PSNs that do not fit are left out. */
struct dp_psn_list {
	uint32_t n, psn[DP_LIST_MAX];
};

/* A part of the window in which packets have arrived ahead of a gap.  A free page has no bits
 * set. */
struct dp_rx_page {
	void *pool_link;
	uint32_t count; /* bits set */
	uint64_t bits[DP_PAGE_PSNS / 64];
	struct dp_held held[DP_PAGE_PSNS];
};

struct dp_rx_block {
	void *pool_link;
	struct dp_psn_list trimmed, marked;
	uint32_t count;		   /* bits set in all pages */
	struct dp_spans spans;	   /* memory that these packets were placed in */
	struct dp_rx_page *page[]; /* by PSN modulo window, / DP_PAGE_PSNS */
};

/* Where the PSN's page hangs in the block. */
static inline struct dp_rx_page **dp_rx_page_at(const struct dp_rc *rc, uint32_t psn)
{
	uint32_t i = psn & (rc->qp.engine->cfg.window_psns - 1);

	return &rc->resp.block->page[i / DP_PAGE_PSNS];
}

/* The place of a PSN in its page.  A window smaller than a page has one place for each PSN. */
static inline uint32_t dp_rx_place(const struct dp_rc *rc, uint32_t psn)
{
	return psn & (rc->qp.engine->cfg.window_psns - 1) & (DP_PAGE_PSNS - 1);
}

static inline bool dp_rx_test(const struct dp_rc *rc, uint32_t psn)
{
	const struct dp_rx_page *page = rc->resp.block ? *dp_rx_page_at(rc, psn) : NULL;
	uint32_t i = dp_rx_place(rc, psn);

	return page && page->bits[i / 64] >> (i % 64) & 1;
}

static inline void dp_rx_set(struct dp_rc *rc, uint32_t psn)
{
	struct dp_rx_page *page = *dp_rx_page_at(rc, psn);
	uint32_t i = dp_rx_place(rc, psn);

	page->bits[i / 64] |= 1ull << (i % 64);
	page->count++;
	rc->resp.block->count++;
}

static inline struct dp_held *dp_rx_held(struct dp_rc *rc, uint32_t psn)
{
	return &(*dp_rx_page_at(rc, psn))->held[dp_rx_place(rc, psn)];
}

void dp_rx_clear(struct dp_rc *, uint32_t psn);
/* Makes block and pages for n_psn PSNs, fewer than a page has.  False: no memory. */
bool dp_rx_pages_get(struct dp_rc *, uint32_t psn, uint32_t n_psn);
/* Returns block and page of a PSN if they are empty. */
void dp_rx_pages_put(struct dp_rc *, uint32_t psn);
/* PSN `psn` came without its payload.  True: the requester has to be told. */
bool dp_rx_trimmed(struct dp_rc *, uint32_t psn);
/* PSN `psn` came with CE.  The sender knows by the PSN to which path the mark belongs. */
void dp_reorder_marked(struct dp_rc *, uint32_t psn);

#endif
