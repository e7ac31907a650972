// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io/lateness.h"

#define ROUNDING 1e-12

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

void dp_late_add(struct dp_lateness *l, uint64_t ns)
{
	l->bucket[bucket_of(ns)]++;
	l->n++;
	if (ns > l->max_ns)
		l->max_ns = ns;
}

void dp_late_merge(struct dp_lateness *l, const struct dp_lateness *more)
{
	for (unsigned i = 0; i < DP_LATE_BUCKETS; i++)
		l->bucket[i] += more->bucket[i];
	l->n += more->n;
	if (more->max_ns > l->max_ns)
		l->max_ns = more->max_ns;
}

/* ceil(q * n), at least 1: as rank() of quantiles.py, which counts from 0. */
static uint64_t rank_of(double q, uint64_t n)
{
	double exact = q * (double)n * (1 - ROUNDING);
	uint64_t rank = (uint64_t)exact;

	rank += (double)rank < exact;
	return rank ? rank : 1;
}

uint64_t dp_late_quantile(const struct dp_lateness *l, double q)
{
	uint64_t rank = rank_of(q, l->n), seen = 0, end;

	for (unsigned i = 0; i < DP_LATE_BUCKETS; i++) {
		seen += l->bucket[i];
		if (seen >= rank) {
			end = bucket_end(i);
			return end < l->max_ns ? end : l->max_ns;
		}
	}
	return l->max_ns;
}

void dp_late_write(const struct dp_lateness *l, FILE *f)
{
	static const double shares[] = { 0,    0.01,  0.05,  0.1,   0.2,    0.3,  0.4,
					 0.5,  0.6,   0.7,   0.8,   0.9,    0.95, 0.98,
					 0.99, 0.995, 0.998, 0.999, 0.9999, 1 };
	const char *comma = "";

	fprintf(f, "{\"n\":%llu,\"quantiles_ns\":{", (unsigned long long)l->n);
	for (size_t i = 0; i < sizeof(shares) / sizeof(*shares); i++) {
		fprintf(f, "%s\"%g\":%llu", comma, shares[i],
			(unsigned long long)dp_late_quantile(l, shares[i]));
		comma = ",";
	}
	fputs("}}", f);
}
