// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Congestion control of one QP: the calls into the algorithm, and what its
 * window and rate allow.
 */
#include "engine/flow.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A paced QP may catch up on this much idle time. */
#define PACING_CREDIT_NS 10000ull
/* Pacing where acknowledgements are thinned and the algorithm sets no rate, in windows per RTT. */
#define THINNED_GAIN 1.5

static void forget(struct dp_flow *f)
{
	free(f->before);
	f->before = NULL;
}

void dp_flow_free(struct dp_flow *f)
{
	forget(f);
	free(f->record);
	f->record = NULL;
}

bool dp_flow_takes(const struct dp_cc_algo *algo)
{
	return !algo || (algo->abi == DP_CC_ABI && algo->flow_bytes >= sizeof(struct dp_cc_flow) &&
			 algo->flow_bytes <= DP_CC_FLOW_BYTES_MAX);
}

static int set_algorithm(struct dp_flow *f, const struct dp_cc_algo *algo)
{
	struct dp_cc_flow *record = NULL;

	if (!dp_flow_takes(algo))
		return -EINVAL;
	if (algo) {
		record = malloc(algo->flow_bytes);
		if (!record)
			return -ENOMEM;
		memcpy(record, algo->initial, algo->flow_bytes);
	}
	dp_flow_free(f);
	f->record = record;
	f->algo = algo;
	return 0;
}

int dp_flow_init(struct dp_flow *f, const struct dp_engine_config *cfg,
		 const struct dp_cc_algo *algo, struct dp_sender_stats *stats)
{
	f->cfg = cfg;
	f->stats = stats;
	return set_algorithm(f, algo);
}

static double max_cwnd_bytes(const struct dp_flow *f)
{
	return (double)f->window_psns * f->mss_bytes;
}

/* Sets the members that the transport provides, before every call of the algorithm. */
static struct dp_cc_flow *inputs(struct dp_flow *f, uint64_t now)
{
	struct dp_cc_flow *r = f->record;

	r->mss_bytes = f->mss_bytes;
	r->line_rate_bps = (double)f->cfg->line_rate_bps;
	r->max_cwnd_bytes = max_cwnd_bytes(f);
	r->min_rtt_ns = (double)f->rtt.min_rtt_ns;
	r->srtt_ns = (double)f->rtt.srtt_ns;
	r->host_ns = (double)f->rtt.host_ns;
	r->inflight_bytes = (double)f->inflight_bytes;
	r->delivered_bytes = (double)f->delivered_bytes;
	r->now_ns = (double)now;
	r->paths = f->paths;
	r->needs_grants = f->needs_grants;
	return r;
}

/* Repairs what a faulty algorithm may have set: NaN, and values beyond the limits. */
static void outputs(struct dp_cc_flow *r)
{
	if (!(r->cwnd_bytes >= 1))
		r->cwnd_bytes = 1;
	if (r->cwnd_bytes > r->max_cwnd_bytes)
		r->cwnd_bytes = r->max_cwnd_bytes;
	if (!(r->pacing_rate_bps >= 0) || isinf(r->pacing_rate_bps))
		r->pacing_rate_bps = 0;
	if (!(r->next_path >= 0 && r->next_path < r->paths))
		r->next_path = -1;
	if (!(r->unscheduled_bytes >= 0))
		r->unscheduled_bytes = 0;
	if (!(r->wake_ns >= 0 && r->wake_ns < (double)DP_NEVER))
		r->wake_ns = 0;
}

static void begin(struct dp_flow *f, uint64_t now)
{
	struct dp_cc_flow *r;

	f->round_bytes = f->delivered_bytes;
	if (!f->algo) {
		f->constant_cwnd_bytes = fmin(DP_CONSTANT_WINDOW_BYTES, max_cwnd_bytes(f));
		return;
	}
	r = inputs(f, now);
	r->next_path = -1;
	if (f->algo->on_init)
		f->algo->on_init(r);
	if (r->cwnd_bytes <= 0)
		r->cwnd_bytes = r->max_cwnd_bytes;
	outputs(r);
}

void dp_flow_connect(struct dp_flow *f, uint32_t mss_bytes, uint32_t window_psns, uint8_t paths,
		     uint64_t now)
{
	forget(f);
	*f = (struct dp_flow){
		.cfg = f->cfg,
		.stats = f->stats,
		.algo = f->algo,
		.record = f->record,
		.mss_bytes = mss_bytes,
		.window_psns = window_psns,
		.paths = paths,
		.needs_grants = f->needs_grants,
	};
	if (f->algo)
		memcpy(f->record, f->algo->initial, f->algo->flow_bytes);
	begin(f, now);
}

int dp_flow_replace(struct dp_flow *f, const struct dp_cc_algo *algo, uint64_t now)
{
	int err = set_algorithm(f, algo);

	if (err)
		return err;
	begin(f, now);
	/* A packet that waits for its time got that time from the old rate: forget it. */
	f->paced = false;
	f->waited = false;
	f->burst = 0;
	if (f->next_tx_ns > now)
		f->next_tx_ns = now;
	return 0;
}

const struct dp_cc_flow *dp_flow_record(const struct dp_flow *f, struct dp_cc_flow *constant)
{
	struct dp_cc_flow *r = f->record;

	if (!r) {
		r = constant;
		*r = (struct dp_cc_flow){
			.cwnd_bytes = f->constant_cwnd_bytes,
			.next_path = -1,
			.mss_bytes = f->mss_bytes,
			.line_rate_bps = (double)f->cfg->line_rate_bps,
			.max_cwnd_bytes = max_cwnd_bytes(f),
			.paths = f->paths,
		};
	}
	/* The current value, not the one at the last call of the algorithm. */
	r->srtt_ns = (double)f->rtt.srtt_ns;
	r->host_ns = (double)f->rtt.host_ns;
	r->min_rtt_ns = (double)f->rtt.min_rtt_ns;
	r->inflight_bytes = (double)f->inflight_bytes;
	r->delivered_bytes = (double)f->delivered_bytes;
	return r;
}

void dp_flow_stop(struct dp_flow *f)
{
	f->inflight_bytes = 0;
	f->paced = false;
	f->waited = false;
	f->late_ns = 0;
}

uint64_t dp_flow_rto(const struct dp_flow *f, uint64_t handshake_ns)
{
	uint64_t min = f->cfg->min_rto_ns, rto = dp_rtt_rto(&f->rtt);

	if (!rto)
		rto = 3 * handshake_ns > DP_RTO_INITIAL_NS ? 3 * handshake_ns : DP_RTO_INITIAL_NS;
	if (rto < min)
		rto = min;
	return rto < DP_RTO_MAX_NS ? rto : DP_RTO_MAX_NS;
}

/* A window of less than a packet means one packet in several RTTs.  A window whose acknowledgements
 * are thinned must not leave in bursts, as large as what each of them acknowledges. */
static double rate(const struct dp_flow *f)
{
	double cwnd_bytes = dp_flow_cwnd_bytes(f);

	if (f->record && f->record->pacing_rate_bps > 0)
		return f->record->pacing_rate_bps;
	if (!f->rtt.srtt_ns)
		return 0;
	if (cwnd_bytes < f->mss_bytes)
		return cwnd_bytes * 8e9 / (double)f->rtt.srtt_ns;
	if (f->thinning.level)
		return THINNED_GAIN * cwnd_bytes * 8e9 / (double)f->rtt.srtt_ns;
	return 0;
}

double dp_flow_flight_bytes(const struct dp_flow *f)
{
	double window_bytes = dp_flow_window_bytes(f);
	double rtt_ns = (double)(f->rtt.srtt_ns + f->rtt.host_ns);
	double paced_bytes = rate(f) * rtt_ns / 8e9;

	return paced_bytes > 0 && paced_bytes < window_bytes ? paced_bytes : window_bytes;
}

/* A paced QP that wakes late may catch up.  An idle or window-limited QP may not. */
void dp_flow_turn(struct dp_flow *f, uint64_t now)
{
	if (!f->paced || now < f->next_tx_ns)
		return;
	f->paced = false;
	f->late_ns = now - f->next_tx_ns;
	if (f->late_ns > f->rtt.srtt_ns / 2)
		f->late_ns = f->rtt.srtt_ns / 2;
}

bool dp_flow_allows(struct dp_flow *f, uint32_t bytes, uint64_t now)
{
	if (f->inflight_bytes && (double)(f->inflight_bytes + bytes) > dp_flow_window_bytes(f)) {
		f->late_ns = 0;
		f->waited = false; /* from here on the QP waits for the window */
		f->burst = 0;
		return false;
	}
	dp_flow_turn(f, now);
	f->paced = rate(f) > 0 && f->next_tx_ns > now;
	f->waited |= f->paced;
	return !f->paced;
}

/* Counts how late a paced packet is sent. */
static void count_lateness(struct dp_flow *f, uint64_t now)
{
	struct dp_sender_stats *s = f->stats;
	uint64_t late = now > f->next_tx_ns ? now - f->next_tx_ns : 0;

	if (!f->waited)
		return;
	f->waited = false;
	s->pacing_waits++;
	s->pacing_late_ns += late;
	if (late > s->pacing_late_max_ns)
		s->pacing_late_max_ns = late;
}

/* Called after a packet has moved next_tx_ns on.  Packets sent in a row while next_tx_ns is not in
 * the future are a burst. */
static void count_burst(struct dp_flow *f, uint64_t now)
{
	f->burst++;
	if (f->burst > f->stats->pacing_burst_max)
		f->stats->pacing_burst_max = f->burst;
	if (f->next_tx_ns > now)
		f->burst = 0;
}

void dp_flow_begin_sample(struct dp_flow *f, uint64_t now)
{
	if (f->inflight_bytes)
		return;
	f->first_sent_ns = now;
	f->delivered_ns = now;
}

void dp_flow_sent(struct dp_flow *f, uint32_t bytes, uint64_t now)
{
	double bps = rate(f);

	f->inflight_bytes += bytes;
	if (bps <= 0)
		return;
	count_lateness(f, now);
	if (f->next_tx_ns + PACING_CREDIT_NS + f->late_ns < now) {
		f->next_tx_ns = now - PACING_CREDIT_NS - f->late_ns;
		f->burst = 0;
	}
	f->next_tx_ns += (uint64_t)((double)(bytes ? bytes : 1) * 8e9 / bps);
	if (f->next_tx_ns >= now)
		f->late_ns = 0;
	count_burst(f, now);
}

void dp_flow_ack_path(struct dp_flow *f, struct dp_cc_ack *ack, uint64_t now)
{
	struct dp_cc_flow *r;

	if (!f->algo)
		return;
	r = inputs(f, now);
	ack->now_ns = (double)now;
	ack->inflight_bytes = (double)f->inflight_bytes;
	ack->delivered_bytes = (double)f->delivered_bytes;
	ack->lost_bytes = (double)f->lost_since_ack;
	f->lost_since_ack = 0;
	f->algo->on_ack(r, ack);
	outputs(r);
}

void dp_flow_ack(struct dp_flow *f, struct dp_cc_ack *ack, uint64_t now)
{
	dp_flow_ack_path(f, ack, now);
	if (!f->algo || !f->algo->on_rtt || ack->prior_delivered_bytes < (double)f->round_bytes)
		return;
	f->round_bytes = f->delivered_bytes;
	f->algo->on_rtt(f->record, ack);
	outputs(f->record);
}

void dp_flow_tick(struct dp_flow *f, uint64_t now)
{
	uint64_t at = dp_flow_wake_ns(f);
	struct dp_cc_flow *r;

	if (!at || now < at)
		return;
	r = inputs(f, now);
	r->wake_ns = 0;
	f->algo->on_wake(r, (double)now);
	outputs(r);
}

/* The low bits as a signed difference of 40 bits. */
static int64_t difference(uint64_t a, uint64_t b)
{
	return (int64_t)((a - b) << 24) >> 24;
}

/* The records before give the high bits: the clock runs as fast as ours, and the counter moves by
 * less than 2^39 bytes.  Where the path changes, the hop is another one, whose clock and counter may
 * be behind: then both step back, or forth. */
void dp_flow_hops(struct dp_hops *e, struct dp_cc_hop *out, const uint8_t *records, uint32_t n,
		  uint64_t now)
{
	uint64_t passed = now - e->at_ns, ts;
	struct dp_telemetry t;
	uint32_t i;
	int64_t tx;

	for (i = 0; i < n; i++) {
		dp_telemetry_get(records + i * DP_HOP_LEN, &t);
		ts = e->ts_ns[i] ? e->ts_ns[i] + passed : 1ull << 32 | t.ts_ns;
		tx = e->ts_ns[i] ? e->tx_bytes[i] : (int64_t)t.tx_bytes;
		e->ts_ns[i] = ts + (uint64_t)(int64_t)(int32_t)((uint32_t)t.ts_ns - (uint32_t)ts);
		tx = (int64_t)((uint64_t)tx + (uint64_t)difference(t.tx_bytes, (uint64_t)tx));
		e->tx_bytes[i] = tx;
		out[i] = (struct dp_cc_hop){
			.queue_bytes = (double)t.queue_bytes,
			.tx_bytes = (double)e->tx_bytes[i],
			.ts_ns = (double)e->ts_ns[i],
			.rate_bps = (double)t.rate_mbps * 1e6,
		};
	}
	e->at_ns = now;
}

void dp_flow_loss(struct dp_flow *f, struct dp_cc_loss *loss, uint64_t now)
{
	struct dp_cc_flow *r;

	loss->now_ns = (double)now;
	loss->inflight_bytes = (double)f->inflight_bytes;
	f->lost_since_ack += (uint64_t)loss->lost_bytes;
	if (!f->algo)
		return;
	r = inputs(f, now);
	f->algo->on_loss(r, loss);
	outputs(r);
}

void dp_flow_notified(struct dp_flow *f, uint64_t now)
{
	struct dp_cc_flow *r;

	if (!f->algo || !f->algo->on_cnp)
		return;
	r = inputs(f, now);
	f->algo->on_cnp(r, (double)now);
	outputs(r);
}

void dp_flow_timeout(struct dp_flow *f, bool first, uint64_t now)
{
	struct dp_cc_flow *r;

	if (!f->algo)
		return;
	r = inputs(f, now);
	if (first) {
		forget(f);
		f->before = malloc(f->algo->flow_bytes); /* NULL: a time-out cannot be undone */
	}
	if (first && f->before)
		memcpy(f->before, r, f->algo->flow_bytes);
	f->algo->on_timeout(r, (double)now);
	outputs(r);
}

void dp_flow_undo_timeout(struct dp_flow *f)
{
	if (f->before)
		memcpy(f->record, f->before, f->algo->flow_bytes);
	forget(f);
}

void dp_flow_keep_timeout(struct dp_flow *f)
{
	forget(f);
}
