/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What two ends agree on in band: extended mode, window and features by HELLO, the bytes that a
 * packet may carry by PROBE (docs/extended-mode.md). */
#ifndef DP_ENGINE_RC_NEGOTIATE_H
#define DP_ENGINE_RC_NEGOTIATE_H

#include "engine/rc/rc.h"

/* A request in the window came in extended form: answer in that form.  The requester waits
 * for the peer's HELLO, which tells the window; asks for it again if it has given up. */
void dp_peer_is_extended(struct dp_rc *, uint64_t now);
/* A HELLO, a PROBE or the reply to one. */
void dp_negotiate_rx(struct dp_rc *, const struct dp_parsed *, uint64_t now);
/* One packet, 1: a reply that is owed, or an offer or a probe that is due; nothing now, 0. */
int dp_negotiate_tx(struct dp_rc *, struct dp_packet *, uint64_t now);

#endif
