// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io/groups.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "io/addr.h"

struct dp_group *dp_groups_find(struct dp_groups *g, const struct dp_addr *addr)
{
	for (uint32_t i = 0; i < g->n; i++)
		if (dp_addr_equal(&g->at[i].addr, addr))
			return &g->at[i];
	return NULL;
}

static int join(int fd, const struct dp_addr *addr, uint32_t ifindex)
{
	struct group_req request = { .gr_interface = ifindex };
	union dp_sockaddr group;

	memcpy(&request.gr_group, &group, dp_addr_to_sockaddr(addr, 0, ifindex, &group));
	return setsockopt(fd, dp_addr_is_v4(addr) ? IPPROTO_IP : IPPROTO_IPV6, MCAST_JOIN_GROUP,
			  &request, sizeof(request)) ?
		       -errno :
		       0;
}

int dp_groups_join(struct dp_groups *g, const struct dp_addr *addr, uint32_t ifindex,
		   int (*open)(void *port, const struct dp_addr *), void *port)
{
	struct dp_group *group = dp_groups_find(g, addr);
	int fd, err;

	if (group) {
		group->users++;
		return 0;
	}
	if (g->n == DP_GROUPS_MAX)
		return -ENOSPC;
	fd = open(port, addr);
	if (fd < 0)
		return fd;
	err = join(fd, addr, ifindex);
	if (err) {
		close(fd);
		return err;
	}
	g->at[g->n++] = (struct dp_group){ .addr = *addr, .users = 1, .fd = fd };
	return 0;
}

void dp_groups_leave(struct dp_groups *g, const struct dp_addr *addr)
{
	struct dp_group *group = dp_groups_find(g, addr);

	if (--group->users)
		return;
	close(group->fd);
	*group = g->at[--g->n];
}

void dp_groups_close(struct dp_groups *g)
{
	while (g->n)
		close(g->at[--g->n].fd);
}

int dp_group_socket(void *unused, const struct dp_addr *addr)
{
	int family = dp_addr_is_v4(addr) ? AF_INET : AF_INET6;
	int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	(void)unused;
	return fd >= 0 ? fd : -errno;
}

void dp_group_mac(const struct dp_addr *addr, uint8_t mac[6])
{
	static const uint8_t v4[3] = { 0x01, 0x00, 0x5e }, v6[2] = { 0x33, 0x33 };

	memcpy(mac + 2, addr->b + 12, 4);
	if (!dp_addr_is_v4(addr)) {
		memcpy(mac, v6, sizeof(v6));
		return;
	}
	memcpy(mac, v4, sizeof(v4));
	mac[3] &= 0x7f;
}
