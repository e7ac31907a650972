// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "fabric/emulator/emulator.h"

static uint64_t ring_drops(const struct emulator *e, const struct wire *w)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < e->n_ports; i++)
		if (e->port[i].first == w)
			sum += dp_raw_drops(&e->port[i].raw) + e->port[i].raw.dropped -
			       e->port[i].ring_drops;
	return sum;
}

static uint64_t unstamped(const struct emulator *e, const struct wire *w)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < e->n_ports; i++)
		if (e->port[i].first == w)
			sum += dp_raw_unstamped(&e->port[i].raw) - e->port[i].unstamped;
	return sum;
}

static void report_wire(const struct wire *w, FILE *out)
{
	const struct emulator *e = w->emulator;
	const struct counts *c = &w->counts;
	struct dp_link_stats s = {};

	if (w->link)
		dp_link_stats(w->link, dp_now_ns(), &s);
#define X(name) fprintf(out, "\"" #name "\":%llu,", (unsigned long long)s.name);
	DP_LINK_COUNTERS(X)
#undef X
	fprintf(out, "\"exempt\":%llu,\"random_marks\":%llu,\"unrouted\":%llu,\"starved\":%llu,",
		(unsigned long long)c->exempt, (unsigned long long)c->marked,
		(unsigned long long)c->unrouted, (unsigned long long)c->starved);
	fprintf(out, "\"unstamped\":%llu,\"refused\":%llu,", (unsigned long long)unstamped(e, w),
		(unsigned long long)c->refused);
	fprintf(out, "\"ring_drops\":%llu,\"waiting_bytes\":%llu,",
		(unsigned long long)ring_drops(e, w),
		(unsigned long long)(w->link ? dp_link_queue_bytes(w->link) : 0));
	fprintf(out, "\"late_n\":%llu,\"late_p50_ns\":%llu,\"late_p90_ns\":%llu,",
		(unsigned long long)w->late.n, (unsigned long long)dp_late_quantile(&w->late, 0.5),
		(unsigned long long)dp_late_quantile(&w->late, 0.9));
	fprintf(out, "\"late_p99_ns\":%llu,\"late_max_ns\":%llu",
		(unsigned long long)dp_late_quantile(&w->late, 0.99),
		(unsigned long long)w->late.max_ns);
}

void report_counters(struct emulator *e, FILE *out)
{
	fprintf(out, "{");
	for (uint32_t i = 0; i < e->n_wires; i++) {
		fprintf(out, "\"%s\":{", e->wire[i].name);
		report_wire(&e->wire[i], out);
		fprintf(out, "},");
	}
	fprintf(out, "\"turn_late\":");
	dp_late_write(&e->turn_late, out);
	fprintf(out, ",\"elapsed_ns\":%llu,\"busy_ns\":%llu}\n",
		(unsigned long long)(dp_now_ns() - e->began_ns), (unsigned long long)e->busy_ns);
}
