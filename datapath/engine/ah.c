// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/ah.h"

#include "wire/trim.h"

int dp_ah_create(struct dp_pd *pd, const struct dp_addr *to, uint32_t path_id, uint8_t tos,
		 struct dp_ah **out)
{
	struct dp_ah *ah;

	if (tos & DP_ECN_MASK || tos >> 2 == DP_DSCP_TRIMMED)
		return -EINVAL;
	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return -ENOMEM;
	ah->pd = pd;
	ah->addr = *to;
	ah->path_id = path_id;
	ah->tos = tos;
	pd->users++;
	*out = ah;
	return 0;
}

int dp_ah_destroy(struct dp_ah *ah)
{
	if (ah->users)
		return -EBUSY;
	ah->pd->users--;
	free(ah);
	return 0;
}
