/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A sleeper that sets its timer early, by as much as each of its wake-ups is late anyway.
 *
 * A timer's interrupt and the switch to the sleeper take some microseconds each time.  The timer is
 * set earlier by what the shortest of the last wake-ups took.  The sleeper then seldom wakes before
 * its time; if it does, it polls, as it does through a wait that is shorter than that.
 */
#ifndef DP_POSIX_EARLY_H
#define DP_POSIX_EARLY_H

#include <stdint.h>

enum {
	DP_EARLY_WAKES = 64,	 /* of which the shortest counts */
	DP_EARLY_MAX_NS = 15000, /* longest time that a sleeper polls */
};

struct dp_early {
	uint32_t shortest_ns; /* of the DP_EARLY_WAKES before */
	uint32_t so_far_ns;   /* of those since */
	uint32_t wakes;	      /* since */
};

/* When to set the timer, to be awake at UNTIL_NS. */
static inline uint64_t dp_early_timer(const struct dp_early *e, uint64_t until_ns)
{
	return until_ns - e->shortest_ns;
}

/* The timer was set to SET_NS and nothing else has ended the sleep. */
static inline void dp_early_woke(struct dp_early *e, uint64_t set_ns, uint64_t now)
{
	uint64_t took = now > set_ns ? now - set_ns : 0;

	if (took > DP_EARLY_MAX_NS)
		took = DP_EARLY_MAX_NS;
	if (!e->wakes || took < e->so_far_ns)
		e->so_far_ns = (uint32_t)took;
	if (e->so_far_ns < e->shortest_ns)
		e->shortest_ns = e->so_far_ns;
	if (++e->wakes == DP_EARLY_WAKES) {
		e->shortest_ns = e->so_far_ns;
		e->wakes = 0;
	}
}

#endif
