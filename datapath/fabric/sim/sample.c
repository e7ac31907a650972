// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "fabric/sim/internal.h"

#include "wire/headers.h"

#include <math.h>

/* ---- series ------------------------------------------------------------------------- */

int dp_sim_sample(struct dp_sim *s, uint64_t interval_ns, const uint64_t *flow, uint32_t flows,
		  const uint32_t *link, uint32_t links)
{
	uint32_t i;

	if (!interval_ns || s->sample_ns)
		return -EINVAL;
	for (i = 0; i < flows; i++)
		if (flow[i] >= s->n_flows)
			return -EINVAL;
	for (i = 0; i < links; i++)
		if (link[i] >= s->n_links)
			return -EINVAL;
	s->sampled_flow = malloc((flows + 1) * sizeof(*flow));
	s->sampled_link = malloc((links + 1) * sizeof(*link));
	if (!s->sampled_flow || !s->sampled_link)
		return -ENOMEM;
	memcpy(s->sampled_flow, flow, flows * sizeof(*flow));
	memcpy(s->sampled_link, link, links * sizeof(*link));
	s->sampled_flows = flows;
	s->sampled_links = links;
	s->sample_ns = interval_ns;
	sim_queue_set(&s->queue, sim_clock_id(s, SIM_SAMPLES), s->now);
	return 0;
}

/* An RTT that is not known yet becomes NaN. */
static double known(double ns)
{
	return ns > 0 ? ns : NAN;
}

static void sample_qp(const struct sim_channel *c, struct dp_sim_qp_sample *out)
{
	const struct dp_cc_flow *f = c->requester ? dp_qp_flow(c->requester) : NULL;
	struct dp_qp_stats sent, received;

	if (!f) {
		*out = (struct dp_sim_qp_sample){
			NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN
		};
		return;
	}
	dp_qp_stats(c->requester, &sent);
	dp_qp_stats(c->responder, &received);
	*out = (struct dp_sim_qp_sample){
		.cwnd_bytes = f->cwnd_bytes,
		.pacing_rate_bps = f->pacing_rate_bps,
		.rtt_ns = known(f->srtt_ns),
		.min_rtt_ns = known(f->min_rtt_ns),
		.host_ns = f->srtt_ns > 0 ? f->host_ns : NAN,
		.inflight_bytes = f->inflight_bytes,
		.delivered_bytes = f->delivered_bytes,
		.marked_packets = (double)received.ecn_marked,
		.retransmitted_packets = (double)sent.retransmits,
		.sent_packets = (double)sent.tx_packets,
	};
}

static void sample_link(const struct dp_sim *s, uint32_t link, struct dp_sim_link_sample *out)
{
	const struct dp_link *l = s->link[link].link;
	struct dp_link_stats stats;

	sim_look_at_link(s, link);
	dp_link_stats(l, s->now, &stats);
	*out = (struct dp_sim_link_sample){
		.queue_bytes = (double)dp_link_queue_bytes(l),
		.delivered_bytes = (double)stats.delivered_bytes,
		.marked_packets = (double)stats.marked,
		.dropped_packets = (double)(stats.lost + stats.overflowed + stats.policed +
					    stats.aqm_dropped + stats.shaped),
	};
}

static bool make_room(struct dp_sim *s)
{
	uint64_t room = s->room ? 2 * s->room : 256;
	void *at, *qp, *link;

	at = realloc(s->sample_at, room * sizeof(*s->sample_at));
	if (at)
		s->sample_at = at;
	qp = realloc(s->qp_sample, (room * s->sampled_flows + 1) * sizeof(*s->qp_sample));
	if (qp)
		s->qp_sample = qp;
	link = realloc(s->link_sample, (room * s->sampled_links + 1) * sizeof(*s->link_sample));
	if (link)
		s->link_sample = link;
	if (at && qp && link)
		s->room = room;
	return at && qp && link;
}

void sim_take_sample(struct dp_sim *s)
{
	uint32_t i;

	if (s->n_samples == s->room && !make_room(s)) {
		sim_fail(s, -ENOMEM, "no memory for more than %llu samples",
			 (unsigned long long)s->n_samples);
		return;
	}
	s->sample_at[s->n_samples] = s->now;
	for (i = 0; i < s->sampled_flows; i++)
		sample_qp(&s->channel[s->flow[s->sampled_flow[i]].channel],
			  &s->qp_sample[s->n_samples * s->sampled_flows + i]);
	for (i = 0; i < s->sampled_links; i++)
		sample_link(s, s->sampled_link[i],
			    &s->link_sample[s->n_samples * s->sampled_links + i]);
	s->n_samples++;
	sim_queue_set(&s->queue, sim_clock_id(s, SIM_SAMPLES), s->now + s->sample_ns);
}

uint64_t dp_sim_series(const struct dp_sim *s, const uint64_t **at_ns,
		       const struct dp_sim_qp_sample **qp, const struct dp_sim_link_sample **link)
{
	*at_ns = s->sample_at;
	*qp = s->qp_sample;
	*link = s->link_sample;
	return s->n_samples;
}

void sim_sample_free(struct dp_sim *s)
{
	free(s->sampled_flow);
	free(s->sampled_link);
	free(s->sample_at);
	free(s->qp_sample);
	free(s->link_sample);
}

/* ---- trace -------------------------------------------------------------------------- */

void sim_trace(struct dp_sim *s, uint32_t channel, const struct dp_sim_trace *t)
{
	struct sim_channel *c = &s->channel[channel];

	if (c->trace)
		c->trace[c->traced++ & (s->cfg.trace_events - 1)] = *t;
}

void sim_trace_packet(struct dp_sim *s, enum dp_sim_trace_kind kind, uint32_t node,
		      const struct sim_packet *p, uint32_t detail)
{
	if (!s->cfg.trace_events)
		return;
	sim_trace(s, p->channel,
		  &(struct dp_sim_trace){ s->now, kind, node, dp_bth_opcode(p->bytes),
					  dp_bth_psn(p->bytes), p->frame.bytes, detail });
}

uint32_t dp_sim_trace(const struct dp_sim *s, uint64_t flow, struct dp_sim_trace *out, uint32_t max)
{
	const struct sim_channel *c;
	uint32_t i, n;

	if (flow >= s->n_flows)
		return 0;
	c = &s->channel[s->flow[flow].channel];
	n = c->traced < s->cfg.trace_events ? c->traced : s->cfg.trace_events;
	if (n > max)
		n = max;
	for (i = 0; i < n; i++)
		out[i] = c->trace[(c->traced - n + i) & (s->cfg.trace_events - 1)];
	return n;
}
