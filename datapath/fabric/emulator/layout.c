// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Which ports and links there are, and the routes between them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/emulator/emulator.h"

/* The number of a node, which begins to exist when it is named first; NODES_MAX: too many. */
static uint32_t node_of(struct emulator *e, const char *name)
{
	uint32_t i;

	for (i = 0; i < e->n_nodes; i++)
		if (!strcmp(e->node[i], name))
			return i;
	if (i < NODES_MAX)
		e->node[e->n_nodes++] = name;
	return i;
}

static int read_mac(const char *text, uint8_t *mac)
{
	unsigned b[6];
	char rest;

	if (sscanf(text, "%x:%x:%x:%x:%x:%x%c", b, b + 1, b + 2, b + 3, b + 4, b + 5, &rest) != 6)
		return -EINVAL;
	for (unsigned i = 0; i < 6; i++)
		mac[i] = (uint8_t)b[i];
	return 0;
}

/* NODE:NETDEV[:MAC] */
static int read_port(struct emulator *e, char *text, bool dated)
{
	const char *node = strsep(&text, ":"), *name = strsep(&text, ":");
	struct port *p;

	if (e->n_ports == PORTS_MAX || !name || !*name || strlen(name) >= sizeof(p->raw.name))
		return -EINVAL;
	p = &e->port[e->n_ports++];
	strcpy(p->raw.name, name);
	p->node = node_of(e, node);
	p->has_mac = text;
	p->dated = dated;
	if (p->node == NODES_MAX)
		return -EINVAL;
	return text ? read_mac(text, p->mac) : 0;
}

/* NAME:FROM:TO */
static int read_link(struct emulator *e, char *text)
{
	const char *name = strsep(&text, ":"), *from = strsep(&text, ":");
	struct dp_route_link ends;
	struct wire *w;

	if (e->n_wires == WIRES_MAX || !from || !text || layout_find(e, name))
		return -EINVAL;
	ends = (struct dp_route_link){ node_of(e, from), node_of(e, text) };
	if (ends.from == NODES_MAX || ends.to == NODES_MAX || ends.from == ends.to)
		return -EINVAL;
	w = &e->wire[e->n_wires];
	*w = (struct wire){ .emulator = e, .name = name, .to = ends.to };
	e->due_ns[e->n_wires] = UINT64_MAX;
	e->ends[e->n_wires++] = ends;
	return 0;
}

/* Links come in pairs, the two directions of a cable. */
static bool has_pairs(const struct emulator *e)
{
	for (uint32_t i = 0; i < e->n_wires; i++)
		if ((i ^ 1) >= e->n_wires || e->ends[i].from != e->ends[i ^ 1].to ||
		    e->ends[i].to != e->ends[i ^ 1].from)
			return false;
	return true;
}

/* Each port's node has a link: what comes in counts for the first one. */
static bool find_first(struct emulator *e)
{
	for (uint32_t p = 0; p < e->n_ports; p++) {
		for (uint32_t i = e->n_wires; i-- > 0;)
			if (e->ends[i].from == e->port[p].node)
				e->port[p].first = &e->wire[i];
		if (!e->port[p].first)
			return false;
	}
	return true;
}

static int find_routes(struct emulator *e)
{
	bool is_leaf[NODES_MAX] = {};
	int err;

	for (uint32_t i = 0; i < e->n_ports; i++)
		is_leaf[e->port[i].node] = true;
	dp_routes_free(&e->routes);
	err = dp_routes_create(&e->routes, e->n_nodes, is_leaf, e->n_wires, e->ends);
	e->chooses = !err && dp_routes_choose(&e->routes);
	return err;
}

int layout_read(struct emulator *e, int argc, char **argv)
{
	int err = 0;

	for (int i = 1; i < argc && !err; i++) {
		char *rest = argv[i];
		const char *kind = strsep(&rest, ":");

		if (!rest)
			err = -EINVAL;
		else if (!strcmp(kind, "port") || !strcmp(kind, "dated"))
			err = read_port(e, rest, *kind == 'd');
		else
			err = strcmp(kind, "link") ? -EINVAL : read_link(e, rest);
	}
	if (!err && (e->n_ports < 2 || !e->n_wires || !has_pairs(e) || !find_first(e)))
		err = -EINVAL;
	return err ? err : find_routes(e);
}

struct wire *layout_find(struct emulator *e, const char *name)
{
	for (uint32_t i = 0; i < e->n_wires; i++)
		if (!strcmp(e->wire[i].name, name))
			return &e->wire[i];
	return NULL;
}

int layout_use(struct emulator *e, const struct wire *w, bool used)
{
	int err = dp_routes_use(&e->routes, (uint32_t)(w - e->wire), used);

	if (!err)
		err = dp_routes_renew(&e->routes);
	e->chooses = dp_routes_choose(&e->routes);
	return err;
}

int layout_reset(struct emulator *e, uint64_t seed)
{
	int err = find_routes(e);

	dp_routes_seed(&e->routes, seed, false);
	return err;
}
