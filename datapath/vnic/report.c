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

/* Of all pipes: sums, and the RTT and window of those that know one. */
static void report_pipes(const struct card *card, const struct host *h, FILE *out)
{
	uint64_t retransmits = 0, timeouts = 0, packets = 0, queued = 0, posted = 0, marked = 0;
	double rtt_ns = 0, cwnd_bytes = 0, inflight_bytes = 0;
	uint32_t extended = 0;

	for (uint32_t i = 0; i < card->n_pipes; i++) {
		const struct pipe *p = &h->pipe[i];
		const struct dp_cc_flow *flow = p->qp ? dp_qp_flow(p->qp) : NULL;
		struct dp_qp_stats s;

		if (!p->qp)
			continue;
		dp_qp_stats(p->qp, &s);
		packets += s.tx_packets;
		retransmits += s.retransmits;
		timeouts += s.timeouts;
		marked += s.ecn_marked;
		for (uint32_t k = 0; k < card->n_leaves; k++)
			queued += p->line[k].queued;
		posted += p->posted;
		extended += (uint32_t)dp_qp_extended(p->qp);
		if (!flow)
			continue;
		rtt_ns = flow->srtt_ns > rtt_ns ? flow->srtt_ns : rtt_ns;
		cwnd_bytes += flow->cwnd_bytes;
		inflight_bytes += flow->inflight_bytes;
	}
	NUMBER(out, "packets", packets);
	NUMBER(out, "retransmits", retransmits);
	NUMBER(out, "timeouts", timeouts);
	NUMBER(out, "ecn_marked", marked);
	NUMBER(out, "queued_frames", queued);
	NUMBER(out, "posted_frames", posted);
	NUMBER(out, "extended", extended);
	NUMBER(out, "rtt_ns", rtt_ns);
	NUMBER(out, "cwnd_bytes", cwnd_bytes);
	fprintf(out, "\"inflight_bytes\":%.0f", inflight_bytes);
}

static void report_host(const struct card *card, const struct host *h, FILE *out)
{
	fprintf(out, "\"%s\":{", h->name);
#define X(name) NUMBER(out, #name, h->counters.name);
	HOST_COUNTERS(X)
#undef X
	report_pipes(card, h, out);
	fprintf(out, "}");
}

static void report_guest(const struct guest *g, FILE *out)
{
	fprintf(out, "\"%s\":{\"vni\":%u,", g->port->name, g->vni);
#define X(name) NUMBER(out, #name, g->counters.name);
	GUEST_COUNTERS(X)
#undef X
	NUMBER(out, "ring_drops", dp_raw_drops(g->port));
	fprintf(out, "\"held_chunks\":%u}", g->held);
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
		fprintf(out, "\"queued_frames\":%u}", leaf->queued);
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
