/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * RACK-TLP (RFC 8985) as arithmetic: which packets count as lost, and when.  Nothing here knows of
 * QPs, lists or clocks.
 *
 * Differences from the RFC: the reordering window grows without a limit of DSACK rounds, up to the
 * time-out, and shrinks by halves; there is one struct dp_rack for each class of packets whose
 * answers come in the order in which the packets were sent.
 */
#ifndef DP_ENGINE_RC_RACK_H
#define DP_ENGINE_RC_RACK_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/rtt.h"

/* The delivered packet that was sent last. */
struct dp_rack {
	uint64_t xmit_ns; /* RACK.xmit_ts */
	uint32_t psn;	  /* RACK.end_seq */
	bool any;	  /* false: nothing has been delivered yet */
	uint64_t rtt_ns;  /* RACK.rtt */
};

/* How much later than its successors a packet may arrive. */
struct dp_reordering {
	uint16_t quarters; /* of the lowest RTT; 1 at first */
	uint16_t calm;	   /* rounds with losses since the peer last received a duplicate */
	uint64_t widened_ns, round_ns;
};

/* Section 6.2, steps 1 and 2: a packet that was sent at sent_ns was delivered. */
void dp_rack_delivered(struct dp_rack *, uint32_t psn, uint64_t sent_ns, uint64_t now);
/* Section 5.2, RACK_sent_after(): whether a packet that was sent later has been delivered. */
bool dp_rack_overtook(const struct dp_rack *, uint32_t psn, uint64_t sent_ns);
/* Section 6.2, step 5: when a packet that was overtaken counts as lost. */
uint64_t dp_rack_due(const struct dp_rack *, uint64_t sent_ns, uint64_t window_ns);

/* Section 6.2, step 4: the reordering window, ns. */
uint64_t dp_reordering_window(const struct dp_reordering *, const struct dp_rtt *);
/* The peer received a packet twice: doubles the window, at most once in an RTT. */
void dp_reordering_widen(struct dp_reordering *, const struct dp_rtt *, uint64_t now);
/* A loss that was real, as far as is known.  After 16 RTTs with losses the window is halved. */
void dp_reordering_narrow(struct dp_reordering *, const struct dp_rtt *, uint64_t now);

/* Section 7.2, TLP_calc_PTO(), ns.  slowest_ns: the longest time that an answer took of late, which
 * may include a queue at the responder.  ack_delay_ns: how long the peer may hold an
 * acknowledgement. */
uint64_t dp_tlp_timeout(const struct dp_rtt *, uint64_t slowest_ns, uint64_t ack_delay_ns);

#endif
