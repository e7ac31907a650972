/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Completion queues. */
#ifndef DP_ENGINE_CQ_H
#define DP_ENGINE_CQ_H

#include "engine/instance.h"

enum { DP_TIMER_OF_CQ = 1 }; /* struct dp_timer, owner; other timers have 0 */

struct dp_cq {
	struct dp_engine *engine;
	struct dp_event_node event;
	struct dp_wc *ring;
	uint32_t mask, entries, head, tail;
	uint32_t users;
	bool armed, armed_solicited;
	bool overrun;			       /* told, and not emptied since */
	uint16_t event_count, event_period_us; /* dp_cq_moderate() */
	uint32_t pending;		       /* completions that the next event will tell of */
	struct dp_timer timer;		       /* when that event can wait no longer */
	void *user;
};

/* The size of a ring: n rounded up to a power of two. */
static inline uint32_t dp_pow2(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

/* Removes the completions of a QP. */
void dp_cq_forget(struct dp_cq *, uint32_t qpn);
void dp_cq_push(struct dp_cq *, const struct dp_wc *, bool solicited);
/* The event has waited for event_period_us. */
void dp_cq_tick(struct dp_cq *);

#endif
