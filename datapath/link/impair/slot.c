// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Frames arrive at multiples of a time: at the first one at which they have come. */
#include "link/impair/impair.h"

static uint64_t arrives(struct dp_impaired *i, struct dp_frame *f, uint64_t at)
{
	uint64_t slot = (uint64_t)i->value, late = at % slot;

	(void)f;
	return late ? at + slot - late : at;
}

const struct dp_impair dp_impair_slot = { .arrives = arrives };
