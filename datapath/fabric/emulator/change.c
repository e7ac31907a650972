// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Changes of a direction's settings at given times, which its frames survive.
 */
#include <errno.h>
#include <stdlib.h>

#include "fabric/emulator/emulator.h"

void change_free(struct change *c)
{
	if (!c)
		return;
	free(c->arrays.trace);
	free(c->arrays.jitter);
	free(c);
}

/* The time of the next change of any direction. */
static void find_next(struct emulator *e)
{
	e->change_ns = UINT64_MAX;
	for (unsigned side = 0; side < DIRECTIONS; side++) {
		const struct change *c = e->direction[side].change;

		if (c && c->at_ns < e->change_ns)
			e->change_ns = c->at_ns;
	}
}

int change_add(struct direction *d, struct change *c)
{
	struct change **at = &d->change;
	struct dp_link *trial;
	int err = dp_link_create(&c->link, &forward_ops, d, &trial);

	if (err)
		return err;
	dp_link_destroy(trial);
	if (!d->link || c->link.trim != d->trims)
		return -EBUSY;
	while (*at && (*at)->at_ns <= c->at_ns)
		at = &(*at)->next;
	c->next = *at;
	*at = c;
	find_next(d->emulator);
	return 0;
}

static void make(struct direction *d, struct change *c, uint64_t now_ns)
{
	struct arrays before = d->arrays;

	/* Frames that arrived before the change, and are seen after it, count as later. */
	if (d->last_ns < c->at_ns)
		d->last_ns = c->at_ns < now_ns ? c->at_ns : now_ns;
	if (dp_link_configure(d->link, &c->link, d->last_ns)) {
		d->counts.refused++;
		return;
	}
	d->arrays = c->arrays;
	c->arrays = before;
	direction_set(d, &c->link, c->ecn_mark);
}

void changes_make(struct emulator *e, uint64_t now_ns)
{
	for (unsigned side = 0; side < DIRECTIONS; side++) {
		struct direction *d = &e->direction[side];
		struct change *c;

		while ((c = d->change) && c->at_ns <= now_ns) {
			d->change = c->next;
			make(d, c, now_ns);
			change_free(c);
		}
	}
	find_next(e);
}

void changes_drop(struct direction *d)
{
	struct change *c;

	while ((c = d->change)) {
		d->change = c->next;
		change_free(c);
	}
	find_next(d->emulator);
}
