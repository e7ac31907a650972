/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How often a sender wants to be acknowledged.  While acknowledgements queue on the return path,
 * the sender asks for half as many, and then for half of these.  When they have not queued for a
 * while, it asks for twice as many.  The idea is that of RFC 5690 and of TACK (SIGCOMM 2020).
 * Nothing here knows of QPs.
 */
#ifndef DP_ENGINE_THINNING_H
#define DP_ENGINE_THINNING_H

#include <stdint.h>

struct dp_thinning {
	uint64_t look_ns;     /* when the round ends */
	uint32_t back_ns;     /* shortest queue that an acknowledgement of the round met */
	uint32_t last_ns;     /* the same of the round before */
	uint8_t samples;      /* acknowledgements of the round */
	uint8_t level;	      /* 0: all acknowledgements; each level more asks for half as many */
	uint8_t calm;	      /* rounds without a queue; at level 0, in a row with a long one */
	uint8_t patience : 7; /* doublings of the calm rounds before the next try to get more */
	uint8_t trying : 1;   /* the last change was such a try, and no queue has come of it yet */
};

/* How long the receiver may hold an acknowledgement at this level. */
uint64_t dp_ack_delay_ns(unsigned level);

/* Takes in an acknowledgement that waited for back_ns in queues on its way, by a path with
 * these RTTs, while so many packets were in flight.  The receiver never holds an
 * acknowledgement for longer than an RTT. */
void dp_thinning_sample(struct dp_thinning *, uint64_t back_ns, uint64_t min_rtt_ns,
			uint64_t srtt_ns, uint32_t packets, uint64_t now);

#endif
