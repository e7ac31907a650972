/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* For C programs that use the engine: a QP of RC from RESET to RTS. */
#ifndef TESTS_ENGINE_TO_RTS_H
#define TESTS_ENGINE_TO_RTS_H

#include "engine/engine.h"

/* attr: all but the state.  Returns 0, or the error of dp_qp_modify(). */
static inline int bring_to_rts(struct dp_qp *qp, struct dp_qp_attr attr, uint64_t now)
{
	static const struct {
		enum dp_qp_state state;
		uint32_t mask;
	} steps[] = {
		{ DP_QPS_INIT, DP_QP_STATE | DP_QP_PKEY_INDEX | DP_QP_PORT | DP_QP_ACCESS_FLAGS },
		{ DP_QPS_RTR, DP_QP_STATE | DP_QP_AV | DP_QP_PATH_MTU | DP_QP_DEST_QPN |
				      DP_QP_RQ_PSN | DP_QP_MAX_DEST_RD_ATOMIC |
				      DP_QP_MIN_RNR_TIMER },
		{ DP_QPS_RTS, DP_QP_STATE | DP_QP_TIMEOUT | DP_QP_RETRY_CNT | DP_QP_RNR_RETRY |
				      DP_QP_SQ_PSN | DP_QP_MAX_QP_RD_ATOMIC },
	};
	int err = 0;

	for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]) && !err; i++) {
		attr.state = steps[i].state;
		err = dp_qp_modify(qp, &attr, steps[i].mask, now);
	}
	return err;
}

#endif
