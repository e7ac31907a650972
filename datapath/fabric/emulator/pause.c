// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Buffers that the links of a node share, and priority flow control between the emulator's links.
 *
 * A node's buffer tells which of the links that end there have to pause (link/switch.h).  A link
 * pauses after the time that a pause frame takes to the sender.  No pause frame exists: a host's
 * own link waits in the emulator, and the host sends on into it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/emulator/emulator.h"

enum { PAUSE_FRAME_BYTES = 84 }; /* with preamble and gap */

/* A pause, or the end of one, that a link has not heard of yet. */
struct pause {
	struct pause *next;
	uint64_t at_ns;
	uint32_t class;
	bool paused;
};

static uint32_t from_of(const struct wire *w)
{
	return w->emulator->ends[w - w->emulator->wire].from;
}

static void find_next(struct emulator *e)
{
	e->pause_ns = UINT64_MAX;
	for (uint32_t i = 0; i < e->n_wires; i++)
		if (e->wire[i].pause && e->wire[i].pause->at_ns < e->pause_ns)
			e->pause_ns = e->wire[i].pause->at_ns;
}

/* A node's buffer tells a port, which is the place of a link among those that end there. */
static void tell(void *user, uint32_t port, uint32_t class, bool paused, uint64_t now_ns)
{
	struct node_buffer *b = user;
	struct emulator *e = b->emulator;
	struct pause **at, *p = calloc(1, sizeof(*p));
	struct wire *w = e->wire;

	while (w->to != b->node || w->ingress != port)
		w++;
	if (!p) {
		w->counts.refused++;
		return;
	}
	*p = (struct pause){ NULL, now_ns + w->pause_delay_ns, class, paused };
	for (at = &w->pause; *at && (*at)->at_ns <= p->at_ns; at = &(*at)->next)
		;
	p->next = *at;
	*at = p;
	find_next(e);
}

void pauses_make(struct emulator *e)
{
	uint64_t now_ns = e->pause_ns;

	for (uint32_t i = 0; i < e->n_wires; i++) {
		struct wire *w = &e->wire[i];
		struct pause *p;

		while ((p = w->pause) && p->at_ns <= now_ns) {
			w->pause = p->next;
			if (w->link)
				dp_link_pause(w->link, 1u << p->class, p->paused, p->at_ns);
			free(p);
			forward_look(w);
		}
	}
	find_next(e);
}

void pauses_drop(struct wire *w)
{
	struct pause *p;

	while ((p = w->pause)) {
		w->pause = p->next;
		free(p);
	}
	find_next(w->emulator);
}

int buffer_share(struct wire *w, const struct dp_link_config *link)
{
	struct emulator *e = w->emulator;
	struct node_buffer *b = &e->buffer[from_of(w)];

	w->pause_delay_ns = link->delay_ns;
	if (link->rate_bps)
		w->pause_delay_ns += PAUSE_FRAME_BYTES * 8 * NS_PER_S / link->rate_bps;
	/* The port by which it leaves is that of the other direction of its cable. */
	return b->buffer ? dp_link_share(w->link, b->buffer, e->wire[(w - e->wire) ^ 1].ingress) :
			   0;
}

void buffer_close(struct emulator *e, uint32_t node)
{
	for (uint32_t i = 0; i < e->n_wires; i++)
		if (from_of(&e->wire[i]) == node || e->wire[i].to == node)
			wire_close(&e->wire[i]);
	if (e->buffer[node].buffer)
		dp_buffer_destroy(e->buffer[node].buffer);
	e->buffer[node].buffer = NULL;
}

int buffer_open(struct emulator *e, const char *name, struct dp_buffer_config *config)
{
	uint32_t node = 0;

	while (node < e->n_nodes && strcmp(e->node[node], name))
		node++;
	if (node == e->n_nodes)
		return -ENOENT;
	buffer_close(e, node);
	if (!config->total_bytes)
		return 0;
	config->n_ports = 0;
	for (uint32_t i = 0; i < e->n_wires; i++)
		if (e->wire[i].to == node)
			e->wire[i].ingress = (uint16_t)config->n_ports++;
	e->buffer[node] = (struct node_buffer){ .emulator = e, .node = node };
	return dp_buffer_create(config, tell, &e->buffer[node], &e->buffer[node].buffer);
}
