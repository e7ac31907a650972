/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Extended mode: payload on its way into memory.
 *
 * Packets are placed when they come, and the end of a message later still, but what lies in memory
 * afterwards is as if they had been placed in the order of their PSNs: bytes that a packet of a
 * higher PSN has been placed in stay as they are.  spans.h knows these bytes.  It is asked only while
 * there are packets ahead of a gap.  (Between READ or atomic and a later WRITE, only a fence makes an
 * order.)
 */
#ifndef DP_ENGINE_RC_PLACING_H
#define DP_ENGINE_RC_PLACING_H

#include "engine/rc/responder.h"

/* The receive that the message will take; NULL: none is posted (yet). */
struct dp_rwqe *dp_recv_of(struct dp_rc *, uint32_t rq_seq);
/* Places all but the last `tail` bytes of a SEND or WRITE.  A packet ahead of a gap needs the block
 * of received packets.  0, the syndrome of a NAK, or -ENOMEM. */
int dp_place_packet(struct dp_rc *, const struct dp_parsed *, const struct dp_held *,
		    uint32_t tail);
/* Places the bytes that were held back at the expected PSN.  0, or the syndrome of a NAK. */
int dp_place_tail(struct dp_rc *, const struct dp_held *);

#endif
