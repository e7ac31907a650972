// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A tournament: a binary tree over the ids, each node of which holds the earlier
 * of its two children.  Against a heap it takes no branch that depends on times,
 * what it reads on its way up is known before it begins, and a change that does
 * not alter who is first in some part of the tree ends there.  Of equal times the
 * left child, which is the lower id, wins.
 */
#include "fabric/sim/internal.h"

int sim_queue_init(struct sim_queue *q, uint32_t ids)
{
	uint32_t i;

	for (q->leaves = 1; q->leaves < ids;)
		q->leaves *= 2;
	/* The root is node 1; node i has the children 2i and 2i + 1. */
	q->node = malloc(2 * (size_t)q->leaves * sizeof(*q->node));
	if (!q->node)
		return -ENOMEM;
	for (i = 0; i < q->leaves; i++)
		q->node[q->leaves + i] = (struct sim_turn){ DP_NEVER, i };
	for (i = q->leaves - 1; i; i--)
		q->node[i] = q->node[2 * i];
	return 0;
}

void sim_queue_free(struct sim_queue *q)
{
	free(q->node);
}

void sim_queue_set(struct sim_queue *q, uint32_t id, uint64_t at_ns)
{
	struct sim_turn *node = q->node, first = { at_ns, id };
	uint32_t i = q->leaves + id;
	const struct sim_turn *other;
	bool later;

	if (node[i].at_ns == at_ns)
		return;
	q->waiting += (at_ns != DP_NEVER) - (node[i].at_ns != DP_NEVER);
	node[i] = first;
	for (; i > 1; i /= 2) {
		other = &node[i ^ 1];
		later = (other->at_ns < first.at_ns) | ((other->at_ns == first.at_ns) & (i & 1));
		first.at_ns = later ? other->at_ns : first.at_ns;
		first.id = later ? other->id : first.id;
		if (node[i / 2].id == first.id && first.id != id)
			return;
		node[i / 2] = first;
	}
}
