/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Multicast: which datagram QPs have attached to which group (IBTA vol. 1, sections 10.5 and
 * 11.3).  A group is named by its IP address, which is also its MGID (annex A17.4.3).
 */
#ifndef DP_ENGINE_MULTICAST_H
#define DP_ENGINE_MULTICAST_H

#include "engine/qp.h"

struct dp_member {
	struct dp_addr group;
	struct dp_qp *qp;
};

/* A packet to the multicast QPN.  0: some QP took it; else why it is dropped, and counted. */
int dp_multicast_rx(struct dp_engine *, const struct dp_packet *, const struct dp_parsed *,
		    uint64_t now);
/* The QP is in no group any longer. */
void dp_multicast_forget(struct dp_qp *);
const char *dp_multicast_check(const struct dp_engine *);

#endif
