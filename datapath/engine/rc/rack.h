/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * RACK-TLP (RFC 8985) as arithmetic: which packet counts as lost, and when.  It knows no QP,
 * no list and no clock.
 *
 * Differences from the RFC: the reordering window grows without a limit of DSACK rounds, up
 * to what a time-out would wait, and shrinks by halves; there is one struct dp_rack for each
 * class of packets that come back in the order in which they were sent.
 */
#ifndef DP_ENGINE_RC_RACK_H
#define DP_ENGINE_RC_RACK_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/rtt.h"

/* The newest packet delivered, by sending time. */
struct dp_rack {
	uint64_t xmit_ns; /* RACK.xmit_ts */
	uint32_t psn;	  /* RACK.end_seq */
	uint64_t rtt_ns;  /* RACK.rtt; 0: nothing was delivered yet */
};

/* How much later than its successors a packet may come. */
struct dp_reordering {
	uint16_t quarters; /* of the lowest RTT; 1 at first */
	uint16_t calm;	   /* rounds of loss since the peer last got a packet twice */
	uint64_t widened_ns, round_ns;
};

/* Section 6.2, steps 1 and 2: a packet was delivered that was sent at sent_ns. */
void dp_rack_delivered(struct dp_rack *, uint32_t psn, uint64_t sent_ns, uint64_t now);
/* Section 5.2, RACK_sent_after(): a packet that was sent later has been delivered. */
bool dp_rack_overtook(const struct dp_rack *, uint32_t psn, uint64_t sent_ns);
/* Section 6.2, step 5: when a packet that was overtaken counts as lost. */
uint64_t dp_rack_due(const struct dp_rack *, uint64_t sent_ns, uint64_t window_ns);

/* Section 6.2, step 4: the reordering window, ns. */
uint64_t dp_reordering_window(const struct dp_reordering *, const struct dp_rtt *);
/* The peer got a packet twice: the window doubles, once in an RTT. */
void dp_reordering_widen(struct dp_reordering *, const struct dp_rtt *, uint64_t now);
/* Something was lost, rightly as far as is known: after 16 RTTs with losses, half of the
 * window will do. */
void dp_reordering_narrow(struct dp_reordering *, const struct dp_rtt *, uint64_t now);

/* Section 7.2, TLP_calc_PTO(), ns.  slowest_ns: the longest that an answer of late took, which
 * may have queued at the responder behind others.  ack_delay_ns: how long the peer may hold an
 * acknowledgement. */
uint64_t dp_tlp_timeout(const struct dp_rtt *, uint64_t slowest_ns, uint64_t ack_delay_ns);

#endif
