// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "fabric/emulator/emulator.h"

/* Sixteenths of a power of two: a bucket is 6 % wide. */
static unsigned bucket_of(uint64_t ns)
{
	unsigned power;

	if (ns < 16)
		return (unsigned)ns;
	power = 63u - (unsigned)__builtin_clzll(ns);
	return (power - 3) * 16 + (unsigned)(ns >> (power - 4) & 15);
}

/* The largest value of a bucket. */
static uint64_t bucket_end(unsigned bucket)
{
	unsigned power = bucket / 16 + 3;

	if (bucket < 16)
		return bucket;
	return (((16ull + bucket % 16 + 1) << (power - 4)) - 1);
}

void late_add(struct lateness *l, uint64_t ns)
{
	l->bucket[bucket_of(ns)]++;
	l->n++;
	if (ns > l->max_ns)
		l->max_ns = ns;
}

uint64_t late_quantile(const struct lateness *l, double q)
{
	uint64_t rank = (uint64_t)(q * (double)l->n), seen = 0, end;

	for (unsigned i = 0; i < LATE_BUCKETS; i++) {
		seen += l->bucket[i];
		if (seen > rank) {
			end = bucket_end(i);
			return end < l->max_ns ? end : l->max_ns;
		}
	}
	return l->max_ns;
}

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
	fprintf(out, "\"unstamped\":%llu,", (unsigned long long)unstamped(e, side));
	fprintf(out, "\"ring_drops\":%llu,\"waiting_bytes\":%llu,",
		(unsigned long long)ring_drops(e, side),
		(unsigned long long)(d->link ? dp_link_queue_bytes(d->link) : 0));
	fprintf(out, "\"late_n\":%llu,\"late_p50_ns\":%llu,\"late_p90_ns\":%llu,",
		(unsigned long long)d->late.n, (unsigned long long)late_quantile(&d->late, 0.5),
		(unsigned long long)late_quantile(&d->late, 0.9));
	fprintf(out, "\"late_p99_ns\":%llu,\"late_max_ns\":%llu,",
		(unsigned long long)late_quantile(&d->late, 0.99),
		(unsigned long long)d->late.max_ns);
	fprintf(out, "\"turn_late_p50_ns\":%llu,\"turn_late_p90_ns\":%llu,",
		(unsigned long long)late_quantile(&d->turn_late, 0.5),
		(unsigned long long)late_quantile(&d->turn_late, 0.9));
	fprintf(out, "\"turn_late_p99_ns\":%llu,\"turn_late_p999_ns\":%llu",
		(unsigned long long)late_quantile(&d->turn_late, 0.99),
		(unsigned long long)late_quantile(&d->turn_late, 0.999));
}

void report_counters(struct emulator *e, FILE *out)
{
	fprintf(out, "{\"forward\":{");
	report_direction(e, FORWARD, out);
	fprintf(out, "},\"backward\":{");
	report_direction(e, BACKWARD, out);
	fprintf(out, "},\"elapsed_ns\":%llu,\"busy_ns\":%llu}\n",
		(unsigned long long)(dp_now_ns() - e->began_ns), (unsigned long long)e->busy_ns);
}
