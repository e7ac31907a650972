/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * IP addresses as struct dp_addr: their text, their socket addresses, and tests of their kind.
 */
#ifndef DP_IO_ADDR_H
#define DP_IO_ADDR_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "wire/packet.h"

enum { DP_ADDR_TEXT = INET6_ADDRSTRLEN };

union dp_sockaddr {
	struct sockaddr sa;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static inline bool dp_addr_equal(const struct dp_addr *a, const struct dp_addr *b)
{
	return !memcmp(a->b, b->b, sizeof(a->b));
}

bool dp_addr_is_unspecified(const struct dp_addr *);
bool dp_addr_is_multicast(const struct dp_addr *); /* or broadcast */
bool dp_addr_is_peer(const struct dp_addr *);	   /* packets may go there: a host or a group */
bool dp_addr_is_loopback(const struct dp_addr *);
bool dp_addr_is_link_local(const struct dp_addr *); /* IPv6 fe80::/10 */

int dp_addr_parse(const char *text, struct dp_addr *out);	/* 0 or -EINVAL */
const char *dp_addr_text(const struct dp_addr *, char *buffer); /* DP_ADDR_TEXT bytes */
/* Length of the socket address written; scope is the ifindex of fe80::/10. */
socklen_t dp_addr_to_sockaddr(const struct dp_addr *, uint16_t port, uint32_t scope,
			      union dp_sockaddr *out);
void dp_addr_from_sockaddr(const struct sockaddr *, struct dp_addr *out);

#endif
