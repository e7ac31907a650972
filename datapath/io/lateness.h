/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A histogram of delays: sixteen buckets for each power of two of nanoseconds, so a quantile
 * is at most 6 % too large. */
#ifndef DP_IO_LATENESS_H
#define DP_IO_LATENESS_H

#include <stdint.h>
#include <stdio.h>

enum { DP_LATE_BUCKETS = 64 * 16 };

struct dp_lateness {
	uint64_t n, max_ns;
	uint64_t bucket[DP_LATE_BUCKETS];
};

void dp_late_add(struct dp_lateness *, uint64_t ns);
void dp_late_merge(struct dp_lateness *, const struct dp_lateness *more);
/* q: 0 to 1.  0 for an empty histogram. */
uint64_t dp_late_quantile(const struct dp_lateness *, double q);
/* As JSON: {"n": N, "quantiles_ns": {"0": NS, ..., "1": NS}}. */
void dp_late_write(const struct dp_lateness *, FILE *);

#endif
