// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A path whose MTU is smaller than its ends believe, and that tells nobody. */
#include "link/impair/impair.h"

static bool loses(struct dp_impaired *i, const struct dp_frame *f, uint64_t now)
{
	(void)now;
	return f->bytes > i->value + DP_LINK_ETHERNET + DP_LINK_HEADROOM;
}

const struct dp_impair dp_impair_max_packet = { .loses = loses };
