// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Links, routes, and the way of a frame through them.
 *
 * Routes are all shortest paths.  There is a route for each leaf (a switch with hosts on it), not
 * for each host, since all hosts of a leaf are reached the same way.  A switch chooses among equal
 * links by the hash of the flow (ECMP).
 */
#include "fabric/sim/internal.h"

#include <stdlib.h>

enum { PAUSE_FRAME_BYTES = 64 + 20 };

/* ---- calls of links ----------------------------------------------------- */

static void dropped(void *user, struct dp_frame *f, enum dp_drop why)
{
	struct sim_packet *p = (struct sim_packet *)f;
	const struct sim_link *l = user;
	struct dp_sim *s = l->sim;

	s->packet_events++;
	s->dropped[why]++;
	/* An AQM drops when its link catches up on a turn.  When that happens depends on who looks
	 * at the link, so it must not change the digest. */
	if (why != DP_DROP_AQM)
		sim_note(s, p->number, why);
	sim_trace_packet(s, DP_SIM_DROP, (uint32_t)(l - s->link), p, why);
	sim_packet_put(&s->pool, p);
}

static struct dp_frame *cloned(void *user, const struct dp_frame *f)
{
	struct dp_sim *s = ((const struct sim_link *)user)->sim;
	struct sim_packet *p = sim_packet_copy(&s->pool, (const struct sim_packet *)f);

	if (!p)
		return NULL;
	s->duplicated++;
	return &p->frame;
}

static const struct dp_link_ops ops = { .drop = dropped, .clone = cloned };

/* ---- frames under way ---------------------------------------------------------- */

static uint32_t next_link(const struct dp_sim *s, const struct sim_switch *sw,
			  const struct sim_packet *p)
{
	const struct sim_switch *leaf = &s->switches[s->leaf[p->frame.to] - s->n_hosts];
	const struct sim_route *r;

	if (leaf == sw)
		return s->down[p->frame.to];
	r = &s->route[(size_t)(sw - s->switches) * s->n_leaves + leaf->leaf];
	return s->next_hop[r->first + (r->n > 1 ? dp_ecmp(p->frame.flow_hash, sw->seed, r->n) : 0)];
}

static void offer(struct dp_sim *s, uint32_t link, struct sim_packet *p)
{
	dp_link_offer(s->link[link].link, &p->frame, s->now);
	sim_requeue_link(s, link);
}

void sim_inject(struct dp_sim *s, struct sim_host *h, struct sim_packet *p)
{
	p->frame.ingress = DP_NO_INGRESS;
	p->number = s->injected++;
	s->packet_events++;
	sim_note(s, p->number, (uint64_t)p->frame.bytes << 32 | p->channel);
	sim_trace_packet(s, DP_SIM_TX, h->index, p, 0);
	offer(s, h->nic, p);
}

void sim_link_act(struct dp_sim *s, uint32_t link)
{
	struct sim_link *l = &s->link[link];
	struct sim_packet *p;

	sim_link_woke(s, link);
	while ((p = (struct sim_packet *)dp_link_take(l->link, s->now))) {
		s->packet_events++;
		sim_note(s, p->number, link);
		if (l->to < s->n_hosts) {
			sim_host_rx(s, &s->host[l->to], p);
			continue;
		}
		p->frame.ingress = l->ingress;
		offer(s, next_link(s, &s->switches[l->to - s->n_hosts], p), p);
	}
	sim_requeue_link(s, link);
	if (l->to < s->n_hosts)
		sim_host_run(s, &s->host[l->to]);
}

/* ---- priority flow control ------------------------------------------------------- */

void sim_pause_link(struct dp_sim *s, uint32_t link, uint32_t class_mask, bool paused)
{
	dp_link_pause(s->link[link].link, class_mask, paused, s->now);
	sim_note(s, link, (uint64_t)class_mask << 1 | paused);
	sim_requeue_link(s, link);
	if (!paused && s->link[link].from < s->n_hosts)
		sim_host_run(s, &s->host[s->link[link].from]);
}

/* A port of a switch tells its peer to stop or to go on. */
static void pfc(void *user, uint32_t port, uint32_t class, bool paused, uint64_t now)
{
	struct sim_switch *sw = user;
	struct dp_sim *s = sw->sim;
	uint32_t link = sw->into[port];
	struct sim_link *l = &s->link[link];
	struct sim_pause *more;

	if (l->pauses == l->pause_room) {
		more = realloc(l->pause, (l->pause_room + 16) * sizeof(*more));
		if (!more) {
			sim_fail(s, -ENOMEM, "no memory for pause frames");
			return;
		}
		l->pause = more;
		l->pause_room += 16;
	}
	l->pause[l->pauses++] = (struct sim_pause){ now + l->pause_delay_ns, class, paused };
	sim_queue_set(&s->queue, sim_pause_id(s, link), l->pause[0].at_ns);
}

void sim_pause_act(struct dp_sim *s, uint32_t link)
{
	struct sim_link *l = &s->link[link];
	struct sim_pause p;

	while (l->pauses && l->pause[0].at_ns <= s->now) {
		p = l->pause[0];
		memmove(l->pause, l->pause + 1, --l->pauses * sizeof(p));
		sim_pause_link(s, link, 1u << p.class, p.paused);
	}
	sim_queue_set(&s->queue, sim_pause_id(s, link), l->pauses ? l->pause[0].at_ns : DP_NEVER);
}

/* ---- building --------------------------------------------------------------------- */

static bool graph_valid(const struct dp_sim_graph *g)
{
	uint32_t i, nodes = g->hosts + g->switches;

	if (g->links % 2 || g->hosts < 2 || nodes < g->hosts)
		return false;
	for (i = 0; i < g->links; i++) {
		if (g->link[i].from >= nodes || g->link[i].to >= nodes ||
		    g->link[i].config >= g->configs || g->link[i].from == g->link[i].to)
			return false;
		if (g->link[i].from != g->link[i ^ 1].to)
			return false;
	}
	for (i = 0; i < g->switches; i++)
		if (g->switch_buffer && g->switch_buffer[i] != SIM_NONE &&
		    g->switch_buffer[i] >= g->buffers)
			return false;
	return true;
}

static int create_links(struct dp_sim *s, const struct dp_sim_graph *g)
{
	struct dp_link_config c;
	struct sim_link *l;
	uint32_t i;
	int err;

	for (i = 0; i < g->links; i++) {
		c = g->config[g->link[i].config];
		c.seed = sim_link_seed(s, i);
		c.telemetry &= g->link[i].from >= g->hosts; /* switches stamp, NICs do not */
		s->pool.telemetry |= c.telemetry;
		l = &s->link[i];
		l->sim = s;
		l->from = g->link[i].from;
		l->to = g->link[i].to;
		err = dp_link_create(&c, &ops, l, &l->link);
		if (err)
			return err;
		c = g->config[g->link[i ^ 1].config];
		l->pause_delay_ns = c.delay_ns;
		if (c.rate_bps)
			l->pause_delay_ns += PAUSE_FRAME_BYTES * 8 * 1000000000ull / c.rate_bps;
	}
	return 0;
}

/* The ports of a switch are its cables, in their order. */
static int number_ports(struct dp_sim *s)
{
	struct sim_switch *sw;
	struct sim_link *l;
	uint32_t i;

	for (i = 0; i < s->n_links; i++)
		if (s->link[i].to >= s->n_hosts)
			s->switches[s->link[i].to - s->n_hosts].n_ports++;
	for (i = 0; i < s->n_switches; i++) {
		sw = &s->switches[i];
		sw->into = malloc((sw->n_ports + 1) * sizeof(*sw->into));
		if (!sw->into)
			return -ENOMEM;
		sw->n_ports = 0;
	}
	for (i = 0; i < s->n_links; i++) {
		l = &s->link[i];
		if (l->to < s->n_hosts)
			continue;
		sw = &s->switches[l->to - s->n_hosts];
		l->ingress = (uint16_t)sw->n_ports;
		sw->into[sw->n_ports++] = i;
	}
	return 0;
}

static int create_buffers(struct dp_sim *s, const struct dp_sim_graph *g)
{
	struct dp_buffer_config c;
	struct sim_switch *sw;
	uint32_t i, port;
	int err;

	for (i = 0; g->switch_buffer && i < s->n_switches; i++) {
		if (g->switch_buffer[i] == SIM_NONE)
			continue;
		sw = &s->switches[i];
		c = g->buffer[g->switch_buffer[i]];
		c.n_ports = sw->n_ports;
		err = dp_buffer_create(&c, pfc, sw, &sw->buffer);
		if (err)
			return err;
		for (port = 0; !err && port < sw->n_ports; port++)
			err = dp_link_share(s->link[sw->into[port] ^ 1].link, sw->buffer, port);
		if (err)
			return err;
	}
	return 0;
}

static int attach_hosts(struct dp_sim *s)
{
	uint32_t i, at;

	for (i = 0; i < s->n_hosts; i++)
		s->leaf[i] = SIM_NONE;
	for (i = 0; i < s->n_links; i++) {
		at = s->link[i].to;
		if (at >= s->n_hosts)
			continue;
		if (s->leaf[at] != SIM_NONE)
			return -EINVAL;
		s->leaf[at] = s->link[i].from;
		s->down[at] = i;
		s->host[at].nic = i ^ 1;
		s->host[at].index = at;
		if (s->leaf[at] >= s->n_hosts)
			s->switches[s->leaf[at] - s->n_hosts].leaf = 0;
	}
	for (i = 0; i < s->n_hosts; i++)
		if (s->leaf[i] == SIM_NONE)
			return -EINVAL;
	return 0;
}

/* Hops from every switch to one; SIM_NONE: no path.  all: along unused links too. */
static void distances(const struct dp_sim *s, uint32_t to, bool all, uint32_t *hops, uint32_t *work)
{
	uint32_t i, port, at, head = 0, tail = 0;

	for (i = 0; i < s->n_switches; i++)
		hops[i] = SIM_NONE;
	hops[to] = 0;
	work[tail++] = to;
	while (head < tail) {
		i = work[head++];
		for (port = 0; port < s->switches[i].n_ports; port++) {
			at = s->link[s->switches[i].into[port]].from;
			if (at < s->n_hosts || hops[at - s->n_hosts] != SIM_NONE ||
			    (!all && s->link[s->switches[i].into[port]].unused))
				continue;
			hops[at - s->n_hosts] = hops[i] + 1;
			work[tail++] = at - s->n_hosts;
		}
	}
}

/* The links of one switch that lead nearer to a leaf. */
static uint32_t nearer(const struct dp_sim *s, uint32_t from, bool all, const uint32_t *hops,
		       uint32_t *out)
{
	const struct sim_switch *sw = &s->switches[from];
	uint32_t port, to, n = 0;

	for (port = 0; port < sw->n_ports && hops[from] != SIM_NONE; port++) {
		to = s->link[sw->into[port] ^ 1].to;
		if (to >= s->n_hosts && (all || !s->link[sw->into[port] ^ 1].unused) &&
		    hops[to - s->n_hosts] == hops[from] - 1)
			out[n++] = sw->into[port] ^ 1;
	}
	return n;
}

/* The routes of all switches to a leaf that have one.  all: along unused links too, for switches
 * that have none yet. */
static int route_to(struct dp_sim *s, uint32_t leaf, bool all, uint32_t *hops, uint32_t *work,
		    uint32_t *used, uint32_t *room)
{
	struct sim_route *r;
	uint32_t *more, i;

	distances(s, leaf, all, hops, work);
	for (i = 0; i < s->n_switches; i++) {
		r = &s->route[(size_t)i * s->n_leaves + s->switches[leaf].leaf];
		if (i == leaf || (all && r->n))
			continue;
		if (*used + s->switches[i].n_ports > *room) {
			*room = 2 * (*used + s->switches[i].n_ports);
			more = realloc(s->next_hop, *room * sizeof(*more));
			if (!more)
				return -ENOMEM;
			s->next_hop = more;
		}
		r->first = *used;
		r->n = nearer(s, i, all, hops, s->next_hop + *used);
		*used += r->n;
		if (all && !r->n && s->switches[i].leaf != SIM_NONE)
			return -EINVAL; /* two leaves have no path between them */
	}
	return 0;
}

static int find_routes(struct dp_sim *s)
{
	uint32_t *hops = malloc((s->n_switches + 1) * sizeof(*hops));
	uint32_t *work = malloc((s->n_switches + 1) * sizeof(*work));
	uint32_t i, used = 0, room = 0;
	int err = 0;

	free(s->next_hop);
	s->next_hop = NULL;
	if (!hops || !work)
		err = -ENOMEM;
	for (i = 0; !err && i < s->n_switches; i++)
		if (s->switches[i].leaf != SIM_NONE)
			err = route_to(s, i, false, hops, work, &used, &room);
	for (i = 0; !err && i < s->n_switches; i++)
		if (s->switches[i].leaf != SIM_NONE)
			err = route_to(s, i, true, hops, work, &used, &room);
	free(hops);
	free(work);
	return err;
}

static int create_routes(struct dp_sim *s)
{
	uint32_t i;

	for (i = 0; i < s->n_switches; i++)
		if (s->switches[i].leaf != SIM_NONE)
			s->switches[i].leaf = s->n_leaves++;
	s->route = calloc((size_t)s->n_switches * s->n_leaves + 1, sizeof(*s->route));
	return s->route ? find_routes(s) : -ENOMEM;
}

int dp_sim_set_route(struct dp_sim *s, uint32_t link, bool used)
{
	if (link >= s->n_links || s->link[link].from < s->n_hosts || s->link[link].to < s->n_hosts)
		return -EINVAL;
	s->link[link].unused = !used;
	sim_note(s, link, used);
	return find_routes(s);
}

int sim_graph_create(struct dp_sim *s, const struct dp_sim_graph *g)
{
	uint32_t i;
	int err;

	if (!graph_valid(g))
		return -EINVAL;
	s->host = calloc(g->hosts, sizeof(*s->host));
	s->link = calloc(g->links, sizeof(*s->link));
	s->switches = calloc(g->switches + 1, sizeof(*s->switches));
	s->leaf = malloc(g->hosts * sizeof(*s->leaf));
	s->down = malloc(g->hosts * sizeof(*s->down));
	if (!s->host || !s->link || !s->switches || !s->leaf || !s->down)
		return -ENOMEM;
	s->n_hosts = g->hosts;
	s->n_switches = g->switches;
	s->n_links = g->links;
	for (i = 0; i < s->n_switches; i++) {
		s->switches[i].sim = s;
		s->switches[i].leaf = SIM_NONE;
		s->switches[i].seed = dp_mix64(
			s->cfg.seed ^ dp_mix64(0x7377697463680000ull + (s->cfg.symmetric ? 0 : i)));
	}
	err = create_links(s, g);
	if (!err)
		err = number_ports(s);
	if (!err)
		err = create_buffers(s, g);
	if (!err)
		err = attach_hosts(s);
	return err ? err : create_routes(s);
}

void sim_graph_free(struct dp_sim *s)
{
	uint32_t i;

	/* Freeing frames may still make a switch send pause frames. */
	for (i = 0; i < s->n_links; i++)
		if (s->link[i].link)
			dp_link_destroy(s->link[i].link);
	for (i = 0; i < s->n_links; i++)
		free(s->link[i].pause);
	for (i = 0; i < s->n_switches; i++) {
		if (s->switches[i].buffer)
			dp_buffer_destroy(s->switches[i].buffer);
		free(s->switches[i].into);
	}
	free(s->next_hop);
	free(s->route);
	free(s->down);
	free(s->leaf);
	free(s->switches);
	free(s->link);
	free(s->host);
}
