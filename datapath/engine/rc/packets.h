/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Builds packets from work requests and answers. */
#ifndef DP_ENGINE_RC_PACKETS_H
#define DP_ENGINE_RC_PACKETS_H

#include "engine/rc/answers.h"
#include "engine/rc/rc.h"

/* Starts a packet to the peer: BTH at data[0], len behind it. */
void dp_build_start(struct dp_rc *, struct dp_packet *, uint8_t opcode, unsigned pad,
		    unsigned solicited, unsigned ack_req, uint32_t psn);
/* Builds one packet of a request: the payload of PSN `psn`, or a READ of n_psn PSNs from there.
 * -EFAULT: local memory cannot be reached. */
int dp_build_request(struct dp_rc *, const struct dp_swqe *, uint32_t psn, uint32_t n_psn,
		     bool ack_req, struct dp_packet *, uint64_t now);
/* Begins a bundle whose first message has PSN `psn`; dp_build_bundle_end() ends it. */
void dp_build_bundle(struct dp_rc *, const struct dp_swqe *first, uint32_t psn, struct dp_packet *,
		     uint64_t now);
void dp_build_bundle_end(struct dp_rc *, uint32_t parts, struct dp_packet *, uint64_t now);
int dp_build_answer(struct dp_rc *, struct dp_answer *, struct dp_packet *, uint64_t now);
/* Whether the next acknowledgement tells no more than a request can carry. */
bool dp_ack_fits_request(const struct dp_rc *);
void dp_build_ack(struct dp_rc *, struct dp_packet *, uint64_t now);
void dp_build_hello(struct dp_rc *, uint8_t opcode, const struct dp_hello *, struct dp_packet *);
void dp_build_probe(struct dp_rc *, uint8_t opcode, uint32_t len, struct dp_packet *);

#endif
