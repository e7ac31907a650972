/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Strays: packets of a connection that the same two QPs had before, and that come late.  Their PSNs
 * may lie in the window of this connection.  Their times tell, as in PAWS (RFC 7323, section 5): an
 * echo of this end's own clock from before RTR, or a request that the peer sent before its HELLO.
 * Times of 32 bits tell it for a while only, and longer than that no packet is under way.
 */
#ifndef DP_ENGINE_RC_STRAY_H
#define DP_ENGINE_RC_STRAY_H

#include "engine/rc/rc.h"

/* Echoes may lie so far ahead, by clocks that differ; far less than their 2^32 ns. */
#define DP_ECHO_AHEAD_NS 10000000u

/* The connection begins: RTR. */
void dp_stray_start(struct dp_rc *, uint64_t now);
/* A HELLO of the peer was sent at that time of its clock. */
void dp_stray_hello(struct dp_rc *, uint32_t ts_ns);
/* Whether a request is a stray, or may be one, since no HELLO of the peer has come yet. */
bool dp_is_stray_request(struct dp_rc *, const struct dp_parsed *, uint64_t now);
/* Whether an acknowledgement or a response is a stray.  ATOMIC responses do not tell. */
bool dp_is_stray_answer(struct dp_rc *, const struct dp_parsed *, uint64_t now);
/* Whether that time of this end's own clock, which the peer echoes, is not of this connection. */
bool dp_is_stray_echo(struct dp_rc *, uint32_t echo_ns, uint64_t now);

#endif
