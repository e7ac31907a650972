/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What PROBEs have shown of the paths to the peers, for all QPs of the engine.
 *
 * Thousands of QPs may connect to one peer at once.  If each sends a PROBE, these are as long as
 * the longest packets, fill the peer's receive buffer, and data waits behind them.  So one QP asks
 * for all, and the others wait for what it learns.
 */
#ifndef DP_ENGINE_RC_PROBED_H
#define DP_ENGINE_RC_PROBED_H

#include "engine/rc/rc.h"

enum dp_probed_answer {
	DP_PROBED_NOT,	    /* the QP is to send a PROBE */
	DP_PROBED_BY_OTHER, /* another QP has sent one, which may still be answered */
	DP_PROBED_GOOD,	    /* the path has carried packets of that length lately */
	DP_PROBED_BAD,	    /* several QPs have found lately that it does not */
};

/* What is known of the path to the QP's peer, for packets with rc->probe bytes of payload. */
enum dp_probed_answer dp_probed(const struct dp_rc *, uint64_t now);
/* The QP sends a PROBE, and waits for the reply until then. */
void dp_probed_asks(struct dp_rc *, uint64_t until_ns);
/* The QP has had its reply, or has asked in vain. */
void dp_probed_learns(struct dp_rc *, bool carried, uint64_t now);

#endif
