// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Flows that wait for the end of another one.
 *
 * A flow that waits takes its place among the flows of its QP when its time has come, and holds up
 * those behind it.  The end of a flow puts the flows that wait for it into a list, and the event
 * loop lets their QPs post in a turn of its own: the end may come in the middle of a host's turn.
 */
#include "fabric/sim/internal.h"

int sim_waiting_open(struct dp_sim *s)
{
	bool any = false;
	uint64_t i;

	s->freed = SIM_NONE;
	for (i = 0; i < s->n_flows; i++)
		any |= s->table[i].after;
	if (!any)
		return 0;
	s->waiting = malloc(s->n_flows * sizeof(*s->waiting));
	if (!s->waiting)
		return -ENOMEM;
	memset(s->waiting, 0xff, s->n_flows * sizeof(*s->waiting));
	for (i = s->n_flows; i-- > 0;) {
		struct sim_waiting *w = s->table[i].after ? &s->waiting[s->table[i].after - 1] :
							    NULL;

		if (!w)
			continue;
		s->waiting[i].next = w->first;
		w->first = (uint32_t)i;
	}
	return 0;
}

bool sim_waits(const struct dp_sim *s, const struct dp_flow *f)
{
	return f->after && !s->flow[f->after - 1].ended;
}

void sim_waiting_ended(struct dp_sim *s, uint32_t row)
{
	uint32_t i = s->waiting ? s->waiting[row].first : SIM_NONE;

	for (; i != SIM_NONE; i = s->waiting[i].next) {
		s->waiting[i].freed = s->freed;
		s->freed = i;
		sim_queue_set(&s->queue, sim_clock_id(s, SIM_STARTS), s->now);
	}
}

uint32_t sim_waiting_take(struct dp_sim *s)
{
	uint32_t row = s->freed;

	if (row != SIM_NONE)
		s->freed = s->waiting[row].freed;
	return row;
}
