// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Changes of links and routes at given times, which the frames survive.
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

/* The time of the next change of any link. */
static void find_next(struct emulator *e)
{
	e->change_ns = UINT64_MAX;
	for (uint32_t i = 0; i < e->n_wires; i++) {
		const struct change *c = e->wire[i].change;

		if (c && c->at_ns < e->change_ns)
			e->change_ns = c->at_ns;
	}
}

static int check_settings(struct wire *w, const struct change *c)
{
	struct dp_link *trial;
	int err = dp_link_create(&c->link, &forward_ops, w, &trial);

	if (err)
		return err;
	dp_link_destroy(trial);
	return w->link && c->link.trim == w->trims ? 0 : -EBUSY;
}

int change_add(struct wire *w, struct change *c)
{
	struct change **at = &w->change;
	int err = c->of_routes ? 0 : check_settings(w, c);

	if (err)
		return err;
	while (*at && (*at)->at_ns <= c->at_ns)
		at = &(*at)->next;
	c->next = *at;
	*at = c;
	find_next(w->emulator);
	return 0;
}

static void make(struct wire *w, struct change *c, uint64_t now_ns)
{
	struct arrays before = w->arrays;

	/* Frames that arrived before the change, and are seen after it, count as later. */
	if (w->last_ns < c->at_ns)
		w->last_ns = c->at_ns < now_ns ? c->at_ns : now_ns;
	if (dp_link_configure(w->link, &c->link, w->last_ns)) {
		w->counts.refused++;
		return;
	}
	w->arrays = c->arrays;
	c->arrays = before;
	wire_set(w, &c->link, c->ecn_mark);
	forward_look(w);
}

static void make_due(struct wire *w, uint64_t now_ns)
{
	struct change *c;

	while ((c = w->change) && c->at_ns <= now_ns) {
		w->change = c->next;
		if (!c->of_routes)
			make(w, c, now_ns);
		else if (layout_use(w->emulator, w, c->used))
			w->counts.refused++;
		change_free(c);
	}
}

void changes_make(struct emulator *e, uint64_t now_ns)
{
	for (uint32_t i = 0; i < e->n_wires; i++)
		make_due(&e->wire[i], now_ns);
	find_next(e);
}

void changes_drop(struct wire *w)
{
	struct change *c;

	while ((c = w->change)) {
		w->change = c->next;
		change_free(c);
	}
	find_next(w->emulator);
}
