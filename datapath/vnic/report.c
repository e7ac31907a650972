// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <string.h>

#include "io/addr.h"
#include "vnic/card.h"

#define NUMBER(out, name, value) fprintf(out, "\"" name "\":%llu,", (unsigned long long)(value))

void report_state(const struct card *card, FILE *out)
{
	const char *between = "";

	fprintf(out, "{");
	for (uint32_t i = 0; i < card->n_hosts; i++) {
		const struct host *h = &card->host[i];

		if (i == card->self)
			continue;
		fprintf(out, "%s\"%s\":\"%s\"", between, h->name,
			h->broken ? "broken" :
			h->up	  ? "up" :
				    "down");
		between = ",";
	}
	fprintf(out, "}\n");
}

void report_pipes(const struct card *card, const struct host *h, struct pipes_sum *out)
{
	*out = (struct pipes_sum){};
	for (uint32_t i = 0; i < card->n_pipes; i++) {
		const struct pipe *p = &h->pipe[i];
		const struct dp_cc_flow *flow = p->qp ? dp_qp_flow(p->qp) : NULL;
		struct dp_qp_stats s;

		if (!p->qp)
			continue;
		dp_qp_stats(p->qp, &s);
		out->packets += s.tx_packets;
		out->retransmits += s.retransmits;
		out->timeouts += s.timeouts;
		out->ecn_marked += s.ecn_marked;
		for (uint32_t k = 0; k < card->n_leaves; k++)
			out->queued_frames += p->line[k].queued;
		out->posted_frames += p->posted;
		out->extended += (uint32_t)dp_qp_extended(p->qp);
		if (!flow)
			continue;
		if (flow->srtt_ns > out->rtt_ns)
			out->rtt_ns = flow->srtt_ns;
		out->cwnd_bytes += flow->cwnd_bytes;
		out->inflight_bytes += flow->inflight_bytes;
		out->delivered_bytes += flow->delivered_bytes;
		out->pacing_rate_bps += flow->pacing_rate_bps;
	}
}

double report_window(const struct card *card, const struct host *h, uint32_t leaf)
{
	double cwnd_bytes = 0;

	for (uint32_t i = 0; i < card->n_pipes; i++) {
		const struct pipe *p = &h->pipe[i];
		const struct dp_cc_flow *flow = p->qp ? dp_qp_flow(p->qp) : NULL;

		if (flow && (p->line[leaf].posted || p->line[leaf].queued))
			cwnd_bytes += flow->cwnd_bytes;
	}
	return cwnd_bytes;
}

static void report_tunnel(const struct card *card, const struct host *h, FILE *out)
{
	struct pipes_sum sum;

	report_pipes(card, h, &sum);
	NUMBER(out, "packets", sum.packets);
	NUMBER(out, "retransmits", sum.retransmits);
	NUMBER(out, "timeouts", sum.timeouts);
	NUMBER(out, "ecn_marked", sum.ecn_marked);
	NUMBER(out, "queued_frames", sum.queued_frames);
	NUMBER(out, "posted_frames", sum.posted_frames);
	NUMBER(out, "extended", sum.extended);
	NUMBER(out, "rtt_ns", sum.rtt_ns);
	NUMBER(out, "cwnd_bytes", sum.cwnd_bytes);
	fprintf(out, "\"inflight_bytes\":%.0f", sum.inflight_bytes);
}

static void report_host(const struct card *card, const struct host *h, FILE *out)
{
	fprintf(out, "\"%s\":{", h->name);
#define X(name) NUMBER(out, #name, h->counters.name);
	HOST_COUNTERS(X)
#undef X
	report_tunnel(card, h, out);
	fprintf(out, "}");
}

static void report_guest(const struct guest *g, FILE *out)
{
	fprintf(out, "\"%s\":{\"vni\":%u,", g->port->name, g->vni);
#define X(name) NUMBER(out, #name, g->counters.name);
	GUEST_COUNTERS(X)
#undef X
	NUMBER(out, "tap_drops", g->port->dropped);
	NUMBER(out, "ring_drops", dp_raw_drops(g->port));
	fprintf(out, "\"held_chunks\":%u}", g->held);
}

static void report_traffic(const struct card *card, const struct host *h, uint32_t leaf, FILE *out)
{
	const struct traffic *t = queue_traffic(card, (uint16_t)(h - card->host), leaf);

	fprintf(out, "\"%s\":{", h->name);
	NUMBER(out, "tx_frames", t->tx_frames);
	NUMBER(out, "tx_bytes", t->tx_bytes);
	NUMBER(out, "delivered_frames", t->delivered_frames);
	NUMBER(out, "delivered_bytes", t->delivered_bytes);
	NUMBER(out, "packets", t->packets);
	NUMBER(out, "retransmits", t->retransmits);
	NUMBER(out, "aborted", t->aborted);
	NUMBER(out, "queued_frames", t->queued_frames);
	NUMBER(out, "queued_bytes", t->queued_bytes);
	NUMBER(out, "inflight_frames", t->inflight_frames);
	NUMBER(out, "inflight_bytes", t->inflight_bytes);
	NUMBER(out, "wait_ns", t->wait_ns);
	NUMBER(out, "rtt_ns", t->rtt_ns);
	fprintf(out, "\"cwnd_bytes\":%.0f}", report_window(card, h, leaf));
}

/* The traffic to each host that the class has sent to, or has frames for. */
static void report_peers(const struct card *card, uint32_t leaf, FILE *out)
{
	const char *between = "";

	fprintf(out, "\"hosts\":{");
	for (uint32_t i = 0; i < card->n_hosts; i++) {
		const struct traffic *t = queue_traffic(card, (uint16_t)i, leaf);

		if (!t->tx_frames && !t->queued_frames && !t->inflight_frames)
			continue;
		fprintf(out, "%s", between);
		report_traffic(card, &card->host[i], leaf, out);
		between = ",";
	}
	fprintf(out, "}");
}

static void report_tenant(const struct card *card, const struct tenant *t, FILE *out)
{
	fprintf(out, "\"%u\":{", t->vni);
	NUMBER(out, "tx_bytes", t->tx_bytes);
	NUMBER(out, "due_bytes", t->due_bytes);
	NUMBER(out, "weight", t->share.weight);
	fprintf(out, "\"classes\":{");
	for (uint32_t i = 0; i < card->n_classes; i++) {
		const struct leaf *leaf = &t->leaf[i];

		fprintf(out, "%s\"%s\":{", i ? "," : "", card->class[i].name);
		NUMBER(out, "tx_frames", leaf->tx_frames);
		NUMBER(out, "tx_bytes", leaf->tx_bytes);
		NUMBER(out, "first_wait_bytes", leaf->first_wait_bytes);
		NUMBER(out, "first_wait_ns", leaf->first_wait_ns);
		NUMBER(out, "queued_frames", leaf->queued);
		report_peers(card, (uint32_t)(t - card->tenant) * card->n_classes + i, out);
		fprintf(out, "}");
	}
	fprintf(out, "}}");
}

static void report_network(struct card *card, FILE *out)
{
	struct dp_engine_stats engine;
	struct dp_port_stats port;

	dp_engine_stats(card->engine, &engine);
	dp_device_port_stats(card->device, &port);
#define X(name) NUMBER(out, #name, card->counters.name);
	CARD_COUNTERS(X)
#undef X
#define X(name) NUMBER(out, "engine_" #name, engine.name);
	DP_ENGINE_COUNTERS(X)
#undef X
#define X(name) NUMBER(out, "port_" #name, port.name);
	DP_PORT_COUNTERS(X)
#undef X
	fprintf(out, "\"free_chunks\":%u", card->raw.n_free);
}

void report_counters(struct card *card, FILE *out)
{
	const char *between = "";

	if (!card->started) {
		fprintf(out, "{}\n");
		return;
	}
	fprintf(out, "{\"hosts\":{");
	for (uint32_t i = 0; i < card->n_hosts; i++) {
		if (i == card->self)
			continue;
		fprintf(out, "%s", between);
		report_host(card, &card->host[i], out);
		between = ",";
	}
	fprintf(out, "},\"guests\":{");
	for (uint32_t i = 0; i < card->n_local; i++) {
		fprintf(out, "%s", i ? "," : "");
		report_guest(&card->guest[card->local[i]], out);
	}
	fprintf(out, "},\"tenants\":{");
	for (uint32_t i = 0; i < card->n_tenants; i++) {
		fprintf(out, "%s", i ? "," : "");
		report_tenant(card, &card->tenant[i], out);
	}
	fprintf(out, "},\"network\":{");
	report_network(card, out);
	fprintf(out, "}}\n");
}
