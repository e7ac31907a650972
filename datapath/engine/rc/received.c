// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/rc/received.h"

/* One acknowledgement in this many tells another part of a long bitmap than the newest one. */
enum { SACK_TURN = 8 };

/* Returns the block when it is empty. */
static void block_put(struct dp_rc *rc)
{
	struct dp_rx_block *b = rc->resp.block;

	if (b->count)
		return;
	dp_spans_clear(rc->qp.engine, &b->spans);
	if (b->trimmed.n || b->marked.n)
		return;
	dp_pool_put(&rc->qp.engine->store->rx, b);
	rc->resp.block = NULL;
}

static void page_put(struct dp_rc *rc, struct dp_rx_page **at)
{
	dp_pool_put(&rc->qp.engine->store->rx_page, *at);
	*at = NULL;
}

void dp_rx_clear(struct dp_rc *rc, uint32_t psn)
{
	struct dp_rx_page **at = dp_rx_page_at(rc, psn), *page = *at;
	uint32_t i = dp_rx_place(rc, psn);

	page->bits[i / 64] &= ~(1ull << (i % 64));
	rc->resp.block->count--;
	if (!--page->count)
		page_put(rc, at);
	block_put(rc);
}

static bool block_get(struct dp_rc *rc)
{
	struct dp_rx_block *b = dp_pool_get(&rc->qp.engine->store->rx);

	if (!b)
		return false;
	b->count = b->trimmed.n = b->marked.n = 0;
	b->spans = (struct dp_spans){ 0 };
	rc->resp.block = b;
	return true;
}

bool dp_rx_pages_get(struct dp_rc *rc, uint32_t psn, uint32_t n_psn)
{
	uint32_t last = dp_psn_add(psn, n_psn - 1);
	struct dp_rx_page **at;

	if (!rc->resp.block && !block_get(rc))
		return false;
	for (at = dp_rx_page_at(rc, psn);; at = dp_rx_page_at(rc, last)) {
		if (!*at)
			*at = dp_pool_get(&rc->qp.engine->store->rx_page);
		if (!*at)
			break;
		if (at == dp_rx_page_at(rc, last))
			return true;
	}
	dp_rx_pages_put(rc, psn);
	return false;
}

void dp_rx_pages_put(struct dp_rc *rc, uint32_t psn)
{
	struct dp_rx_page **at = dp_rx_page_at(rc, psn);

	if (*at && !(*at)->count)
		page_put(rc, at);
	block_put(rc);
}

void dp_rx_release(struct dp_rc *rc)
{
	struct dp_rx_block *b = rc->resp.block;
	uint32_t i, n = dp_pages(rc->qp.engine->cfg.window_psns);

	for (i = 0; b && i < n; i++) {
		if (!b->page[i])
			continue;
		b->page[i]->count = 0;
		memset(b->page[i]->bits, 0, sizeof(b->page[i]->bits));
		page_put(rc, &b->page[i]);
	}
	if (b) {
		dp_spans_clear(rc->qp.engine, &b->spans);
		dp_pool_put(&rc->qp.engine->store->rx, b);
	}
	rc->resp.block = NULL;
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

void dp_reorder_told(struct dp_rc *rc)
{
	rc->resp.block->trimmed.n = rc->resp.block->marked.n = 0;
	block_put(rc);
}

bool dp_rx_trimmed(struct dp_rc *rc, uint32_t psn)
{
	struct dp_responder *r = &rc->resp;
	int32_t ahead = dp_psn_diff(psn, r->epsn);

	if (ahead < 0 || ahead >= (int32_t)rc->qp.engine->cfg.window_psns || dp_rx_test(rc, psn))
		return false;
	if (!r->block && !block_get(rc))
		return false;
	list_add(&r->block->trimmed, psn);
	return true;
}

void dp_reorder_marked(struct dp_rc *rc, uint32_t psn)
{
	rc->resp.marked++;
	if (rc->peer_paths && (rc->resp.block || block_get(rc)))
		list_add(&rc->resp.block->marked, psn);
}

/* Word w of the bitmap that begins at the expected PSN.  If the window begins within a word, it
 * ends in the same word, one turn later. */
static uint32_t bitmap_word(const struct dp_rc *rc, uint32_t w)
{
	uint32_t epsn = rc->resp.epsn, psn = (epsn & ~31u) + 32 * w;
	const struct dp_rx_page *page = *dp_rx_page_at(rc, psn);
	uint32_t i = dp_rx_place(rc, psn), word;

	if (!page)
		return 0;
	word = (uint32_t)(page->bits[i / 64] >> (i % 64));
	if (!w)
		return word & ~0u << (epsn & 31);
	if (w == rc->qp.engine->cfg.window_psns / 32)
		return word & ~(~0u << (epsn & 31));
	return word;
}

/* Chooses the first word to tell, where not all of `total` words fit: those that end with the
 * newest PSN; those around a packet that came far behind it; and all others in turn, since an
 * acknowledgement may have been lost. */
static uint32_t choose_words(struct dp_responder *r, uint32_t total)
{
	uint32_t last = total - DP_SACK_WORDS_MAX, at;

	if (++r->sacks % SACK_TURN == 0) {
		at = r->sack_turn < last ? r->sack_turn : 0;
		r->sack_turn = (uint16_t)(at + DP_SACK_WORDS_MAX);
		return at;
	}
	if (dp_psn_diff(r->latest, r->epsn) < 0)
		return last;
	at = (uint32_t)dp_psn_diff(r->latest, r->epsn & ~31u) / 32;
	if (at >= last)
		return last;
	return at > DP_SACK_WORDS_MAX / 2 ? at - DP_SACK_WORDS_MAX / 2 : 0;
}

unsigned dp_reorder_sack(struct dp_rc *rc, uint32_t *base, uint8_t *words)
{
	struct dp_responder *r = &rc->resp;
	uint32_t first = r->epsn & ~31u, total, from = 0, word;
	unsigned w, used = 0;

	*base = first;
	if (!r->block || !r->block->count)
		return 0;
	total = ((uint32_t)dp_psn_diff(r->highest, first) + 31) / 32;
	if (total > DP_SACK_WORDS_MAX) {
		from = choose_words(r, total);
		total = from + DP_SACK_WORDS_MAX;
	}
	*base = dp_psn_add(first, 32 * from);
	for (w = 0; from + w < total; w++) {
		word = bitmap_word(rc, from + w);
		dp_put32(words + 4 * w, word);
		if (word)
			used = w + 1;
	}
	return used;
}
