// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Shaped classes.  A class whose time has not come is closed: its frames wait, and the transmitter
 * does not see them (l->ready).  When it opens, its first frame is ready, and with the transmission
 * of that frame it closes again.
 */
#include "link/impl.h"

#define BIT_NS_PER_BYTE_S 8000000000ull

void dp_link_shape_configure(struct dp_link *l, unsigned class, uint64_t rate_bps, double jitter)
{
	struct dp_link_queue *q = &l->queue[class];
	uint8_t bit = (uint8_t)(1u << class);

	q->rate_bps = rate_bps;
	q->jitter = jitter;
	if (rate_bps) {
		l->shaped |= bit;
		return;
	}
	if (l->closed & bit)
		l->ready |= bit;
	l->shaped &= (uint8_t)~bit;
	l->closed &= (uint8_t)~bit;
}

/* In whole nanoseconds, rounded up: on average never faster than the rate. */
static uint64_t gap_ns(struct dp_link *l, const struct dp_link_queue *q, const struct dp_frame *f)
{
	uint64_t bits = f->bytes * BIT_NS_PER_BYTE_S; /* enough for frames below 2 GiB */
	uint64_t gap = bits / q->rate_bps + (bits % q->rate_bps != 0);

	if (q->jitter > 0)
		gap += (uint64_t)(int64_t)((double)gap * q->jitter *
					   (dp_random32(&l->rng[DP_RNG_SHAPE]) * 0x1p-31 - 1));
	return gap;
}

void dp_link_shape_close(struct dp_link *l, unsigned class, const struct dp_frame *f)
{
	struct dp_link_queue *q = &l->queue[class];

	q->open_ns = dp_link_idle_ns(l) + gap_ns(l, q, f);
	l->ready &= ~(1u << class);
	if (q->head)
		l->closed |= (uint8_t)(1u << class);
}

uint64_t dp_link_shape_next(const struct dp_link *l)
{
	uint64_t next = DP_NEVER;

	for (uint32_t mask = l->closed; mask; mask &= mask - 1) {
		const struct dp_link_queue *q = &l->queue[__builtin_ctz(mask)];

		if (q->open_ns < next)
			next = q->open_ns;
	}
	return next;
}

void dp_link_shape_open(struct dp_link *l, uint64_t at)
{
	for (uint32_t mask = l->closed; mask; mask &= mask - 1) {
		unsigned class = (unsigned)__builtin_ctz(mask);
		struct dp_link_queue *q = &l->queue[class];

		if (q->open_ns > at)
			continue;
		if (!dp_link_eligible(l))
			dp_link_not_before(l, at);
		l->closed &= (uint8_t) ~(1u << class);
		l->ready |= 1u << class;
		if (q->tag_per_byte)
			dp_link_tag(l, q);
	}
}
