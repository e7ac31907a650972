/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Memory for windows: pools of blocks and pages.  A store belongs to one engine, or to all engines
 * of a simulation. */
#ifndef DP_ENGINE_RC_STORE_H
#define DP_ENGINE_RC_STORE_H

#include "engine/pool.h"
#include "engine/engine.h"

struct dp_store {
	struct dp_pool tx, tx_page, rx, rx_page, span, answers;
	uint32_t window_psns, engines, qps;
	uint64_t rng; /* of the priorities of spans, which change no result */
	bool shared;  /* engines of a simulation share it: nothing is set aside for a QP */
};

void dp_store_init(struct dp_store *, uint32_t window_psns, bool shared);
void dp_store_drain(struct dp_store *);
/* The window for a configured number of PSNs; 0: the largest. */
uint32_t dp_window_of(uint32_t asked);
bool dp_window_valid(uint32_t asked);

/* One QP more.  For the first ones a block of each kind is set aside, which is taken while packets
 * are under way: 0 or -ENOMEM. */
int dp_store_reserve(struct dp_store *);
void dp_store_release(struct dp_store *);
/* The first invariant of an engine's store that does not hold, in words, or NULL. */
const char *dp_store_check(const struct dp_engine *);

#endif
