// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * UDP port: RoCEv2 datagrams through a kernel socket.  Needs no privilege.
 *
 * It is fast because extended packets of one length to one peer leave as one
 * UDP_SEGMENT send, and arrive as one UDP_GRO receive, so the stack is passed
 * once for up to 64 of them.  Standard packets leave one by one, because their
 * ICRC covers the IPv4 identification, which segmentation counts up, and which
 * an unconnected socket with IP_PMTUDISC_DO sets to 0.
 *
 * Packets that the socket does not take at once (device queue full) wait in order;
 * the next call tries them again, and the poll descriptor then tells of room, too.
 *
 * The kernel tells when a datagram arrived; of a run of datagrams, when the first one
 * did.
 *
 * Several processes share an address: see slot.h.
 */
#include <errno.h>
#include <linux/sock_diag.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "io/netdev.h"
#include "io/udp_impl.h"

/* ---- opening --------------------------------------------------------------- */

/* RFC 4862: a random delay of up to 1 s, and one retransmission time of 1 s */
enum { DETECTION_MS = 3000, DETECTION_STEP_MS = 20 };

static int set_option(int fd, int level, int name, int value)
{
	return setsockopt(fd, level, name, &value, sizeof(value)) ? -errno : 0;
}

static void large_buffers(int fd)
{
	if (set_option(fd, SOL_SOCKET, SO_RCVBUFFORCE, SOCKET_BUFFER))
		set_option(fd, SOL_SOCKET, SO_RCVBUF, SOCKET_BUFFER);
	if (set_option(fd, SOL_SOCKET, SO_SNDBUFFORCE, SOCKET_BUFFER))
		set_option(fd, SOL_SOCKET, SO_SNDBUF, SOCKET_BUFFER);
}

int dp_udp_configure(int fd, bool v4)
{
	int err = set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1);

	if (!err && v4)
		err = set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
	if (!err && v4)
		err = set_option(fd, IPPROTO_IP, IP_RECVTOS, 1);
	if (!err && !v4)
		err = set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	if (!err && !v4)
		err = set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
	if (!err && !v4)
		err = set_option(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
	/* RoCE sends no UDP checksum (annex A17.3.2): the ICRC covers more */
	if (!err && !v4)
		err = set_option(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
	return err;
}

/* Whatever the routes say, a group is on the port's own network. */
static int send_groups_through(int fd, bool v4, uint32_t ifindex)
{
	struct ip_mreqn device = { .imr_ifindex = (int)ifindex };

	if (!v4)
		return set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, (int)ifindex);
	return setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &device, sizeof(device)) ? -errno : 0;
}

static int bind_failed(const struct dp_addr *addr, int err, struct dp_error *error)
{
	char text[DP_ADDR_TEXT];

	dp_addr_text(addr, text);
	if (err == -EADDRINUSE)
		return dp_fail(error, err,
			       "UDP port %d of %s is in use by a program that does not share it "
			       "or by another user (the kernel's rxe holds it too): end it, or "
			       "use another address",
			       DP_ROCE_PORT, text);
	if (err == -EADDRNOTAVAIL && !dp_addr_is_v4(addr))
		return dp_fail(error, err,
			       "%s is not usable: duplicate address detection goes on, or another "
			       "host has the address (ip address show tentative)",
			       text);
	return dp_fail(error, err, "cannot bind UDP port %d of %s: %s", DP_ROCE_PORT, text,
		       strerror(-err));
}

/* Waits for the duplicate address detection of a new IPv6 address. */
static int bind_socket(const struct udp_port *u)
{
	const struct dp_port_info *info = &u->port.info;
	union dp_sockaddr local;
	socklen_t len = dp_addr_to_sockaddr(&info->addr, DP_ROCE_PORT, info->ifindex, &local);
	int ms = dp_addr_is_v4(&info->addr) ? DETECTION_MS : 0;

	while (bind(u->fd, &local.sa, len)) {
		if (errno != EADDRNOTAVAIL || ms >= DETECTION_MS)
			return -errno;
		usleep(DETECTION_STEP_MS * 1000);
		ms += DETECTION_STEP_MS;
	}
	return 0;
}

static int open_socket(struct udp_port *u, struct dp_error *error)
{
	const struct dp_port_info *info = &u->port.info;
	bool v4 = dp_addr_is_v4(&info->addr);
	int err;

	u->fd = socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (u->fd < 0)
		return dp_fail(error, -errno, "cannot make a UDP socket: %s", strerror(errno));
	err = dp_udp_configure(u->fd, v4);
	if (!err)
		err = send_groups_through(u->fd, v4, info->ifindex);
	if (err)
		return dp_fail(error, err, "cannot set up a UDP socket: %s", strerror(-err));
	large_buffers(u->fd);
	set_option(u->fd, SOL_SOCKET, SO_TIMESTAMPNS, 1); /* else no time is known */
	err = bind_socket(u);
	if (err)
		return bind_failed(&info->addr, err, error);
	return dp_udp_steer_open(&u->steer, &info->addr, u->slot.number, u->fd, error);
}

static void choose_gso(struct udp_port *u, const struct udp_options *o)
{
	struct dp_port_info *info = &u->port.info;
	int off = 0;
	int err;

	/* tests whether the kernel knows the option; a size of 0 turns it off */
	err = setsockopt(u->fd, IPPROTO_UDP, UDP_SEGMENT, &off, sizeof(off)) ? -errno : 0;
	if (!err)
		err = set_option(u->fd, IPPROTO_UDP, UDP_GRO, 1);
	u->gso = o->gso && !err;
	strcpy(info->mode, u->gso ? "gso" : "plain");
	if (u->gso && info->segment > GSO_SEGMENT)
		info->segment = GSO_SEGMENT;
	if (!o->gso)
		strcpy(info->mode_reason, "gso=0 was asked for");
	else if (err)
		snprintf(info->mode_reason, sizeof(info->mode_reason),
			 "the kernel has no UDP segmentation (%s)", strerror(-err));
}

static int find_address(struct udp_port *u, const char *where, struct dp_error *error)
{
	struct dp_port_info *info = &u->port.info;
	static const struct dp_addr any;
	char netdev[64];
	int err;

	err = dp_netdev_find(where, &info->addr, netdev, sizeof(netdev), error);
	if (err == -EINVAL) {
		err = dp_netdev_query(where, info, error);
		return err ? err : dp_netdev_address(where, &any, &info->addr, error);
	}
	if (dp_addr_is_unspecified(&info->addr) || dp_addr_is_multicast(&info->addr))
		return dp_fail(error, -EINVAL, "udp:%s: a RoCE device needs one local address",
			       where);
	return err ? err : dp_netdev_query(netdev, info, error);
}

static int open_poll_fd(struct udp_port *u, struct dp_error *error)
{
	struct epoll_event in = { .events = EPOLLIN };

	u->port.fd = epoll_create1(EPOLL_CLOEXEC);
	if (u->port.fd < 0 || epoll_ctl(u->port.fd, EPOLL_CTL_ADD, u->fd, &in) ||
	    epoll_ctl(u->port.fd, EPOLL_CTL_ADD, u->slot.poll_fd, &in))
		return dp_fail(error, -errno, "cannot make a poll descriptor: %s", strerror(errno));
	return 0;
}

static int make_buffers(struct udp_port *u, struct dp_error *error)
{
	size_t size = (size_t)RX_MESSAGES * DP_RUN_MAX + (size_t)TX_BUFFERS * TX_BUFFER;

	u->buffers = aligned_alloc(4096, size);
	if (!u->buffers)
		return dp_fail(error, -ENOMEM, "out of memory");
	for (int i = 0; i < RX_MESSAGES; i++) {
		u->rx[i].data = u->buffers + (size_t)i * DP_RUN_MAX;
		dp_udp_rx_prepare(u, i);
	}
	for (uint32_t i = 0; i < TX_BUFFERS; i++)
		u->free[i] = (uint16_t)(TX_BUFFERS - 1 - i);
	u->n_free = TX_BUFFERS;
	return 0;
}

static void udp_close(struct dp_port *port)
{
	struct udp_port *u = (struct udp_port *)port;

	dp_groups_close(&u->groups);
	if (u->port.fd >= 0)
		close(u->port.fd);
	if (u->fd >= 0)
		close(u->fd);
	dp_udp_steer_close(&u->steer);
	dp_slot_release(&u->slot);
	free(u->buffers);
	free(u);
}

static int open_all(struct udp_port *u, const struct dp_spec *spec, struct dp_error *error)
{
	static const struct dp_option table[] = {
		{ "path_mtu", DP_OPT_NUMBER, offsetof(struct udp_options, path_mtu), 256, 4096,
		  NULL },
		{ "gso", DP_OPT_NUMBER, offsetof(struct udp_options, gso), 0, 1, NULL },
	};
	struct udp_options o = { .gso = 1 };
	struct dp_port_info *info = &u->port.info;
	int err;

	err = dp_spec_apply(spec, table, sizeof(table) / sizeof(table[0]), &o, error);
	if (!err)
		err = find_address(u, spec->where, error);
	if (!err)
		err = dp_port_set_path_mtu(info, o.path_mtu, error);
	if (!err)
		err = make_buffers(u, error);
	if (!err)
		err = dp_slot_claim(&u->slot, &info->addr, error);
	if (!err)
		err = open_socket(u, error);
	if (err)
		return err;
	dp_slot_settled(&u->slot);
	info->udp_sport = DP_ROCE_PORT;
	info->qpn_prefix = u->slot.number;
	choose_gso(u, &o);
	return open_poll_fd(u, error);
}

static int udp_open(const struct dp_spec *spec, struct dp_port **out, struct dp_error *error)
{
	struct udp_port *u = calloc(1, sizeof(*u));
	int err;

	if (!u)
		return dp_fail(error, -ENOMEM, "out of memory");
	u->port.ops = &dp_udp_ops;
	u->port.fd = u->fd = -1;
	dp_slot_init(&u->slot);
	dp_udp_steer_init(&u->steer);
	dp_wall_clock_init(&u->wall_clock);
	strcpy(u->port.info.kind, dp_udp_ops.kind);
	err = open_all(u, spec, error);
	if (err)
		udp_close(&u->port);
	else
		*out = &u->port;
	return err;
}

/* ---- routes ------------------------------------------------------------------ */

/* Whether the kernel has a route from our address to the peer. */
static int check_route(const struct udp_port *u, const struct udp_route *r)
{
	union dp_sockaddr local;
	socklen_t len = dp_addr_to_sockaddr(&u->port.info.addr, 0, u->port.info.ifindex, &local);
	int fd, err = 0;

	fd = socket(r->to.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (bind(fd, &local.sa, len) || connect(fd, &r->to.sa, r->to_len))
		err = -errno;
	close(fd);
	return err;
}

static int udp_resolve(struct dp_port *port, const struct dp_addr *peer, uint32_t *path_id)
{
	struct udp_port *u = (struct udp_port *)port;
	struct udp_route r;
	int err;

	/* The kernel finds the link address while it sends. */
	if (!dp_addr_is_peer(peer))
		return -EINVAL;
	if (dp_addr_is_v4(peer) != dp_addr_is_v4(&port->info.addr))
		return -EAFNOSUPPORT;
	if (dp_peers_find(&u->peers, peer, path_id))
		return 0;
	r.to_len = dp_addr_to_sockaddr(peer, DP_ROCE_PORT, port->info.ifindex, &r.to);
	err = dp_addr_is_group(peer) ? 0 : check_route(u, &r);
	if (!err)
		err = dp_peers_add(&u->peers, peer, path_id);
	if (!err)
		u->routes[*path_id] = r;
	return err;
}

static void udp_release(struct dp_port *port, uint32_t path_id)
{
	dp_peers_release(&((struct udp_port *)port)->peers, path_id);
}

/* ---- the port ------------------------------------------------------------------ */

struct dp_slot *dp_udp_slot(struct dp_port *port)
{
	return &((struct udp_port *)port)->slot;
}

static int udp_serve(struct dp_port *port, uint64_t service_id)
{
	struct udp_port *u = (struct udp_port *)port;
	int err = dp_slot_serve(&u->slot, service_id);

	if (!err)
		dp_udp_steer_serve(&u->steer, service_id);
	return err;
}

static void udp_unserve(struct dp_port *port, uint64_t service_id)
{
	struct udp_port *u = (struct udp_port *)port;

	/* In this order: from then on the service may be another process's. */
	dp_udp_steer_unserve(&u->steer, service_id);
	dp_slot_unserve(&u->slot, service_id);
}

/* Buffers are used again by the next dp_udp_rx(), once all packets are taken. */
static void udp_rx_release(struct dp_port *port, const struct dp_packet *pkts, int n)
{
	(void)port;
	(void)pkts;
	(void)n;
}

static void udp_stats(struct dp_port *port)
{
	struct udp_port *u = (struct udp_port *)port;
	uint32_t mem[SK_MEMINFO_VARS] = {};
	socklen_t len = sizeof(mem);

	if (!getsockopt(u->fd, SOL_SOCKET, SO_MEMINFO, mem, &len)) {
		port->stats.rx_dropped += mem[SK_MEMINFO_DROPS] - u->kernel_drops;
		u->kernel_drops = mem[SK_MEMINFO_DROPS];
	}
}

const struct dp_port_ops dp_udp_ops = {
	.kind = "udp",
	.open = udp_open,
	.close = udp_close,
	.stats = udp_stats,
	.resolve = udp_resolve,
	.release = udp_release,
	.join = dp_udp_join,
	.leave = dp_udp_leave,
	.rx = dp_udp_rx,
	.rx_release = udp_rx_release,
	.tx_reserve = dp_udp_tx_reserve,
	.tx_commit = dp_udp_tx_commit,
	.serve = udp_serve,
	.unserve = udp_unserve,
};
