// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <string.h>

#include "link/impl.h"

#define NS_PER_MS 1000000ull
#define BIT_NS_PER_BYTE_S 8000000000ull

static int check_trace(const struct dp_rate_trace *trace)
{
	if (!trace->ms || !trace->ms[trace->n - 1])
		return -EINVAL;
	for (uint32_t i = 1; i < trace->n; i++)
		if (trace->ms[i] < trace->ms[i - 1])
			return -EINVAL;
	return 0;
}

static double mean_rate_bps(const struct dp_rate_trace *trace)
{
	return trace->n * (DP_LINK_OPPORTUNITY * 8 * 1e3) / trace->ms[trace->n - 1];
}

/* 8e9 / rate with 64 bits of fraction, rounded down; 0 for no rate. */
static void set_byte_time(struct dp_link *l, uint64_t rate_bps)
{
	uint64_t rest;

	l->byte_ns = rate_bps ? BIT_NS_PER_BYTE_S / rate_bps : 0;
	l->byte_frac = 0;
	if (!rate_bps)
		return;
	/* Long division: each step gives a bit of the fraction. */
	rest = BIT_NS_PER_BYTE_S % rate_bps;
	for (unsigned bit = 0; bit < 64; bit++) {
		bool carry = rest >> 63;

		rest <<= 1;
		l->byte_frac <<= 1;
		if (carry || rest >= rate_bps) {
			rest -= rate_bps;
			l->byte_frac |= 1;
		}
	}
}

static bool same_trace(const struct dp_link_trace *t, const struct dp_rate_trace *trace)
{
	return t->n == trace->n && !memcmp(t->ms, trace->ms, t->n * sizeof(*t->ms));
}

/* A trace that stays the same goes on where it is. */
int dp_link_rate_configure(struct dp_link *l, const struct dp_link_config *config)
{
	const struct dp_rate_trace *trace = &config->trace;

	l->traced = trace->n;
	if (!l->traced) {
		l->trace = (struct dp_link_trace){};
		set_byte_time(l, config->rate_bps);
		l->rate_mbps = config->rate_bps / 1000000;
		return 0;
	}
	if (check_trace(trace))
		return -EINVAL;
	set_byte_time(l, 0);
	l->rate_mbps = (uint64_t)(mean_rate_bps(trace) / 1e6);
	if (!same_trace(&l->trace, trace))
		l->trace = (struct dp_link_trace){ .n = trace->n };
	l->trace.ms = trace->ms;
	return 0;
}

static uint64_t opportunity_ns(const struct dp_link_trace *t)
{
	return t->cycle_ns + t->ms[t->i] * NS_PER_MS;
}

static void next_opportunity(struct dp_link_trace *t)
{
	if (++t->i == t->n) {
		t->i = 0;
		t->cycle_ns += t->ms[t->n - 1] * NS_PER_MS;
	}
	t->left = DP_LINK_OPPORTUNITY;
}

/* Moves on to the first opportunity at or after `from`: first by whole cycles, then by
 * bisection. */
static void skip(struct dp_link_trace *t, uint64_t from)
{
	uint64_t period = t->ms[t->n - 1] * NS_PER_MS;
	uint32_t low = 0, high = t->n;
	uint64_t cycles;

	cycles = (from - t->cycle_ns) / period;
	/* The last opportunity of a cycle falls on the beginning of the next one. */
	if (cycles && from - t->cycle_ns == cycles * period)
		cycles--;
	t->cycle_ns += cycles * period;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (t->cycle_ns + t->ms[middle] * NS_PER_MS < from)
			low = middle + 1;
		else
			high = middle;
	}
	t->i = low;
	t->left = DP_LINK_OPPORTUNITY;
}

void dp_link_trace_transmit(struct dp_link *l, uint32_t bytes)
{
	struct dp_link_trace *t = &l->trace;
	uint64_t from = dp_link_idle_ns(l);

	if (!t->begun) {
		t->begun = true;
		t->cycle_ns = from;
		t->i = 0;
		t->left = DP_LINK_OPPORTUNITY;
	}
	if (opportunity_ns(t) < from)
		skip(t, from);
	while (bytes > t->left) {
		bytes -= t->left;
		next_opportunity(t);
	}
	t->left -= bytes;
	l->busy_ns = opportunity_ns(t);
	l->busy_frac = 0;
}
