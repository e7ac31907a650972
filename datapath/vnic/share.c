// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "vnic/share.h"

#define TAG_UNIT (1ull << 24)
/* A card that wakes late may catch up on this much time. */
#define BURST_NS 2000000ull
#define BITS_TIMES_NS 8000000000ull

/* ---- rates ------------------------------------------------------------------------------ */

bool rate_allows(const struct rate *r, uint64_t now)
{
	return !r->bps || r->next_ns <= now;
}

void rate_spend(struct rate *r, uint32_t bytes, uint64_t now)
{
	uint64_t cost;

	if (!r->bps)
		return;
	if (r->next_ns + BURST_NS < now)
		r->next_ns = now - BURST_NS;
	cost = bytes * BITS_TIMES_NS + r->rest;
	r->next_ns += cost / r->bps;
	r->rest = cost % r->bps;
}

/* Bytes sent beyond a guarantee count against it for BURST_NS at most. */
static void guarantee_spend(struct rate *r, uint32_t bytes, uint64_t now)
{
	if (r->bps && r->next_ns > now + BURST_NS)
		r->next_ns = now + BURST_NS;
	rate_spend(r, bytes, now);
}

/* ---- turns ------------------------------------------------------------------------------ */

static struct share *share_at(const struct shares *all, uint32_t i)
{
	return (struct share *)((char *)all->first + i * all->stride);
}

static bool may_send(const struct shares *all, const struct share *s, uint64_t now)
{
	return s->ready && rate_allows(&s->most, now) && (!all->may || all->may(s, now));
}

static bool is_owed(const struct share *s, uint64_t now)
{
	return s->least.bps && rate_allows(&s->least, now);
}

static bool is_before(const struct share *a, const struct share *b)
{
	return (int64_t)(a->start - b->start) < 0;
}

struct share *share_turn(const struct shares *all, uint64_t now)
{
	struct share *best = NULL;

	for (uint32_t i = 0; i < all->n; i++) {
		struct share *s = share_at(all, i);

		if (!may_send(all, s, now))
			continue;
		if (!best || (is_owed(s, now) && !is_owed(best, now)) ||
		    (is_owed(s, now) == is_owed(best, now) && is_before(s, best)))
			best = s;
	}
	return best;
}

/* Whether it would be this share's turn if there were no guarantees. */
static bool is_first(const struct shares *all, const struct share *s, uint64_t now)
{
	for (uint32_t i = 0; i < all->n; i++) {
		const struct share *other = share_at(all, i);

		if (other != s && is_before(other, s) && may_send(all, other, now))
			return false;
	}
	return true;
}

/* Moves the virtual time on.  A share that has not sent meanwhile, since it had nothing or not the
 * right to, does not catch up on the turns that it missed.  So no tag is behind the virtual time,
 * nor more than a frame ahead: tags wrap, and would be compared the wrong way round after 2^63
 * units. */
static void move_on(struct shares *all, uint64_t start)
{
	all->start = start;
	for (uint32_t i = 0; i < all->n; i++) {
		struct share *s = share_at(all, i);

		if ((int64_t)(s->start - start) < 0)
			s->start = start;
	}
}

void share_spend(struct shares *all, struct share *s, uint32_t bytes, uint64_t now)
{
	if (!s->least.bps || is_first(all, s, now)) {
		move_on(all, s->start);
		s->start += bytes * (TAG_UNIT / s->weight);
	}
	guarantee_spend(&s->least, bytes, now);
	rate_spend(&s->most, bytes, now);
}

void share_ready(struct share *s)
{
	s->ready++;
}

void share_unready(struct share *s)
{
	s->ready--;
}
