// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/wheel.h"

#include <stddef.h>
#include <string.h>

#define SLOT_MASK (DP_WHEEL_SLOTS - 1)
/* The farthest tick, relative to the current one, that the top level can hold. */
#define RANGE (1ull << (DP_WHEEL_BITS * DP_WHEEL_LEVELS))

void dp_wheel_init(struct dp_wheel *w, uint64_t now_ns)
{
	memset(w, 0, sizeof(*w));
	w->tick = now_ns >> DP_WHEEL_SHIFT;
}

/* The first tick that does not begin before the timer's time. */
static uint64_t tick_of(uint64_t ns)
{
	return (ns >> DP_WHEEL_SHIFT) + ((ns & ((1u << DP_WHEEL_SHIFT) - 1)) != 0);
}

/*
 * A timer lies on the lowest level on which its tick and the current one
 * differ in the digit of that level only: the hashed order of a radix-64
 * number.  So every timer on level n is due before every one on level n + 1.
 */
static void place(struct dp_wheel *w, struct dp_timer *t)
{
	uint64_t tick = tick_of(t->expires_ns);
	unsigned level, slot;

	if (tick < w->tick)
		tick = w->tick;
	if (tick - w->tick >= RANGE - (RANGE >> DP_WHEEL_BITS))
		tick = w->tick + RANGE - (RANGE >> DP_WHEEL_BITS) - 1;
	for (level = 0; level < DP_WHEEL_LEVELS - 1; level++)
		if (!((tick ^ w->tick) >> (DP_WHEEL_BITS * (level + 1))))
			break;
	slot = (tick >> (DP_WHEEL_BITS * level)) & SLOT_MASK;
	t->slot = (uint16_t)(level * DP_WHEEL_SLOTS + slot);
	t->next = w->slot[level][slot];
	t->link = &w->slot[level][slot];
	if (t->next)
		t->next->link = &t->next;
	w->slot[level][slot] = t;
	w->used[level] |= 1ull << slot;
}

void dp_wheel_cancel(struct dp_wheel *w, struct dp_timer *t)
{
	unsigned level = t->slot / DP_WHEEL_SLOTS, slot = t->slot % DP_WHEEL_SLOTS;

	if (!t->link)
		return;
	*t->link = t->next;
	if (t->next)
		t->next->link = t->link;
	t->link = NULL;
	if (!w->slot[level][slot])
		w->used[level] &= ~(1ull << slot);
}

void dp_wheel_arm(struct dp_wheel *w, struct dp_timer *t, uint64_t expires_ns)
{
	dp_wheel_cancel(w, t);
	t->expires_ns = expires_ns;
	place(w, t);
}

/* Slots of a level from the current one on, the current one as bit 0; the top
 * level wraps around. */
static uint64_t ahead(const struct dp_wheel *w, unsigned level)
{
	unsigned digit = (w->tick >> (DP_WHEEL_BITS * level)) & SLOT_MASK;
	uint64_t used = w->used[level];

	return digit ? used >> digit | used << (DP_WHEEL_SLOTS - digit) : used;
}

/* First tick of the first slot in use on a level; UINT64_MAX: none. */
static uint64_t first_tick(const struct dp_wheel *w, unsigned level)
{
	uint64_t used = ahead(w, level), base;

	if (!used)
		return UINT64_MAX;
	base = w->tick >> (DP_WHEEL_BITS * level);
	return (base + (unsigned)__builtin_ctzll(used)) << (DP_WHEEL_BITS * level);
}

uint64_t dp_wheel_next(const struct dp_wheel *w)
{
	unsigned level;
	uint64_t tick;

	for (level = 0; level < DP_WHEEL_LEVELS; level++) {
		tick = first_tick(w, level);
		if (tick == UINT64_MAX)
			continue;
		if (tick < w->tick)
			tick = w->tick;
		return tick << DP_WHEEL_SHIFT;
	}
	return UINT64_MAX;
}

/* Moves to `tick` and spreads the slots of higher levels that begin there. */
static void advance(struct dp_wheel *w, uint64_t tick)
{
	struct dp_timer *t, *next;
	unsigned level, slot;

	w->tick = tick;
	for (level = DP_WHEEL_LEVELS - 1; level >= 1; level--) {
		slot = (tick >> (DP_WHEEL_BITS * level)) & SLOT_MASK;
		if (!(w->used[level] >> slot & 1))
			continue;
		t = w->slot[level][slot];
		w->slot[level][slot] = NULL;
		w->used[level] &= ~(1ull << slot);
		for (; t; t = next) {
			next = t->next;
			t->link = NULL;
			place(w, t);
		}
	}
}

struct dp_timer *dp_wheel_pop(struct dp_wheel *w, uint64_t now_ns)
{
	uint64_t now = now_ns >> DP_WHEEL_SHIFT, next;
	struct dp_timer *t;
	unsigned slot;

	for (;;) {
		slot = w->tick & SLOT_MASK;
		t = w->slot[0][slot];
		if (t && w->tick <= now) {
			dp_wheel_cancel(w, t);
			return t;
		}
		next = dp_wheel_next(w) >> DP_WHEEL_SHIFT;
		if (next > now) {
			if (now > w->tick)
				advance(w, now);
			return NULL;
		}
		advance(w, next);
	}
}
