// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/rtt.h"

/* How long the lowest RTT is believed (as BBR, draft-cardwell-iccrg-bbr). */
#define MIN_RTT_WINDOW_NS 10000000000ull
/* How long the longest hold time of a READ is remembered. */
#define HELD_WINDOW_NS 1000000000ull

void dp_rtt_sample(struct dp_rtt *r, uint64_t rtt_ns, uint64_t host_ns, uint64_t late_ns,
		   uint64_t now)
{
	uint64_t all, mean, err;

	if (!rtt_ns)
		rtt_ns = 1;
	all = rtt_ns + host_ns;
	if (!r->srtt_ns) {
		r->srtt_ns = rtt_ns;
		r->host_ns = host_ns;
		r->late_ns = late_ns;
		r->rttvar_ns = all / 2;
	} else {
		mean = r->srtt_ns + r->host_ns;
		err = all > mean ? all - mean : mean - all;
		r->rttvar_ns = (3 * r->rttvar_ns + err) / 4;
		r->srtt_ns = (7 * r->srtt_ns + rtt_ns) / 8;
		r->host_ns = (7 * r->host_ns + host_ns) / 8;
		r->late_ns = (63 * r->late_ns + late_ns) / 64;
	}
	r->peak_ns -= r->peak_ns / 64;
	if (rtt_ns > r->peak_ns)
		r->peak_ns = rtt_ns;
	if (!r->min_rtt_ns || rtt_ns <= r->min_rtt_ns ||
	    now - r->min_rtt_at_ns > MIN_RTT_WINDOW_NS) {
		r->min_rtt_ns = rtt_ns;
		r->min_rtt_at_ns = now;
	}
}

void dp_rtt_held(struct dp_rtt *r, uint64_t held_ns, uint64_t now)
{
	if (held_ns < r->held_ns && now - r->held_at_ns <= HELD_WINDOW_NS)
		return;
	r->held_ns = held_ns;
	r->held_at_ns = now;
}

uint64_t dp_rtt_rto(const struct dp_rtt *r)
{
	return r->srtt_ns ? r->srtt_ns + r->host_ns + 4 * r->rttvar_ns : 0;
}
