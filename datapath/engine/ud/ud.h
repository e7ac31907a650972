/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Unreliable datagrams: one packet is a message, nothing is acknowledged and nothing is
 * sent again (IBTA vol. 1, section 9.8.3).  Each request names its receiver by address
 * handle, QPN and Q_Key.
 *
 *   ud.c       the type's row: states, requests posted, packets out
 *   receive.c  packets in
 *   check.c    the invariants
 *
 * A request is done when its packet is built, so sq_tx is always sq_ci.
 */
#ifndef DP_ENGINE_UD_UD_H
#define DP_ENGINE_UD_UD_H

#include "engine/ah.h"
#include "engine/qp.h"

struct dp_ud {
	struct dp_qp qp;
	uint32_t psn;	/* PSN of the next packet */
	uint32_t ah_ci; /* index of the oldest request that still holds its address handle */
};

static inline struct dp_ud *dp_ud_of(struct dp_qp *qp)
{
	return container_of(qp, struct dp_ud, qp);
}

extern const struct dp_qp_ops dp_ud_ops;

int dp_ud_rx(struct dp_qp *, const struct dp_packet *, const struct dp_parsed *, uint64_t now);
const char *dp_ud_check(const struct dp_qp *);

#endif
