// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "fabric/routes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/random.h"

/* Hops from every switch to one; DP_NO_SWITCH: no path.  all: along unused links too. */
static void distances(const struct dp_routes *r, uint32_t to, bool all, uint32_t *hops,
		      uint32_t *work)
{
	uint32_t i, at, link, from, head = 0, tail = 0;

	for (i = 0; i < r->n_switches; i++)
		hops[i] = DP_NO_SWITCH;
	hops[to] = 0;
	work[tail++] = to;
	while (head < tail) {
		i = work[head++];
		for (at = r->first_out[i]; at < r->first_out[i + 1]; at++) {
			link = r->out[at] ^ 1;
			from = r->link[link].from;
			if (from == DP_NO_SWITCH || hops[from] != DP_NO_SWITCH ||
			    (!all && r->unused[link]))
				continue;
			hops[from] = hops[i] + 1;
			work[tail++] = from;
		}
	}
}

/* The links of one switch that lead nearer to a leaf. */
static uint32_t nearer(const struct dp_routes *r, uint32_t from, bool all, const uint32_t *hops,
		       uint32_t *out)
{
	uint32_t at, link, to, n = 0;

	if (hops[from] == DP_NO_SWITCH)
		return 0;
	for (at = r->first_out[from]; at < r->first_out[from + 1]; at++) {
		link = r->out[at];
		to = r->link[link].to;
		if (to != DP_NO_SWITCH && (all || !r->unused[link]) && hops[to] == hops[from] - 1)
			out[n++] = link;
	}
	return n;
}

static int make_room(struct dp_routes *r, uint32_t more)
{
	uint32_t *next;

	if (r->used + more <= r->room)
		return 0;
	next = realloc(r->next, 2 * (size_t)(r->used + more) * sizeof(*next));
	if (!next)
		return -ENOMEM;
	r->next = next;
	r->room = 2 * (r->used + more);
	return 0;
}

/* The routes of all switches to a leaf that have one.  all: along unused links too, for switches
 * that have none yet. */
static int route_to(struct dp_routes *r, uint32_t leaf, bool all, uint32_t *hops, uint32_t *work)
{
	struct dp_route *route;
	uint32_t i;

	distances(r, leaf, all, hops, work);
	for (i = 0; i < r->n_switches; i++) {
		route = &r->route[(size_t)i * r->n_leaves + r->leaf[leaf]];
		if (i == leaf || (all && route->n))
			continue;
		if (make_room(r, r->first_out[i + 1] - r->first_out[i]))
			return -ENOMEM;
		route->first = r->used;
		route->n = nearer(r, i, all, hops, r->next + r->used);
		r->used += route->n;
		if (all && !route->n && r->leaf[i] != DP_NO_SWITCH)
			return -EINVAL;
	}
	return 0;
}

static int find(struct dp_routes *r)
{
	uint32_t *hops = malloc((r->n_switches + 1) * sizeof(*hops));
	uint32_t *work = malloc((r->n_switches + 1) * sizeof(*work));
	int err = hops && work ? 0 : -ENOMEM;
	uint32_t i;

	r->used = 0;
	for (unsigned all = 0; all < 2; all++)
		for (i = 0; !err && i < r->n_switches; i++)
			if (r->leaf[i] != DP_NO_SWITCH)
				err = route_to(r, i, all, hops, work);
	free(hops);
	free(work);
	return err;
}

/* The links that leave each switch, in their order. */
static void list_links(struct dp_routes *r)
{
	uint32_t i, from;

	for (i = 0; i < r->n_links; i++)
		if (r->link[i].from != DP_NO_SWITCH)
			r->first_out[r->link[i].from + 1]++;
	for (i = 0; i < r->n_switches; i++)
		r->first_out[i + 1] += r->first_out[i];
	/* Each first_out is moved to the end of its part, and so becomes that of the next one. */
	for (i = 0; i < r->n_links; i++) {
		from = r->link[i].from;
		if (from != DP_NO_SWITCH)
			r->out[r->first_out[from]++] = i;
	}
	memmove(r->first_out + 1, r->first_out, r->n_switches * sizeof(*r->first_out));
	r->first_out[0] = 0;
}

int dp_routes_create(struct dp_routes *r, uint32_t n_switches, const bool *is_leaf,
		     uint32_t n_links, const struct dp_route_link *link)
{
	uint32_t i;

	*r = (struct dp_routes){ .n_switches = n_switches, .n_links = n_links };
	r->link = calloc(n_links + 1, sizeof(*r->link));
	r->unused = calloc(n_links + 1, sizeof(*r->unused));
	r->out = calloc(n_links + 1, sizeof(*r->out));
	r->first_out = calloc(n_switches + 1, sizeof(*r->first_out));
	r->leaf = calloc(n_switches + 1, sizeof(*r->leaf));
	r->seed = calloc(n_switches + 1, sizeof(*r->seed));
	if (!r->link || !r->unused || !r->out || !r->first_out || !r->leaf || !r->seed)
		return -ENOMEM;
	memcpy(r->link, link, n_links * sizeof(*link));
	list_links(r);
	for (i = 0; i < n_switches; i++)
		r->leaf[i] = is_leaf[i] ? r->n_leaves++ : DP_NO_SWITCH;
	r->route = calloc((size_t)n_switches * r->n_leaves + 1, sizeof(*r->route));
	return r->route ? find(r) : -ENOMEM;
}

void dp_routes_free(struct dp_routes *r)
{
	free(r->next);
	free(r->route);
	free(r->seed);
	free(r->leaf);
	free(r->first_out);
	free(r->out);
	free(r->unused);
	free(r->link);
	*r = (struct dp_routes){};
}

void dp_routes_seed(struct dp_routes *r, uint64_t seed, bool alike)
{
	for (uint32_t i = 0; i < r->n_switches; i++)
		r->seed[i] = dp_mix64(seed ^ dp_mix64(0x7377697463680000ull + (alike ? 0 : i)));
}

int dp_routes_use(struct dp_routes *r, uint32_t link, bool used)
{
	if (link >= r->n_links || r->link[link].from == DP_NO_SWITCH ||
	    r->link[link].to == DP_NO_SWITCH)
		return -EINVAL;
	r->stale |= r->unused[link] == used;
	r->unused[link] = !used;
	return 0;
}

int dp_routes_renew(struct dp_routes *r)
{
	int err = r->stale ? find(r) : 0;

	r->stale &= err != 0;
	return err;
}

bool dp_routes_choose(const struct dp_routes *r)
{
	for (size_t i = 0; i < (size_t)r->n_switches * r->n_leaves; i++)
		if (r->route[i].n > 1)
			return true;
	return false;
}
