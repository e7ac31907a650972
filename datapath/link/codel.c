// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * CoDel (RFC 8289, section 5; the names are those of its pseudocode).  With ECN, a
 * frame that is capable is marked and goes on where another one would be dropped,
 * and the next one is looked at when its own turn comes.
 *
 * MAXPACKET, below which a queue is never too long, is the largest frame that the
 * link has seen, and it is held against all that waits, also with FQ-CoDel: else
 * many flows with one packet each could not be kept below the target.
 */
#include "link/impl.h"

#include <math.h>

/* Dropping begins at the last rate again if it ended so many intervals ago or less. */
#define MEMORY_INTERVALS 16

static uint64_t control_law(const struct dp_link *l, uint64_t from, uint32_t count)
{
	return from + (uint64_t)((double)l->aqm->config.interval_ns / sqrt(count));
}

/* The next frame, and whether the delay has been above target for an interval. */
static struct dp_frame *next(struct dp_link *l, struct dp_aqm_queue *q, uint64_t now,
			     bool *ok_to_drop)
{
	const struct dp_aqm *config = &l->aqm->config;
	struct dp_frame *f = dp_aqm_pop(l, q);
	struct dp_codel *c = &q->codel;

	*ok_to_drop = false;
	if (!f || now - f->at_ns < config->target_ns || l->bytes <= l->aqm->frame_max)
		c->first_above_ns = 0;
	else if (!c->first_above_ns)
		c->first_above_ns = now + config->interval_ns;
	else
		*ok_to_drop = now >= c->first_above_ns;
	return f;
}

static bool marks(struct dp_link *l, struct dp_frame *f)
{
	return l->aqm->config.ecn && dp_link_set_ce(l, f);
}

/* Drops whenever that is due; a long queue may have to lose several at one time. */
static struct dp_frame *go_on_dropping(struct dp_link *l, struct dp_aqm_queue *q,
				       struct dp_frame *f, uint64_t now)
{
	struct dp_codel *c = &q->codel;
	bool ok_to_drop;

	while (c->dropping && now >= c->drop_next_ns) {
		c->count++;
		if (marks(l, f)) {
			c->drop_next_ns = control_law(l, c->drop_next_ns, c->count);
			break;
		}
		dp_aqm_drop(l, f, DP_DROP_AQM, now);
		f = next(l, q, now, &ok_to_drop);
		c->dropping = ok_to_drop;
		if (ok_to_drop)
			c->drop_next_ns = control_law(l, c->drop_next_ns, c->count);
	}
	return f;
}

static struct dp_frame *begin_dropping(struct dp_link *l, struct dp_aqm_queue *q,
				       struct dp_frame *f, uint64_t now)
{
	uint64_t memory_ns = MEMORY_INTERVALS * l->aqm->config.interval_ns;
	struct dp_codel *c = &q->codel;
	uint32_t delta = c->count - c->last_count;
	bool ok_to_drop;

	if (!marks(l, f)) {
		dp_aqm_drop(l, f, DP_DROP_AQM, now);
		f = next(l, q, now, &ok_to_drop);
	}
	c->dropping = true;
	c->count = 1;
	if (delta > 1 && (int64_t)(now - c->drop_next_ns) < (int64_t)memory_ns)
		c->count = delta;
	c->drop_next_ns = control_law(l, now, c->count);
	c->last_count = c->count;
	return f;
}

struct dp_frame *dp_codel_dequeue(struct dp_link *l, struct dp_aqm_queue *q, uint64_t now)
{
	bool ok_to_drop;
	struct dp_frame *f = next(l, q, now, &ok_to_drop);

	if (!ok_to_drop) {
		q->codel.dropping = false;
		return f;
	}
	if (q->codel.dropping)
		return go_on_dropping(l, q, f, now);
	return begin_dropping(l, q, f, now);
}

void dp_codel_rest(struct dp_codel *c)
{
	c->first_above_ns = 0;
	c->dropping = false;
}
