/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The GID of a port that is taken unless the user names one, here and in NCCL's plug-in. */
#ifndef DP_COLLECTIVES_GID_H
#define DP_COLLECTIVES_GID_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <string.h>

static inline bool coll_gid_is_ipv4(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid->raw, mapped, sizeof(mapped));
}

/* The first GID of IPv4 that is of RoCE v2; else the first one of IPv4, since not every device tells
 * what its GIDs are of; else 0.  RoCE v1, which may come first, is not routed. */
static inline int coll_choose_gid(struct ibv_context *context, const struct ibv_port_attr *port)
{
	int first = -1;

	for (int i = 0; i < port->gid_tbl_len; i++) {
		struct ibv_gid_entry entry;
		union ibv_gid gid;

		if (ibv_query_gid(context, 1, i, &gid) || !coll_gid_is_ipv4(&gid))
			continue;
		if (first < 0)
			first = i;
		if (!ibv_query_gid_ex(context, 1, (uint32_t)i, &entry, 0) &&
		    entry.gid_type == IBV_GID_TYPE_ROCE_V2)
			return i;
	}
	return first < 0 ? 0 : first;
}

#endif
