// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Congestion control of one QP: the calls into the algorithm, and what its
 * window and rate allow.
 */
#include "core/internal.h"

#include <math.h>

/* Credit that a paced QP keeps from an idle time. */
#define PACING_CREDIT_NS 10000ull
/* How long the lowest RTT is believed (as BBR, draft-cardwell-iccrg-bbr). */
#define MIN_RTT_WINDOW_NS 10000000000ull

int dp_flow_init(struct dp_qp *qp, const struct dp_cc_algo *algo)
{
	size_t bytes = algo ? algo->flow_bytes : sizeof(struct dp_cc_flow);
	struct dp_cc_flow *record;

	if (algo &&
	    (algo->abi != DP_CC_ABI || bytes < sizeof(*record) || bytes > DP_CC_FLOW_BYTES_MAX))
		return -EINVAL;
	record = calloc(1, bytes);
	if (!record)
		return -ENOMEM;
	if (algo)
		memcpy(record, algo->initial, bytes);
	free(qp->flow.record);
	qp->flow.record = record;
	qp->flow.algo = algo;
	return 0;
}

void dp_flow_free(struct dp_qp *qp)
{
	free(qp->flow.record);
	qp->flow.record = NULL;
}

/* What the transport tells, in front of every call. */
static struct dp_cc_flow *inputs(struct dp_qp *qp, uint64_t now)
{
	struct dp_flow_state *f = &qp->flow;
	struct dp_cc_flow *r = f->record;
	uint32_t window = qp->extended ? qp->window : DP_STD_WINDOW;

	r->mss_bytes = qp->req.segment;
	r->line_rate_bps = (double)qp->engine->cfg.line_rate_bps;
	r->max_cwnd_bytes = (double)window * qp->req.segment;
	r->min_rtt_ns = (double)f->min_rtt_ns;
	r->srtt_ns = (double)f->srtt_ns;
	r->inflight_bytes = (double)f->inflight_bytes;
	r->delivered_bytes = (double)f->delivered_bytes;
	r->now_ns = (double)now;
	r->paths = dp_paths(qp);
	return r;
}

/* An algorithm's mistakes stay its own: no NaN, nothing beyond the limits. */
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
}

static void begin(struct dp_qp *qp, uint64_t now)
{
	struct dp_cc_flow *r = inputs(qp, now);

	r->next_path = -1;
	if (qp->flow.algo && qp->flow.algo->on_init)
		qp->flow.algo->on_init(r);
	if (!qp->flow.algo)
		r->cwnd_bytes = DP_CONSTANT_WINDOW_BYTES;
	else if (r->cwnd_bytes <= 0)
		r->cwnd_bytes = r->max_cwnd_bytes;
	outputs(r);
}

void dp_flow_connect(struct dp_qp *qp, uint64_t now)
{
	struct dp_flow_state *f = &qp->flow;
	const struct dp_cc_algo *algo = f->algo;
	struct dp_cc_flow *record = f->record;

	memset(f, 0, sizeof(*f));
	f->algo = algo;
	f->record = record;
	if (algo)
		memcpy(record, algo->initial, algo->flow_bytes);
	else
		memset(record, 0, sizeof(*record));
	begin(qp, now);
}

int dp_qp_set_cc(struct dp_qp *qp, const struct dp_cc_algo *algo, uint64_t now)
{
	struct dp_flow_state *f = &qp->flow;
	int err = dp_flow_init(qp, algo);

	if (err || !qp->attr.path_mtu)
		return err;
	begin(qp, now);
	/* What waits does so for the old window and rate. */
	f->paced = false;
	if (f->next_tx_ns > now)
		f->next_tx_ns = now;
	dp_requester_wake(qp);
	return 0;
}

const struct dp_cc_flow *dp_qp_flow(const struct dp_qp *qp)
{
	const struct dp_flow_state *f = &qp->flow;

	if (!qp->attr.path_mtu)
		return NULL;
	/* As it is now, not as it was at the last call of the algorithm. */
	f->record->srtt_ns = (double)f->srtt_ns;
	f->record->min_rtt_ns = (double)f->min_rtt_ns;
	f->record->inflight_bytes = (double)f->inflight_bytes;
	f->record->delivered_bytes = (double)f->delivered_bytes;
	return f->record;
}

/* RFC 6298, section 2. */
void dp_flow_rtt(struct dp_qp *qp, uint64_t rtt_ns, uint64_t now)
{
	struct dp_flow_state *f = &qp->flow;
	uint64_t err;

	if (!rtt_ns)
		rtt_ns = 1;
	if (!f->srtt_ns) {
		f->srtt_ns = rtt_ns;
		f->rttvar_ns = rtt_ns / 2;
	} else {
		err = rtt_ns > f->srtt_ns ? rtt_ns - f->srtt_ns : f->srtt_ns - rtt_ns;
		f->rttvar_ns = (3 * f->rttvar_ns + err) / 4;
		f->srtt_ns = (7 * f->srtt_ns + rtt_ns) / 8;
	}
	if (!f->min_rtt_ns || rtt_ns <= f->min_rtt_ns ||
	    now - f->min_rtt_at_ns > MIN_RTT_WINDOW_NS) {
		f->min_rtt_ns = rtt_ns;
		f->min_rtt_at_ns = now;
	}
}

uint64_t dp_flow_rto(const struct dp_qp *qp)
{
	const struct dp_flow_state *f = &qp->flow;
	uint64_t min = qp->engine->cfg.min_rto_ns, rto = DP_RTO_INITIAL_NS;

	if (f->srtt_ns)
		rto = f->srtt_ns + 4 * f->rttvar_ns;
	if (rto < min)
		rto = min;
	return rto < DP_RTO_MAX_NS ? rto : DP_RTO_MAX_NS;
}

/* A window under one packet means one packet in several RTTs. */
static double rate(const struct dp_qp *qp)
{
	const struct dp_cc_flow *r = qp->flow.record;

	if (r->pacing_rate_bps > 0)
		return r->pacing_rate_bps;
	if (r->cwnd_bytes < qp->req.segment && qp->flow.srtt_ns)
		return r->cwnd_bytes * 8e9 / (double)qp->flow.srtt_ns;
	return 0;
}

/* What waited for its turn and is told of it late makes up for that; what did not
 * wait, or cannot go on for the window, does not. */
void dp_flow_turn(struct dp_qp *qp, uint64_t now)
{
	struct dp_flow_state *f = &qp->flow;

	if (!f->paced || now < f->next_tx_ns)
		return;
	f->paced = false;
	f->late_ns = now - f->next_tx_ns;
	if (f->late_ns > f->srtt_ns / 2)
		f->late_ns = f->srtt_ns / 2;
}

bool dp_flow_allows(struct dp_qp *qp, uint32_t bytes, uint64_t now)
{
	struct dp_flow_state *f = &qp->flow;

	if (f->inflight_bytes && (double)(f->inflight_bytes + bytes) > f->record->cwnd_bytes) {
		f->late_ns = 0;
		return false;
	}
	dp_flow_turn(qp, now);
	f->paced = rate(qp) > 0 && f->next_tx_ns > now;
	return !f->paced;
}

void dp_flow_sent(struct dp_qp *qp, uint32_t bytes, uint64_t now)
{
	struct dp_flow_state *f = &qp->flow;
	double bps = rate(qp);

	if (!f->inflight_bytes) {
		f->first_sent_ns = now;
		f->delivered_ns = now;
	}
	f->inflight_bytes += bytes;
	if (bps <= 0)
		return;
	if (f->next_tx_ns + PACING_CREDIT_NS + f->late_ns < now)
		f->next_tx_ns = now - PACING_CREDIT_NS - f->late_ns;
	f->next_tx_ns += (uint64_t)((double)(bytes ? bytes : 1) * 8e9 / bps);
	if (f->next_tx_ns >= now)
		f->late_ns = 0;
}

void dp_flow_ack(struct dp_qp *qp, struct dp_cc_ack *ack, uint64_t now)
{
	struct dp_flow_state *f = &qp->flow;
	struct dp_cc_flow *r = inputs(qp, now);

	if (!f->algo)
		return;
	ack->now_ns = (double)now;
	ack->inflight_bytes = (double)f->inflight_bytes;
	ack->delivered_bytes = (double)f->delivered_bytes;
	ack->lost_bytes = (double)f->lost_since_ack;
	f->lost_since_ack = 0;
	f->algo->on_ack(r, ack);
	outputs(r);
}

/* The clock of a hop runs as ours does, and its counter only grows: what the wire
 * leaves out follows from the echo before. */
void dp_flow_hops(struct dp_qp *qp, struct dp_cc_ack *ack, const uint8_t *records, uint32_t n,
		  uint64_t now)
{
	struct dp_echo *e = qp->echo;
	uint64_t passed = now - e->at_ns, ts;
	struct dp_telemetry t;
	uint32_t i;

	for (i = 0; i < n; i++) {
		dp_telemetry_get(records + i * DP_HOP_LEN, &t);
		ts = e->ts_ns[i] ? e->ts_ns[i] + passed : 1ull << 32 | t.ts_ns;
		e->ts_ns[i] = ts + (uint64_t)(int64_t)(int32_t)((uint32_t)t.ts_ns - (uint32_t)ts);
		e->tx_bytes[i] += (t.tx_bytes - e->tx_bytes[i]) & ((1ull << 40) - 1);
		ack->hop[i] = (struct dp_cc_hop){
			.queue_bytes = (double)t.queue_bytes,
			.tx_bytes = (double)e->tx_bytes[i],
			.ts_ns = (double)e->ts_ns[i],
			.rate_bps = (double)t.rate_mbps * 1e6,
		};
	}
	e->at_ns = now;
	ack->n_hops = n;
}

void dp_flow_loss(struct dp_qp *qp, struct dp_cc_loss *loss, uint64_t now)
{
	struct dp_flow_state *f = &qp->flow;
	struct dp_cc_flow *r = inputs(qp, now);

	loss->now_ns = (double)now;
	loss->inflight_bytes = (double)f->inflight_bytes;
	f->lost_since_ack += (uint64_t)loss->lost_bytes;
	if (!f->algo)
		return;
	f->algo->on_loss(r, loss);
	outputs(r);
}

void dp_flow_timeout(struct dp_qp *qp, uint64_t now)
{
	struct dp_cc_flow *r = inputs(qp, now);

	if (!qp->flow.algo)
		return;
	qp->flow.algo->on_timeout(r, (double)now);
	outputs(r);
}
