/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "lanes/pacer/pacer.h"

#include <string.h>

enum {
	RXE_WINDOW = 128,	    /* packets that rxe has unacknowledged at most */
	RXE_HEADERS = 80,	    /* bytes that rxe takes off an MTU */
	INITIAL_RTT_NS = 100000000, /* until there is a sample */
	SLOWEST_NS = 100000000,	    /* no full packet takes longer */
};

static const double FASTEST_BPS = 1e12;

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

/* rxe keeps no window of ours, so a window becomes a rate; with both, the smaller counts. */
static uint64_t rate_of(struct control *c, const struct dp_flow *f)
{
	struct dp_cc_flow constant;
	const struct dp_cc_flow *r = dp_flow_record(f, &constant);
	double rtt = r->srtt_ns > 0 ? r->srtt_ns : INITIAL_RTT_NS;
	double rate = r->cwnd_bytes * 8e9 / rtt, least = f->mss_bytes * 8e9 / SLOWEST_NS;

	if (r->pacing_rate_bps > 0 && r->pacing_rate_bps < rate)
		rate = r->pacing_rate_bps;
	if (rate < least)
		rate = least;
	if (rate > FASTEST_BPS)
		rate = FASTEST_BPS;
	c->last_cwnd_bytes = r->cwnd_bytes;
	c->last_srtt_ns = r->srtt_ns;
	c->last_rate_bps = rate;
	return (uint64_t)rate;
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
		.prior_delivered_bytes = (double)e->delivered_bytes,
	};

	c->losses++;
	f->inflight_bytes = 0;
	dp_flow_loss(f, &loss, e->now_ns);
}

uint64_t control_event(struct control *c, const struct dp_pace_event *e)
{
	struct control_flow *slot;
	struct dp_flow *f;

	if (e->flow >= DP_PACE_FLOWS)
		return 0;
	slot = &c->flows[e->flow];
	f = &slot->flow;
	if (e->kind == DP_PACE_BEGIN) {
		if (!slot->ready && dp_flow_init(f, &c->cfg, c->cfg.cc, &slot->stats))
			return 0;
		slot->ready = true;
		c->connections++;
		dp_flow_connect(f, c->mss_bytes, RXE_WINDOW, 1, e->now_ns);
	} else if (!slot->ready) {
		return 0; /* its beginning was lost in a full ring */
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
	return rate_of(c, f);
}
