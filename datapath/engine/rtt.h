/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is known of a path's round-trip time.  It knows no QP and no clock. */
#ifndef DP_ENGINE_RTT_H
#define DP_ENGINE_RTT_H

#include <stdint.h>

struct dp_rtt {
	uint64_t srtt_ns, min_rtt_ns; /* of the network; 0: no sample yet */
	uint64_t host_ns;	      /* that the hosts add to it, smoothed as srtt_ns */
	uint64_t rttvar_ns;	      /* of both together */
	uint64_t min_rtt_at_ns;
};

/* A sample: RFC 6298, section 2, with the mean in two parts. */
void dp_rtt_sample(struct dp_rtt *, uint64_t rtt_ns, uint64_t host_ns, uint64_t now);
/* RFC 6298, section 2; 0 without a sample.  The time-out waits for the hosts, too. */
uint64_t dp_rtt_rto(const struct dp_rtt *);

#endif
