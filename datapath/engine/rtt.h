/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Estimates of a path's round-trip time.  Nothing here knows of QPs or clocks. */
#ifndef DP_ENGINE_RTT_H
#define DP_ENGINE_RTT_H

#include <stdint.h>

struct dp_rtt {
	uint64_t srtt_ns, min_rtt_ns; /* without the time spent in the hosts; 0: no sample yet */
	uint64_t host_ns;	      /* time that the hosts add, smoothed like srtt_ns */
	uint64_t late_ns;	      /* its part in which they are late, smoothed for longer */
	uint64_t rttvar_ns;	      /* variation of network and hosts together */
	uint64_t min_rtt_at_ns;
	uint64_t peak_ns; /* longest sample of late: falls by a 64th with each that is shorter */
	uint64_t held_ns; /* longest time that the peer recently held a READ; 0: none yet */
	uint64_t held_at_ns;
};

/* Takes in a sample (RFC 6298, section 2).  The mean is kept in two parts: network and hosts.
 * late_ns: the part of host_ns in which the hosts were late; its mean is over 64 samples, since
 * windows follow it. */
void dp_rtt_sample(struct dp_rtt *, uint64_t rtt_ns, uint64_t host_ns, uint64_t late_ns,
		   uint64_t now);
/* The peer held a READ for held_ns before it answered. */
void dp_rtt_held(struct dp_rtt *, uint64_t held_ns, uint64_t now);
/* The RTO (RFC 6298, section 2), with the time in the hosts; 0: no sample yet. */
uint64_t dp_rtt_rto(const struct dp_rtt *);

#endif
