// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * CoDel (RFC 8289, section 5; the names are those of its pseudocode).  With ECN, an ECN-capable
 * frame is marked and sent where another frame would be dropped.  CoDel then looks at the next
 * frame only when that frame's turn comes.
 *
 * MAXPACKET is the largest frame that the link has seen: a queue of fewer bytes is never too long.
 * It is compared with all bytes that wait, also with FQ-CoDel.  Otherwise many flows with one
 * packet each could not be kept below the target.
 */
#include "link/impl.h"

#include <math.h>

/* If dropping ended at most this many intervals ago, it resumes at its last rate. */
#define MEMORY_INTERVALS 16

static uint64_t control_law(const struct dp_link *l, uint64_t from, uint32_t count)
{
	return from + (uint64_t)((double)l->aqm->config.interval_ns / sqrt(count));
}

/* Takes the next frame, and tells whether the delay has been above the target for an interval. */
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

/* Drops as long as a drop is due.  A long queue may lose several frames at one time. */
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
