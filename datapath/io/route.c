// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io/route.h"

#include <errno.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "io/addr.h"

#ifndef SO_BINDTOIFINDEX
#define SO_BINDTOIFINDEX 62
#endif

enum {
	DISCARD_PORT = 9, /* RFC 863 */
	MAC_LEN = 6,
	/* neighbour states in which the link address can be used */
	NUD_USABLE = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY,
};

struct request {
	struct nlmsghdr nl;
	union {
		struct rtmsg rt;
		struct ndmsg nd;
	};
	char attributes[128];
};

static void add_attribute(struct request *r, uint16_t type, const void *data, uint16_t len)
{
	struct rtattr *a = (void *)((char *)r + NLMSG_ALIGN(r->nl.nlmsg_len));

	a->rta_type = type;
	a->rta_len = RTA_LENGTH(len);
	memcpy(RTA_DATA(a), data, len);
	r->nl.nlmsg_len = NLMSG_ALIGN(r->nl.nlmsg_len) + RTA_ALIGN(a->rta_len);
}

static void add_address(struct request *r, uint16_t type, const struct dp_addr *a)
{
	if (dp_addr_is_v4(a))
		add_attribute(r, type, a->b + 12, 4);
	else
		add_attribute(r, type, a->b, 16);
}

static uint8_t family_of(const struct dp_addr *a)
{
	return dp_addr_is_v4(a) ? AF_INET : AF_INET6;
}

/* Sends one request and waits for its one answer: 0 or the kernel's -errno. */
static int ask(int fd, struct request *r, void *answer, size_t len)
{
	const struct nlmsghdr *nl = answer;
	ssize_t n;

	if (send(fd, r, r->nl.nlmsg_len, 0) < 0)
		return -errno;
	n = recv(fd, answer, len, 0);
	if (n < 0)
		return -errno;
	if (!NLMSG_OK(nl, (uint32_t)n))
		return -EBADMSG;
	if (nl->nlmsg_type == NLMSG_ERROR)
		return ((const struct nlmsgerr *)NLMSG_DATA(nl))->error;
	return 0;
}

static const struct rtattr *find_attribute(const struct nlmsghdr *nl, const struct rtattr *a,
					   uint16_t type)
{
	int left = (int)(nl->nlmsg_len - (uint32_t)((const char *)a - (const char *)nl));

	for (; RTA_OK(a, left); a = RTA_NEXT(a, left))
		if (a->rta_type == type)
			return a;
	return NULL;
}

static int ask_route(int fd, uint32_t flags, uint32_t ifindex, const struct dp_addr *src,
		     const struct dp_addr *peer, void *answer, size_t len)
{
	struct request r = {
		.nl = { .nlmsg_len = NLMSG_LENGTH(sizeof(r.rt)),
			.nlmsg_type = RTM_GETROUTE,
			.nlmsg_flags = NLM_F_REQUEST },
		.rt = { .rtm_family = family_of(peer),
			.rtm_flags = flags,
			.rtm_dst_len = dp_addr_is_v4(peer) ? 32 : 128,
			.rtm_src_len = dp_addr_is_v4(peer) ? 32 : 128 },
	};
	int err;

	add_address(&r, RTA_DST, peer);
	add_address(&r, RTA_SRC, src);
	add_attribute(&r, RTA_OIF, &ifindex, sizeof(ifindex));
	err = ask(fd, &r, answer, len);
	return err == -EHOSTUNREACH ? -ENETUNREACH : err;
}

static int next_hop(int fd, uint32_t ifindex, const struct dp_addr *src, const struct dp_addr *peer,
		    struct dp_addr *hop)
{
	char answer[4096] __attribute__((aligned(NLMSG_ALIGNTO)));
	const struct nlmsghdr *nl = (const void *)answer;
	const struct rtmsg *rt = NLMSG_DATA(nl);
	const struct rtattr *a;
	int err = 0;

	/* When a device is given, IPv4 assumes that a peer without a route is on the link.  The
	 * routing table itself tells that there is no route. */
	if (dp_addr_is_v4(peer))
		err = ask_route(fd, RTM_F_FIB_MATCH, ifindex, src, peer, answer, sizeof(answer));
	if (!err)
		err = ask_route(fd, 0, ifindex, src, peer, answer, sizeof(answer));
	if (err)
		return err;
	a = find_attribute(nl, RTM_RTA(rt), RTA_OIF);
	if (rt->rtm_type != RTN_UNICAST || !a || *(const uint32_t *)RTA_DATA(a) != ifindex)
		return -ENETUNREACH;
	*hop = *peer;
	a = find_attribute(nl, RTM_RTA(rt), RTA_GATEWAY);
	if (a && RTA_PAYLOAD(a) == 4)
		dp_addr_from_v4(hop, RTA_DATA(a));
	else if (a && RTA_PAYLOAD(a) == 16)
		memcpy(hop->b, RTA_DATA(a), 16);
	/* the gateway of an IPv4 route may have an IPv6 address (RFC 8950) */
	a = find_attribute(nl, RTM_RTA(rt), RTA_VIA);
	if (a && RTA_PAYLOAD(a) == sizeof(struct rtvia) + 16)
		memcpy(hop->b, ((const struct rtvia *)RTA_DATA(a))->rtvia_addr, 16);
	return 0;
}

/* 0 with the address and the state; -EAGAIN: being asked for; -ENOENT: not known, and not asked
 * for. */
static int look_up_neighbour(int fd, uint32_t ifindex, const struct dp_addr *hop,
			     uint8_t mac[MAC_LEN], uint16_t *state)
{
	char answer[4096] __attribute__((aligned(NLMSG_ALIGNTO)));
	const struct nlmsghdr *nl = (const void *)answer;
	const struct ndmsg *nd = NLMSG_DATA(nl);
	const struct rtattr *a;
	struct request r = {
		.nl = { .nlmsg_len = NLMSG_LENGTH(sizeof(r.nd)),
			.nlmsg_type = RTM_GETNEIGH,
			.nlmsg_flags = NLM_F_REQUEST },
		.nd = { .ndm_family = family_of(hop), .ndm_ifindex = (int)ifindex },
	};
	int err;

	add_address(&r, NDA_DST, hop);
	err = ask(fd, &r, answer, sizeof(answer));
	if (err)
		return err;
	*state = nd->ndm_state;
	if (!(nd->ndm_state & NUD_USABLE))
		return nd->ndm_state & NUD_INCOMPLETE ? -EAGAIN : -ENOENT;
	a = find_attribute(nl, (const void *)((const char *)nd + NLMSG_ALIGN(sizeof(*nd))),
			   NDA_LLADDR);
	memset(mac, 0, MAC_LEN); /* a device without link addresses has no attribute */
	if (a && RTA_PAYLOAD(a) == MAC_LEN)
		memcpy(mac, RTA_DATA(a), MAC_LEN);
	return 0;
}

/* Makes the kernel resolve or verify the next hop, by an empty datagram to the peer's discard
 * port.  (NTF_USE would do so without a packet, but IPv6 would then solicit from the link-local
 * address, which may not be ready yet.) */
static int start_resolution(uint32_t ifindex, const struct dp_addr *src, const struct dp_addr *peer)
{
	union dp_sockaddr from, to;
	socklen_t from_len = dp_addr_to_sockaddr(src, 0, ifindex, &from);
	socklen_t to_len = dp_addr_to_sockaddr(peer, DISCARD_PORT, ifindex, &to);
	int fd, err = 0;

	fd = socket(family_of(src), SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &ifindex, sizeof(ifindex)) ||
	    bind(fd, &from.sa, from_len) || sendto(fd, "", 0, MSG_DONTWAIT, &to.sa, to_len) < 0)
		err = -errno;
	close(fd);
	return err;
}

int dp_route_resolve(uint32_t ifindex, const struct dp_addr *src, const struct dp_addr *peer,
		     uint8_t mac[MAC_LEN])
{
	struct dp_addr hop;
	uint16_t state = 0;
	int fd, err;

	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (fd < 0)
		return -errno;
	err = next_hop(fd, ifindex, src, peer, &hop);
	if (!err)
		err = look_up_neighbour(fd, ifindex, &hop, mac, &state);
	close(fd);
	/* The kernel verifies an old address only when it sends a packet itself.  Until it knows a
	 * new one, the old one is the best that there is. */
	if (!err && state & NUD_STALE)
		start_resolution(ifindex, src, peer);
	if (err == -ENOENT) {
		err = start_resolution(ifindex, src, peer);
		if (!err)
			err = -EAGAIN;
	}
	return err;
}
