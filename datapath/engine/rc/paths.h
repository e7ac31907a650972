/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which of its paths a packet of an extended QP takes, and what each path has delivered.
 *
 * An algorithm that reads ack.path is called once for each path of an acknowledgement.  What such
 * a call lets out takes the path that the call chose, so each acknowledged packet can send the next
 * one along its own path (MP-RDMA, NSDI 2018, section 3.2).  Several calls come before a packet
 * leaves, so the block keeps for each path how many packets it is owed.
 */
#ifndef DP_ENGINE_RC_PATHS_H
#define DP_ENGINE_RC_PATHS_H

#include "engine/rc/scoreboard.h"

/* Sets the path of the next packet, rc->req.path: one that is owed a packet, the algorithm's choice,
 * or each path in turn. */
void dp_path_choose(struct dp_rc *);
/* A packet leaves over the path. */
void dp_path_sent(struct dp_tx_block *, unsigned path);
/* A packet was delivered; dp_paths_tell() follows. */
void dp_path_delivered(struct dp_tx_block *, const struct dp_rec *);
/* Tells the algorithm what was delivered.  newest: of all of it; path: of the newest packet. */
void dp_paths_tell(struct dp_rc *, struct dp_cc_ack *newest, unsigned path, uint64_t now);

#endif
