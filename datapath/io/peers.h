/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The peers of a port.  A path_id is the index of a peer in this table.  Each entry counts its
 * users: QPs, and packets that wait to be sent.  An entry without users is given to the next new
 * peer.  So a device may see any number of peers, one after another.
 */
#ifndef DP_IO_PEERS_H
#define DP_IO_PEERS_H

#include <assert.h>
#include <stdbool.h>

#include "wire/packet.h"

enum { DP_PEERS_MAX = 1024 }; /* most peers at a time */

struct dp_peers {
	uint32_t used; /* entries that have ever had a peer */
	struct dp_peer {
		struct dp_addr addr;
		uint32_t users; /* 0: free */
	} at[DP_PEERS_MAX];
};

/* Adds a user to the peer's entry; false: the peer has none. */
bool dp_peers_find(struct dp_peers *, const struct dp_addr *, uint32_t *path_id);
/* Makes an entry with one user.  -ENOSPC: all entries are in use. */
int dp_peers_add(struct dp_peers *, const struct dp_addr *, uint32_t *path_id);

static inline bool dp_peers_has(const struct dp_peers *p, uint32_t path_id)
{
	return path_id < p->used && p->at[path_id].users;
}

static inline void dp_peers_hold(struct dp_peers *p, uint32_t path_id)
{
	assert(dp_peers_has(p, path_id));
	p->at[path_id].users++;
}

static inline void dp_peers_release(struct dp_peers *p, uint32_t path_id)
{
	assert(dp_peers_has(p, path_id));
	p->at[path_id].users--;
}

#endif
