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

/* A bundle that is being taken apart. */
struct dp_unbundling {
	const struct dp_parsed *bundle;
	uint32_t left, at; /* messages to come, and where the next one begins in the payload */
	struct dp_xdh fields;
	uint8_t xdh[DP_XDH_LEN];
	struct dp_parsed part;
};

/* Begins to take a bundle apart.  False: it does not consist of the messages that it announces. */
bool dp_unbundle(struct dp_unbundling *, const struct dp_parsed *bundle);
/* The next message, as if it had come in a packet of its own; NULL: there is none. */
const struct dp_parsed *dp_unbundle_next(struct dp_unbundling *);

#endif
