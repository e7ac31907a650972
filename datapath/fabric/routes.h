/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Routes between the switches of a network, for simulator and emulator: all shortest paths.
 *
 * There is a route for each leaf (a switch with hosts on it), not for each host, since all hosts of
 * a leaf are reached by the same route.  A switch chooses among equal links by the hash of the flow
 * (ECMP).  Links 2i and 2i + 1 are the two directions of a cable.
 */
#ifndef DP_FABRIC_ROUTES_H
#define DP_FABRIC_ROUTES_H

#include <stdbool.h>
#include <stdint.h>

#include "link/switch.h"

#define DP_NO_SWITCH UINT32_MAX

/* The switches at the ends of a link; DP_NO_SWITCH: a host. */
struct dp_route_link {
	uint32_t from, to;
};

/* The links that lead a switch nearer to a leaf: next[first], ... */
struct dp_route {
	uint32_t first, n;
};

struct dp_routes {
	uint32_t n_switches, n_links, n_leaves;
	struct dp_route_link *link;
	bool *unused;	     /* by link: no route leads along it if there is another */
	uint32_t *first_out; /* by switch: its first link in `out`; one more behind the last */
	uint32_t *out;
	uint32_t *leaf;		/* by switch: its number among the leaves, or DP_NO_SWITCH */
	struct dp_route *route; /* [switch * n_leaves + leaf] */
	uint32_t *next;
	uint32_t used, room; /* of `next` */
	uint64_t *seed;	     /* by switch */
	bool stale;	     /* dp_routes_use() was called, and dp_routes_renew() was not */
};

/* is_leaf: by switch.  0, -ENOMEM, or -EINVAL: two leaves have no path between them.
 * dp_routes_free() in any case. */
int dp_routes_create(struct dp_routes *, uint32_t n_switches, const bool *is_leaf, uint32_t n_links,
		     const struct dp_route_link *);
/* Zeroed routes may be freed, too. */
void dp_routes_free(struct dp_routes *);
/* The seed of a run, by which switches hash.  alike: all switches choose as one does. */
void dp_routes_seed(struct dp_routes *, uint64_t seed, bool alike);
/* Lets routes lead along a link, or around it, from dp_routes_renew() on.  0, or -EINVAL: it joins
 * no two switches. */
int dp_routes_use(struct dp_routes *, uint32_t link, bool used);
/* Finds the routes anew if they are stale: once for all links of a switch, since it takes 0.1 s in
 * networks of a thousand switches.  0 or -ENOMEM. */
int dp_routes_renew(struct dp_routes *);
/* Whether any switch has a choice. */
bool dp_routes_choose(const struct dp_routes *);

/* The link by which a switch sends a flow to another switch, which is a leaf. */
static inline uint32_t dp_routes_next(const struct dp_routes *r, uint32_t from, uint32_t leaf,
				      uint32_t flow_hash)
{
	const struct dp_route *route = &r->route[(size_t)from * r->n_leaves + r->leaf[leaf]];

	return r->next[route->first +
		       (route->n > 1 ? dp_ecmp(flow_hash, r->seed[from], route->n) : 0)];
}

#endif
