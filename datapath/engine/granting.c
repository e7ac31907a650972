// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/granting.h"

#include <math.h>

#define FIRST_ROOM 16u
/* A DEMAND with lower totals than the newest one was overtaken on the network, and is ignored.  But
 * this many of them in a row show that the newest one was wrong: then the flow begins anew. */
#define BELIEVED 3
/* CREDITs that may wait for transmission: what is more than this is lost at once. */
#define UNSENT_MAX 64

/* ---- records ------------------------------------------------------------------------ */

static bool sizes_valid(const struct dp_cc_algo *algo)
{
	return algo->abi == DP_CC_ABI && algo->on_data && algo->on_timer && algo->port_initial &&
	       algo->sender_initial && algo->port_bytes >= sizeof(struct dp_cc_port) &&
	       algo->port_bytes <= DP_CC_FLOW_BYTES_MAX &&
	       algo->sender_bytes >= sizeof(struct dp_cc_sender) &&
	       algo->sender_bytes <= DP_CC_FLOW_BYTES_MAX;
}

static void dispose(struct dp_engine *e)
{
	struct dp_granting *g = e->granting;

	if (dp_timer_armed(&g->timer))
		dp_wheel_cancel(&e->wheel, &g->timer);
	free(g->at);
	free(g->records);
	free(g->port);
	free(g);
	e->granting = NULL;
}

bool dp_granting_join(struct dp_engine *e, const struct dp_cc_algo *algo)
{
	struct dp_granting *g = e->granting;

	if (!dp_cc_grants(algo) || !sizes_valid(algo) || (g && g->algo != algo))
		return false;
	if (!g) {
		g = calloc(1, sizeof(*g));
		if (!g)
			return false;
		g->port = malloc(algo->port_bytes);
		if (!g->port) {
			free(g);
			return false;
		}
		memcpy(g->port, algo->port_initial, algo->port_bytes);
		g->algo = algo;
		g->sender_bytes = algo->sender_bytes;
		e->granting = g;
	}
	g->users++;
	return true;
}

static struct dp_cc_sender *record_at(const struct dp_granting *g, uint32_t i)
{
	return (struct dp_cc_sender *)(g->records + (size_t)i * g->sender_bytes);
}

static bool make_room(struct dp_granting *g)
{
	uint32_t room = g->room ? 2 * g->room : FIRST_ROOM;
	struct dp_incoming **at;
	uint8_t *records;

	if (g->n < g->room)
		return true;
	at = realloc(g->at, room * sizeof(*at));
	if (at)
		g->at = at;
	records = at ? realloc(g->records, room * g->sender_bytes) : NULL;
	if (!records)
		return false;
	g->records = records;
	g->room = room;
	return true;
}

static void swap(struct dp_granting *g, uint32_t i, uint32_t j)
{
	uint8_t record[DP_CC_FLOW_BYTES_MAX];
	struct dp_incoming *in = g->at[i];
	size_t bytes = g->sender_bytes;

	if (i == j)
		return;
	memcpy(record, record_at(g, i), bytes);
	memcpy(record_at(g, i), record_at(g, j), bytes);
	memcpy(record_at(g, j), record, bytes);
	g->at[i] = g->at[j];
	g->at[j] = in;
	g->at[i]->index = i;
	g->at[j]->index = j;
}

/* Moves the record to the part of the array where it belongs: in front while the flow wants more
 * than has arrived. */
static void place(struct dp_granting *g, struct dp_incoming *in)
{
	bool wants = in->arrived < in->wanted;

	if (wants && in->index >= g->active)
		swap(g, in->index, g->active++);
	else if (!wants && in->index < g->active)
		swap(g, in->index, --g->active);
}

/* The numbers of CREDITs go on from what the sender knows. */
static struct dp_incoming *enter(struct dp_granting *g, struct dp_qp *qp, const struct dp_demand *d)
{
	struct dp_incoming *in = make_room(g) ? calloc(1, sizeof(*in)) : NULL;

	if (!in)
		return NULL;
	in->qp = qp;
	in->index = g->n++;
	in->mss_bytes = dp_qp_segment(qp); /* a grant of less would be of no use at first */
	in->settled = in->arrived = in->granted = in->wanted = d->settled;
	in->credits = in->credits_told = d->number;
	in->credits_heard = d->heard;
	in->dscp = DP_GRANT_OWN_DSCP;
	g->at[in->index] = in;
	memcpy(record_at(g, in->index), g->algo->sender_initial, g->sender_bytes);
	record_at(g, in->index)->dscp = -1;
	return in;
}

void dp_granting_leave(struct dp_engine *e, struct dp_incoming *in)
{
	struct dp_granting *g = e->granting;

	if (in) {
		in->wanted = in->arrived;
		place(g, in);
		swap(g, in->index, --g->n);
		free(in);
	}
	if (!--g->users)
		dispose(e);
}

/* ---- calls of the algorithm ------------------------------------------------------------ */

static void show_sender(struct dp_granting *g, const struct dp_incoming *in)
{
	struct dp_cc_sender *r = record_at(g, in->index);

	r->granted_bytes = (double)in->granted;
	r->wanted_bytes = (double)in->wanted;
	r->arrived_bytes = (double)in->arrived;
	r->heard_ns = (double)in->heard_ns;
	r->rtt_ns = in->rtt_ns;
	r->mss_bytes = in->mss_bytes;
	r->credits = (double)in->credits;
	r->credits_told = (double)in->credits_told;
	r->credits_heard = (double)in->credits_heard;
}

static struct dp_cc_port *show_port(struct dp_engine *e, uint64_t now)
{
	struct dp_cc_port *p = e->granting->port;

	p->now_ns = (double)now;
	p->line_rate_bps = (double)e->cfg.line_rate_bps;
	p->n_senders = e->granting->active;
	return p;
}

/* Takes over the credits that the algorithm gave. */
static void take_credits(struct dp_granting *g, struct dp_incoming *in)
{
	double credits = record_at(g, in->index)->credits - (double)in->credits;

	if (!(credits >= 1))
		return;
	in->unsent = credits < UNSENT_MAX - in->unsent ? (uint8_t)(in->unsent + credits) :
							 UNSENT_MAX;
	in->credits += credits < UNSENT_MAX ? (uint64_t)credits : UNSENT_MAX;
	if (!in->round_credits)
		in->round_credits = in->credits;
	dp_qp_wake(in->qp);
}

/* Takes over what the algorithm granted.  A total never falls, and never exceeds the demand. */
static void take_grant(struct dp_granting *g, struct dp_incoming *in)
{
	double granted = record_at(g, in->index)->granted_bytes;
	double dscp = record_at(g, in->index)->dscp;

	take_credits(g, in);
	in->dscp = dscp >= 0 && dscp < 64 ? (uint8_t)dscp : DP_GRANT_OWN_DSCP;
	if (!(granted > (double)in->granted) || in->granted >= in->wanted)
		return;
	in->granted = granted < (double)in->wanted ? (uint64_t)granted : in->wanted;
	if (!in->round_bytes)
		in->round_bytes = in->granted;
	in->owed = true;
	dp_qp_wake(in->qp);
}

static void call_timer(struct dp_engine *e, uint64_t now)
{
	struct dp_granting *g = e->granting;
	uint32_t i;

	for (i = 0; i < g->active; i++)
		show_sender(g, g->at[i]);
	g->algo->on_timer(show_port(e, now), g->records, g->active);
	for (i = 0; i < g->active; i++)
		take_grant(g, g->at[i]);
}

/* After a call: calls on_timer if the algorithm wants it now, else arms the timer. */
static void follow_up(struct dp_engine *e, uint64_t now)
{
	struct dp_granting *g = e->granting;
	const double latest = (double)(now + 1000000000ull);
	double at = g->port->timer_ns;

	if (at > 0 && at <= (double)now) {
		g->port->timer_ns = 0;
		call_timer(e, now);
		at = g->port->timer_ns;
	}
	if (!(at > 0))
		dp_wheel_cancel(&e->wheel, &g->timer);
	else
		dp_wheel_arm(&e->wheel, &g->timer,
			     at <= (double)now ? now + 1 : (uint64_t)fmin(ceil(at), latest));
}

/* Called after on_request and on_data, and the grants that they lead to at once.  A round trip
 * begins with a grant or credit.  It ends when the bytes granted by then have arrived, or when the
 * sender has told of the credits given by then. */
static void end_round(struct dp_engine *e, struct dp_incoming *in, uint64_t now)
{
	struct dp_granting *g = e->granting;
	bool arrived = in->round_bytes && in->arrived >= in->round_bytes;
	bool told = in->round_credits && in->credits_told >= in->round_credits;

	if (!g->algo->on_round || !(arrived || told))
		return;
	in->round_bytes = in->granted > in->arrived ? in->granted : 0;
	in->round_credits = in->credits > in->credits_told ? in->credits : 0;
	show_sender(g, in);
	g->algo->on_round(show_port(e, now), record_at(g, in->index));
	take_grant(g, in);
	follow_up(e, now);
}

/* ---- events ---------------------------------------------------------------------------- */

/* The 64-bit total whose low bits the wire told, near a total that is known. */
static uint64_t total_near(uint64_t known, uint32_t low)
{
	return known + (uint64_t)(int64_t)(int32_t)(low - (uint32_t)known);
}

/* Which CREDITs the sender has received; nothing that cannot be is believed. */
static void take_report(struct dp_incoming *in, const struct dp_demand *d)
{
	uint64_t told = total_near(in->credits, d->number);
	uint64_t heard = total_near(in->credits_heard, d->heard);

	if (told > in->credits || told < in->credits_told || heard > told ||
	    heard < in->credits_heard)
		return;
	in->credits_told = told;
	in->credits_heard = heard;
}

struct dp_incoming *dp_granting_demand(struct dp_qp *qp, struct dp_incoming *in,
				       const struct dp_demand *d, uint64_t now)
{
	struct dp_granting *g = qp->engine->granting;
	uint32_t wants = d->wanted - d->settled;
	uint64_t settled;

	if (wants > INT32_MAX)
		return in;
	if (!in)
		in = enter(g, qp, d);
	if (!in)
		return NULL;
	in->heard_ns = now;
	in->owed = true; /* even if nothing is granted, the sender hears that its DEMAND came */
	dp_qp_wake(qp);
	settled = total_near(in->arrived, d->settled);
	if (settled < in->settled || settled > in->arrived + INT32_MAX) {
		if (++in->late < BELIEVED)
			return in;
		in->granted = in->arrived = settled = d->settled;
		in->round_bytes = 0;
	}
	in->late = 0;
	in->settled = settled;
	in->wanted = settled + wants;
	in->rtt_ns = d->rtt_ns;
	take_report(in, d);
	if (in->arrived < settled)
		in->arrived = settled;
	if (in->granted < in->arrived)
		in->granted = in->arrived;
	place(g, in);
	show_sender(g, in);
	g->algo->on_request(show_port(qp->engine, now), record_at(g, in->index));
	take_grant(g, in);
	follow_up(qp->engine, now);
	end_round(qp->engine, in, now);
	return in;
}

void dp_granting_data(struct dp_incoming *in, const struct dp_cc_data *data, uint64_t now)
{
	struct dp_engine *e = in->qp->engine;
	struct dp_granting *g = e->granting;

	in->heard_ns = now;
	in->arrived += (uint64_t)data->bytes;
	if (data->bytes > in->mss_bytes)
		in->mss_bytes = (uint32_t)data->bytes;
	if (in->granted < in->arrived)
		in->granted = in->arrived;
	place(g, in);
	show_sender(g, in);
	g->algo->on_data(show_port(e, now), record_at(g, in->index), data);
	take_grant(g, in);
	follow_up(e, now);
	end_round(e, in, now);
}

bool dp_granting_owns(const struct dp_engine *e, const struct dp_timer *t)
{
	return e->granting && t == &e->granting->timer;
}

void dp_granting_tick(struct dp_engine *e, uint64_t now)
{
	e->granting->port->timer_ns = (double)now;
	follow_up(e, now);
}

const char *dp_granting_check(const struct dp_engine *e)
{
	const struct dp_granting *g = e->granting;
	const struct dp_incoming *in;
	uint32_t i;

	for (i = 0; g && i < g->n; i++) {
		in = g->at[i];
		if (in->index != i || in->qp->engine != e)
			return "a flow that comes in has the record of another";
		if ((i < g->active) != (in->arrived < in->wanted))
			return "the records of flows that come in are out of order";
		if (in->granted < in->arrived)
			return "more has arrived than was granted";
	}
	return g && !g->users ? "the records of a port that no QP uses" : NULL;
}
