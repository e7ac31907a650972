// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Chains of chunks as frames. */
#include "vnic/card.h"

enum { LACKS_MAX = 16 }; /* most bytes that a frame is filled up with */

uint32_t frame_get(struct card *card)
{
	uint32_t first = DP_NO_CHUNK, i;

	for (uint32_t n = 0; n < card->frame_chunks; n++) {
		i = dp_raw_get(&card->raw);
		if (i == DP_NO_CHUNK) {
			dp_raw_put(&card->raw, first);
			return DP_NO_CHUNK;
		}
		card->chunk[i].raw.addr = (uint64_t)i * DP_CHUNK;
		card->chunk[i].raw.next = first;
		first = i;
	}
	return first;
}

void frame_cut(struct card *card, uint32_t first, uint32_t len)
{
	uint32_t i = first, left = len;

	card->chunk[first].raw.total = len;
	for (;;) {
		struct dp_chunk *c = &card->chunk[i].raw;

		c->len = left < DP_CHUNK ? left : DP_CHUNK;
		left -= c->len;
		if (!left) {
			dp_raw_put(&card->raw, c->next);
			c->next = DP_NO_CHUNK;
			return;
		}
		i = c->next;
	}
}

void frame_fill(struct card *card, uint32_t first, uint32_t packet)
{
	static const uint8_t zeros[LACKS_MAX];
	uint32_t total = card->chunk[first].raw.total, lacks = packet - 1 - (total - 1) % packet;

	if (lacks <= LACKS_MAX && total + lacks <= card->mtu + ETH_LEN)
		dp_raw_append(&card->raw, first, zeros, lacks);
}

void frame_hold(struct card *card, struct guest *g, uint32_t first)
{
	struct chunk *c = &card->chunk[first];

	c->vni = g->vni;
	c->guest = (uint16_t)(g - card->guest);
	c->chunks = 0;
	for (uint32_t i = first; i != DP_NO_CHUNK; i = card->chunk[i].raw.next)
		c->chunks++;
	g->held += c->chunks;
}

void frame_let_go(struct card *card, uint32_t first)
{
	struct chunk *c = &card->chunk[first];

	card->guest[c->guest].held -= c->chunks;
	dp_raw_put(&card->raw, first);
}
