/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The in-band negotiation of two ends: extended mode, window and features by HELLO; the payload
 * bytes of a packet by PROBE (docs/extended-mode.md). */
#ifndef DP_ENGINE_RC_NEGOTIATE_H
#define DP_ENGINE_RC_NEGOTIATE_H

#include "engine/rc/rc.h"

/* The QP connects: it may offer extended mode from now on. */
void dp_negotiate_start(struct dp_rc *, uint64_t now);
/* An extended request came: the peer has extended mode.  If this end does not know its HELLO and has
 * given up, it asks again. */
void dp_negotiate_again(struct dp_rc *, uint64_t now);
/* Sends one HELLO now, whose reply tells that the peer and the path live. */
void dp_hello_once(struct dp_rc *, uint64_t now);
/* Handles a HELLO, a PROBE, or a reply to one. */
void dp_negotiate_rx(struct dp_rc *, const struct dp_parsed *, uint64_t now);
/* Notes that a packet was handed on which is no HELLO. */
void dp_negotiate_handed_on(struct dp_rc *);
/* Builds one packet, 1: a reply that is owed, or a HELLO or PROBE that is due.  0: nothing to send
 * now. */
int dp_negotiate_tx(struct dp_rc *, struct dp_packet *, uint64_t now);

#endif
