/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Address handles. */
#ifndef DP_ENGINE_AH_H
#define DP_ENGINE_AH_H

#include "engine/memory.h"

struct dp_ah {
	struct dp_pd *pd;
	struct dp_addr addr;
	uint32_t path_id;
	uint8_t tos;	/* DSCP << 2; 0: that of the QP */
	uint32_t users; /* send requests in queues that use it */
};

#endif
