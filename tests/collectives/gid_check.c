// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Which GID is taken, of ports whose GIDs stand here in place of a device. */
#include "collectives/live/gid.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

enum { IPV6, V1, V2, UNTOLD };

static const int *kinds;

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	(void)context, (void)port;
	*gid = (union ibv_gid){ .raw = { [15] = (uint8_t)index } };
	if (kinds[index] == IPV6)
		gid->raw[0] = 0xfe;
	else
		gid->raw[10] = gid->raw[11] = 0xff;
	return 0;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
		      struct ibv_gid_entry *entry, uint32_t flags, size_t bytes)
{
	(void)context, (void)port, (void)flags;
	assert(bytes == sizeof(*entry));
	if (kinds[index] == UNTOLD)
		return EOPNOTSUPP;
	entry->gid_type = kinds[index] == V1 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
	return 0;
}

static int chosen(int n, const int *of)
{
	struct ibv_port_attr port = { .gid_tbl_len = n };

	kinds = of;
	return coll_choose_gid(NULL, &port);
}

#define CHOSEN(...)                                                                                \
	chosen(sizeof((int[]){ __VA_ARGS__ }) / sizeof(int), (const int[]){ __VA_ARGS__ })

int main(void)
{
	/* As a ConnectX lists its GIDs: of each address, first the one of RoCE v1. */
	assert(CHOSEN(IPV6, IPV6, V1, V2, V1, V2) == 3);
	assert(CHOSEN(IPV6, V2, V1) == 1);
	assert(CHOSEN(IPV6, V1) == 1);
	assert(CHOSEN(IPV6, UNTOLD, UNTOLD) == 1);
	assert(CHOSEN(IPV6, IPV6) == 0);
	printf("ok\n");
	return 0;
}
