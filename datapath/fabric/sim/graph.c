// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Links, and the way of a frame through them by the routes (fabric/routes.h).
 */
#include "fabric/sim/internal.h"

#include <stdlib.h>

enum { SMALL_FRAME_BYTES = 64 + 20 };

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
	uint32_t leaf = s->leaf[p->frame.to] - s->n_hosts, at = (uint32_t)(sw - s->switches);

	if (leaf == at)
		return s->down[p->frame.to];
	return dp_routes_next(&s->routes, at, leaf, p->frame.flow_hash);
}

uint64_t sim_delay_ns(const struct dp_sim *s, uint32_t from, uint32_t to)
{
	uint32_t link = s->host[from].nic, leaf = s->leaf[to] - s->n_hosts, at;
	uint64_t delay_ns = s->link[link ^ 1].reverse_ns;

	while (s->link[link].to >= s->n_hosts) {
		at = s->link[link].to - s->n_hosts;
		link = leaf == at ? s->down[to] : dp_routes_next(&s->routes, at, leaf, 0);
		delay_ns += s->link[link ^ 1].reverse_ns;
	}
	return delay_ns;
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
		if (l->emulated)
			p->packet.late_ns += (uint32_t)(s->now - p->frame.at_ns);
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

/* The program of an emulated link goes by its deadline of before, which may contain turns.  With PFC
 * a turn sends pause frames.  They leave when the program wakes, so the link stays as it is. */
void sim_look_at_link(const struct dp_sim *s, uint32_t link)
{
	const struct sim_link *l = &s->link[link];
	const struct dp_buffer *b = NULL;

	if (l->emulated)
		b = s->switches[l->from - s->n_hosts].buffer;
	if (!b || !dp_buffer_has_pfc(b))
		dp_link_advance(l->link, s->now);
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

/* A port of a switch tells its peer to stop or to go on.  now may have passed: an emulated link
 * catches up on its turns when its program wakes, which sends the pause frame then. */
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
	if (now < s->now)
		now = s->now;
	l->pause[l->pauses++] = (struct sim_pause){ now + l->reverse_ns, class, paused };
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

void sim_set_reverse(struct dp_sim *s, uint32_t link, const struct dp_link_config *back)
{
	struct sim_link *l = &s->link[link];

	l->reverse_ns = back->delay_ns;
	if (back->rate_bps)
		l->reverse_ns += SMALL_FRAME_BYTES * 8 * 1000000000ull / back->rate_bps;
}

static int create_links(struct dp_sim *s, const struct dp_sim_graph *g)
{
	struct dp_link_config c;
	struct sim_link *l;
	uint32_t i;
	int err;

	s->pool.telemetry = s->cfg.engine.telemetry;
	for (i = 0; i < g->links; i++) {
		c = g->config[g->link[i].config];
		c.seed = sim_link_seed(s, i);
		c.telemetry &= g->link[i].from >= g->hosts; /* switches stamp, NICs do not */
		l = &s->link[i];
		l->sim = s;
		l->from = g->link[i].from;
		l->to = g->link[i].to;
		err = dp_link_create(&c, &ops, l, &l->link);
		if (err)
			return err;
		sim_set_reverse(s, i, &g->config[g->link[i ^ 1].config]);
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
	}
	for (i = 0; i < s->n_hosts; i++)
		if (s->leaf[i] == SIM_NONE)
			return -EINVAL;
	return 0;
}

static int create_routes(struct dp_sim *s)
{
	struct dp_route_link *ends = calloc(s->n_links + 1, sizeof(*ends));
	bool *is_leaf = calloc(s->n_switches + 1, sizeof(*is_leaf));
	int err = ends && is_leaf ? 0 : -ENOMEM;
	uint32_t i;

	for (i = 0; !err && i < s->n_links; i++) {
		ends[i].from = s->link[i].from - s->n_hosts;
		ends[i].to = s->link[i].to - s->n_hosts;
		if (s->link[i].from < s->n_hosts)
			ends[i].from = DP_NO_SWITCH;
		if (s->link[i].to < s->n_hosts)
			ends[i].to = DP_NO_SWITCH;
	}
	for (i = 0; !err && i < s->n_hosts; i++)
		if (s->leaf[i] >= s->n_hosts)
			is_leaf[s->leaf[i] - s->n_hosts] = true;
	if (!err)
		err = dp_routes_create(&s->routes, s->n_switches, is_leaf, s->n_links, ends);
	if (!err)
		dp_routes_seed(&s->routes, s->cfg.seed, s->cfg.symmetric);
	free(is_leaf);
	free(ends);
	return err;
}

int dp_sim_set_route(struct dp_sim *s, uint32_t link, bool used)
{
	int err = dp_routes_use(&s->routes, link, used);

	if (!err)
		sim_note(s, link, used);
	return err;
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
	for (i = 0; i < s->n_switches; i++)
		s->switches[i].sim = s;
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
	dp_routes_free(&s->routes);
	free(s->down);
	free(s->leaf);
	free(s->switches);
	free(s->link);
	free(s->host);
}
