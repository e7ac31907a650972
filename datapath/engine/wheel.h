/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A hierarchical timer wheel (Varghese and Lauck, SOSP 1987): four levels of
 * 64 slots over ticks of 1.024 us.  Adding and cancelling take constant time;
 * a timer fires at the first tick not before its time, never early.
 */
#ifndef DP_ENGINE_WHEEL_H
#define DP_ENGINE_WHEEL_H

#include <stdbool.h>
#include <stdint.h>

enum {
	DP_WHEEL_SHIFT = 10, /* log2 of a tick in ns */
	DP_WHEEL_BITS = 6,
	DP_WHEEL_SLOTS = 1 << DP_WHEEL_BITS,
	DP_WHEEL_LEVELS = 4,
};

struct dp_timer {
	struct dp_timer *next;
	struct dp_timer **link; /* the pointer that points to this timer; NULL: not armed */
	uint64_t expires_ns;
	uint16_t slot; /* level * 64 + slot */
	uint8_t owner; /* for whoever pops it */
};

struct dp_wheel {
	uint64_t tick; /* all timers before this tick have been popped */
	uint64_t used[DP_WHEEL_LEVELS];
	struct dp_timer *slot[DP_WHEEL_LEVELS][DP_WHEEL_SLOTS];
};

void dp_wheel_init(struct dp_wheel *, uint64_t now_ns);
/* Arms or moves a timer. */
void dp_wheel_arm(struct dp_wheel *, struct dp_timer *, uint64_t expires_ns);
void dp_wheel_cancel(struct dp_wheel *, struct dp_timer *);
/* The instant from which dp_wheel_pop() has work: the earliest timer's tick, or
 * the start of the slot that holds it.  UINT64_MAX if no timer is armed. */
uint64_t dp_wheel_next(const struct dp_wheel *);
/* Takes one timer that has expired at now_ns, NULL when there is no more. */
struct dp_timer *dp_wheel_pop(struct dp_wheel *, uint64_t now_ns);

static inline bool dp_timer_armed(const struct dp_timer *t)
{
	return t->link;
}

#endif
