// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io/peers.h"

#include <errno.h>

#include "io/addr.h"

bool dp_peers_find(struct dp_peers *p, const struct dp_addr *addr, uint32_t *path_id)
{
	for (uint32_t i = 0; i < p->used; i++) {
		if (p->at[i].users && dp_addr_equal(&p->at[i].addr, addr)) {
			p->at[i].users++;
			*path_id = i;
			return true;
		}
	}
	return false;
}

int dp_peers_add(struct dp_peers *p, const struct dp_addr *addr, uint32_t *path_id)
{
	uint32_t i;

	for (i = 0; i < p->used && p->at[i].users; i++)
		;
	if (i == DP_PEERS_MAX)
		return -ENOSPC;
	if (i == p->used)
		p->used++;
	p->at[i] = (struct dp_peer){ .addr = *addr, .users = 1 };
	*path_id = i;
	return 0;
}
