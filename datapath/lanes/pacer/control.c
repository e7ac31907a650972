/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "lanes/pacer/pacer.h"

#include <string.h>

#include "posix/clock.h"

enum {
	RXE_WINDOW = 128,	   /* packets that rxe has unacknowledged at most */
	RXE_HEADERS = 80,	   /* bytes that rxe takes off an MTU */
	INITIAL_RTT_NS = 50000000, /* until there is a sample */
	SLOWEST_NS = 100000000,	   /* no full packet takes longer */
	WAITING_NS = 20000000,	   /* at a rate, of packets that have a time of departure */
};

static const double FASTEST_BPS = 1e12;
static const double WINDOWS_PER_RTT = 2; /* by pacing; acknowledgements keep the window */

uint32_t control_mss(uint32_t mtu)
{
	uint32_t mss = 4096;

	while (mss > 256 && mss + RXE_HEADERS > mtu)
		mss /= 2;
	return mss;
}

void control_init(struct control *c, const struct dp_cc_algo *algo, uint32_t mss_bytes)
{
	memset(c, 0, sizeof(*c));
	c->cfg.cc = algo;
	c->mss_bytes = mss_bytes;
}

void control_free(struct control *c)
{
	for (int i = 0; i < DP_PACE_FLOWS; i++)
		if (c->flows[i].ready)
			dp_flow_free(&c->flows[i].flow);
}

/* An algorithm that sets a rate may leave the window open: then as much as leaves in an RTT. */
static uint64_t window_of(const struct dp_flow *f, const struct dp_cc_flow *r, double rate,
			  double rtt)
{
	double most = rate * (rtt + WAITING_NS) / 8e9, window = r->cwnd_bytes;

	if (window > most)
		window = most;
	return (uint64_t)(window > f->mss_bytes ? window : f->mss_bytes);
}

/* A window is a rate as well: rxe hands over its packets in bursts.  With both, the smaller counts. */
static struct control_limits limits_of(struct control *c, const struct dp_flow *f)
{
	struct dp_cc_flow constant;
	const struct dp_cc_flow *r = dp_flow_record(f, &constant);
	double rtt = r->srtt_ns > 0 ? r->srtt_ns : INITIAL_RTT_NS;
	double rate = WINDOWS_PER_RTT * r->cwnd_bytes * 8e9 / rtt,
	       least = f->mss_bytes * 8e9 / SLOWEST_NS;

	if (r->pacing_rate_bps > 0 && r->pacing_rate_bps < rate)
		rate = r->pacing_rate_bps;
	if (rate < least)
		rate = least;
	if (rate > FASTEST_BPS)
		rate = FASTEST_BPS;
	c->last_cwnd_bytes = r->cwnd_bytes;
	c->last_srtt_ns = r->srtt_ns;
	c->last_rate_bps = rate;
	return (struct control_limits){
		.rate_bps = (uint64_t)rate,
		.cwnd_bytes = window_of(f, r, rate, rtt),
	};
}

static void acknowledged(struct control *c, struct dp_flow *f, const struct dp_pace_event *e)
{
	struct dp_cc_ack ack = {
		.rtt_ns = (double)e->rtt_ns,
		.acked_bytes = (double)e->acked_bytes,
		.marked_bytes = e->marked ? (double)e->acked_bytes : 0,
		.prior_delivered_bytes = (double)e->prior_delivered_bytes,
		.app_limited = e->app_limited,
	};

	c->acks++;
	c->marked_acks += e->marked;
	f->delivered_bytes = e->delivered_bytes;
	f->inflight_bytes = e->inflight_bytes;
	if (e->rtt_ns) {
		dp_rtt_sample(&f->rtt, e->rtt_ns, 0, 0, e->now_ns);
		if (!c->min_rtt_ns || e->rtt_ns < c->min_rtt_ns)
			c->min_rtt_ns = e->rtt_ns;
	}
	if (e->interval_ns && e->interval_ns >= f->rtt.min_rtt_ns)
		ack.delivery_rate_bps = (double)(e->delivered_bytes - e->prior_delivered_bytes) *
					8e9 / (double)e->interval_ns;
	dp_flow_ack(f, &ack, e->now_ns);
}

static void lost(struct control *c, struct dp_flow *f, const struct dp_pace_event *e)
{
	struct dp_cc_loss loss = {
		.lost_bytes = (double)e->lost_bytes,
		.prior_delivered_bytes = (double)e->prior_delivered_bytes,
	};

	c->losses++;
	f->inflight_bytes = 0;
	dp_flow_loss(f, &loss, e->now_ns);
}

bool control_event(struct control *c, const struct dp_pace_event *e, struct control_limits *limits)
{
	struct control_flow *slot;
	struct dp_flow *f;

	if (e->flow >= DP_PACE_FLOWS)
		return false;
	slot = &c->flows[e->flow];
	f = &slot->flow;
	if (e->kind == DP_PACE_BEGIN) {
		if (!slot->ready && dp_flow_init(f, &c->cfg, c->cfg.cc, &slot->stats))
			return false;
		slot->ready = true;
		c->connections++;
		dp_flow_connect(f, c->mss_bytes, RXE_WINDOW, 1, e->now_ns);
	} else if (!slot->ready) {
		return false; /* its beginning was lost in a full ring */
	} else if (e->kind == DP_PACE_ACK) {
		acknowledged(c, f, e);
	} else if (e->kind == DP_PACE_LOSS) {
		lost(c, f, e);
	} else if (e->kind == DP_PACE_TIMEOUT) {
		c->timeouts++;
		f->inflight_bytes = 0;
		dp_flow_timeout(f, false, e->now_ns);
	}
	dp_flow_tick(f, e->now_ns);
	*limits = limits_of(c, f);
	return true;
}

uint64_t control_first_rate(struct control *c)
{
	struct dp_sender_stats stats = { 0 };
	struct dp_flow flow = { 0 };
	uint64_t rate;

	if (dp_flow_init(&flow, &c->cfg, c->cfg.cc, &stats))
		return 0;
	dp_flow_connect(&flow, c->mss_bytes, RXE_WINDOW, 1, dp_now_ns());
	rate = limits_of(c, &flow).rate_bps;
	dp_flow_free(&flow);
	return rate;
}

uint64_t control_srtt_ns(const struct control *c, uint32_t flow)
{
	const struct control_flow *slot = &c->flows[flow];

	return slot->ready ? (uint64_t)slot->flow.rtt.srtt_ns : 0;
}
