// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "fabric/emulator/emulator.h"

static uint64_t ring_drops(const struct emulator *e, unsigned side)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < e->n_ports; i++)
		if (e->port[i].side == side)
			sum += dp_raw_drops(&e->port[i].raw) - e->port[i].ring_drops;
	return sum;
}

static uint64_t unstamped(const struct emulator *e, unsigned side)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < e->n_ports; i++)
		if (e->port[i].side == side)
			sum += dp_raw_unstamped(&e->port[i].raw) - e->port[i].unstamped;
	return sum;
}

static void report_direction(const struct emulator *e, unsigned side, FILE *out)
{
	const struct direction *d = &e->direction[side];
	const struct counts *c = &d->counts;
	struct dp_link_stats s = {};

	if (d->link)
		dp_link_stats(d->link, &s);
#define X(name) fprintf(out, "\"" #name "\":%llu,", (unsigned long long)s.name);
	DP_LINK_COUNTERS(X)
#undef X
	fprintf(out, "\"exempt\":%llu,\"random_marks\":%llu,\"unrouted\":%llu,\"starved\":%llu,",
		(unsigned long long)c->exempt, (unsigned long long)c->marked,
		(unsigned long long)c->unrouted, (unsigned long long)c->starved);
	fprintf(out, "\"unstamped\":%llu,\"refused\":%llu,", (unsigned long long)unstamped(e, side),
		(unsigned long long)c->refused);
	fprintf(out, "\"ring_drops\":%llu,\"waiting_bytes\":%llu,",
		(unsigned long long)ring_drops(e, side),
		(unsigned long long)(d->link ? dp_link_queue_bytes(d->link) : 0));
	fprintf(out, "\"late_n\":%llu,\"late_p50_ns\":%llu,\"late_p90_ns\":%llu,",
		(unsigned long long)d->late.n, (unsigned long long)dp_late_quantile(&d->late, 0.5),
		(unsigned long long)dp_late_quantile(&d->late, 0.9));
	fprintf(out, "\"late_p99_ns\":%llu,\"late_max_ns\":%llu",
		(unsigned long long)dp_late_quantile(&d->late, 0.99),
		(unsigned long long)d->late.max_ns);
}

void report_counters(struct emulator *e, FILE *out)
{
	fprintf(out, "{\"forward\":{");
	report_direction(e, FORWARD, out);
	fprintf(out, "},\"backward\":{");
	report_direction(e, BACKWARD, out);
	fprintf(out, "},\"turn_late\":");
	dp_late_write(&e->turn_late, out);
	fprintf(out, ",\"elapsed_ns\":%llu,\"busy_ns\":%llu}\n",
		(unsigned long long)(dp_now_ns() - e->began_ns), (unsigned long long)e->busy_ns);
}
