/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Bundles: several short messages of the extended mode in one packet. */
#ifndef DP_ENGINE_RC_BUNDLE_H
#define DP_ENGINE_RC_BUNDLE_H

#include "engine/rc/rc.h"

/* A bundle that is being built. */
struct dp_bundle {
	uint8_t opcode; /* enum dp_wr_opcode of all its messages */
	uint32_t parts, bytes;
};

/* Whether the request and the one behind it can share a packet. */
bool dp_bundle_begins(const struct dp_rc *, const struct dp_swqe *, const struct dp_swqe *next);
/* Whether the bundle has room for the request. */
bool dp_bundle_takes(const struct dp_rc *, const struct dp_bundle *, const struct dp_swqe *);
/* Appends a request.  -EFAULT: its memory cannot be read; the packet is as before. */
int dp_bundle_add(struct dp_rc *, struct dp_bundle *, const struct dp_swqe *, struct dp_packet *);
/* Handles each message of a bundle as a packet of its own. */
void dp_bundle_rx(struct dp_rc *, const struct dp_packet *, const struct dp_parsed *, uint64_t now);

#endif
