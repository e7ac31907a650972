// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Shares of a line, in virtual time. */
#include <assert.h>
#include <stdlib.h>

#include "shares.h"
#include "vnic/share.h"

enum { WAIT_NS = 1000 };

static void ask(struct share *s, const struct X_sharer *x, uint64_t now)
{
	bool wants = x->from_ns <= now && now < x->until_ns;

	if (wants && !s->ready)
		share_ready(s);
	else if (!wants && s->ready)
		share_unready(s);
}

void X_share(struct X_sharer *all, uint32_t n, uint64_t rate_bps, uint64_t every_ns,
	     uint64_t until_ns)
{
	struct share *share = calloc(n, sizeof(*share)), *turn;
	struct shares shares = { share, sizeof(*share), n, 0, NULL };
	struct rate rate = { .bps = rate_bps };
	uint64_t now = 0;

	assert(share);
	for (uint32_t i = 0; i < n; i++) {
		share[i].weight = all[i].weight;
		share[i].least.bps = all[i].least_bps;
		share[i].most.bps = all[i].most_bps;
	}
	while (now < until_ns) {
		struct X_sharer *x;

		for (uint32_t i = 0; i < n; i++)
			ask(&share[i], &all[i], now);
		turn = rate_allows(&rate, now) ? share_turn(&shares, now) : NULL;
		if (!turn) {
			now += WAIT_NS;
			continue;
		}
		x = &all[turn - share];
		x->bytes += x->frame_bytes;
		if (!x->first_ns)
			x->first_ns = now;
		/* As a queue does: the line of the frame is not ready while it sends. */
		share_unready(turn);
		share_spend(&shares, turn, x->frame_bytes, now);
		rate_spend(&rate, x->frame_bytes, now);
		share_ready(turn);
		now += every_ns;
	}
	free(share);
}
