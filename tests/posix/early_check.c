// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* How early timers are set.  Time is passed in. */
#include "posix/early.h"

#include <assert.h>
#include <stdio.h>

enum { US = 1000, AT = 1000 * US };

/* A wake-up that is so late against its timer. */
static void wake(struct dp_early *e, uint64_t late_ns)
{
	dp_early_woke(e, AT, AT + late_ns);
}

static uint64_t early(const struct dp_early *e)
{
	return AT - dp_early_timer(e, AT);
}

/* Nothing is known at first, so no timer is early until a whole row of wake-ups was late. */
static void check_learning(void)
{
	struct dp_early e = { 0 };

	for (int i = 0; i < DP_EARLY_WAKES; i++) {
		assert(!early(&e));
		wake(&e, (uint64_t)(9 + i % 7) * US);
	}
	assert(early(&e) == 9 * US);
}

/* One that is sooner counts at once; it is forgotten after the next row. */
static void check_change(void)
{
	struct dp_early e = { 0 };

	for (int i = 0; i < DP_EARLY_WAKES; i++)
		wake(&e, 9 * US);
	wake(&e, 2 * US);
	assert(early(&e) == 2 * US);
	for (int i = 1; i < DP_EARLY_WAKES; i++)
		wake(&e, 9 * US);
	assert(early(&e) == 2 * US);
	for (int i = 0; i < DP_EARLY_WAKES; i++)
		wake(&e, 9 * US);
	assert(early(&e) == 9 * US);
}

/* A machine that is always very late does not make sleepers poll for as long. */
static void check_limit(void)
{
	struct dp_early e = { 0 };

	for (int i = 0; i < DP_EARLY_WAKES; i++)
		wake(&e, 1000 * US);
	assert(early(&e) == DP_EARLY_MAX_NS);
	dp_early_woke(&e, AT, AT - 1); /* the clock was read before the timer's time */
	assert(!early(&e));
}

int main(void)
{
	check_learning();
	check_change();
	check_limit();
	puts("early: ok");
	return 0;
}
