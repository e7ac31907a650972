/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TEST_VNIC_SHARES_H
#define TEST_VNIC_SHARES_H

#include <stdint.h>

/* One of several that share a line: what it may have, what it wants, and what it got. */
struct X_sharer {
	uint32_t weight, frame_bytes;
	uint64_t least_bps, most_bps;
	uint64_t from_ns, until_ns; /* it has frames in this time */
	uint64_t bytes;		    /* sent */
	uint64_t first_ns;	    /* when its first frame went; 0: none */
};

/* A line of rate_bps (0: without a limit but for every_ns, the time of each frame) for so long. */
void X_share(struct X_sharer *all, uint32_t n, uint64_t rate_bps, uint64_t every_ns,
	     uint64_t until_ns);

#endif
