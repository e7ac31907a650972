/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The multicast groups of a port: for each a socket, through which the kernel knows that this
 * host is in the group (IGMP, MLD, the device's filter), counted by its users.
 */
#ifndef DP_IO_GROUPS_H
#define DP_IO_GROUPS_H

#include <stdbool.h>

#include "wire/packet.h"

enum { DP_GROUPS_MAX = 32 }; /* at a time */

struct dp_groups {
	uint32_t n;
	struct dp_group {
		struct dp_addr addr;
		uint32_t users;
		int fd;
	} at[DP_GROUPS_MAX]; /* in no order */
};

struct dp_group *dp_groups_find(struct dp_groups *, const struct dp_addr *);
/* One more user; `open` makes the socket for the first: its descriptor or -errno.  0, -ENOSPC:
 * there are DP_GROUPS_MAX, or an error of the socket. */
int dp_groups_join(struct dp_groups *, const struct dp_addr *, uint32_t ifindex,
		   int (*open)(void *port, const struct dp_addr *), void *port);
void dp_groups_leave(struct dp_groups *, const struct dp_addr *);
void dp_groups_close(struct dp_groups *);
/* A UDP socket that receives nothing. */
int dp_group_socket(void *unused, const struct dp_addr *);
/* The Ethernet address of a group (RFC 1112, RFC 2464). */
void dp_group_mac(const struct dp_addr *, uint8_t mac[6]);

#endif
