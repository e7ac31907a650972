/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which part of an RTT is a queue on the return path.  Acknowledgements tell when a packet arrived
 * by the peer's clock, so an RTT can be cut in two: forward and back.  Both contain the unknown
 * difference of the two clocks, so only a part's distance from its lowest value means something.
 * Nothing here knows of QPs.
 */
#ifndef DP_ENGINE_ONEWAY_H
#define DP_ENGINE_ONEWAY_H

#include <stdint.h>

/* One direction.  Delays are modulo 2^32; only differences are used. */
struct dp_oneway_dir {
	uint32_t base_ns;   /* the delay when nothing queues */
	uint32_t lowest_ns; /* the lowest since the last look */
	uint32_t fell_ns; /* falls of the base that no rise of the other direction's has met yet */
};

struct dp_oneway {
	uint64_t look_ns; /* when both directions are looked at together; 0: no sample yet */
	uint64_t seen_ns; /* when the forward path was last seen empty */
	struct dp_oneway_dir forward, back;
};

/* Takes in a packet that was sent at sent_ns of our clock, reached the peer at arrived_ns of the
 * peer's, both modulo 2^32, and was answered after rtt_ns, without the time in the hosts.  Returns
 * how long the answer waited in queues, ns, less than rtt_ns. */
uint64_t dp_oneway_sample(struct dp_oneway *, uint32_t sent_ns, uint32_t arrived_ns,
			  uint64_t rtt_ns, uint64_t now);

#endif
