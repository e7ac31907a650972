/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "flood.h"

#include "wire/headers.h"

int X_give_many(struct dp_engine *e, const struct dp_packet *first, uint32_t count, uint64_t now)
{
	struct dp_packet p = *first;
	uint32_t psn = dp_bth_psn(p.data), word = dp_get32(p.data + 8), i;
	int err = 0;

	for (i = 0; i < count && !err; i++) {
		dp_put32(p.data + 8, (word & ~DP_PSN_MASK) | dp_psn_add(psn, i));
		err = dp_engine_rx(e, &p, now);
	}
	return err;
}
