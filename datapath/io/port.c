// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io/port.h"

#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "io/addr.h"
#include "io/netdev.h"
#include "io/port_impl.h"
#include "wire/sizes.h"

static const struct dp_port_ops *const kinds[] = { &dp_afxdp_ops, &dp_udp_ops };

int dp_port_open(const char *spec, struct dp_port **out, char *error_text, size_t error_len)
{
	struct dp_error error = { .text = error_text, .len = error_len };
	struct dp_spec parsed;
	int err;

	if (error_len)
		error_text[0] = 0;
	err = dp_spec_parse(spec, &parsed, &error);
	if (err)
		return err;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kinds[i]->kind, parsed.kind))
			return kinds[i]->open(&parsed, out, &error);
	return dp_fail(&error, -EINVAL, "no port of kind '%s' (there are: afxdp, udp)",
		       parsed.kind);
}

void dp_port_close(struct dp_port *port)
{
	if (port)
		port->ops->close(port);
}

void dp_port_info(const struct dp_port *port, struct dp_port_info *out)
{
	*out = port->info;
}

void dp_port_stats(struct dp_port *port, struct dp_port_stats *out)
{
	port->ops->stats(port);
	*out = port->stats;
}

enum dp_port_state dp_port_state(const struct dp_port_info *info)
{
	char name[IF_NAMESIZE];
	int running;

	if (!strcmp(info->kind, dp_udp_ops.kind) && !dp_addr_is_link_local(&info->addr)) {
		int err = dp_netdev_of_address(&info->addr, name, sizeof(name));

		if (err)
			return err == -ENODEV ? DP_PORT_DOWN : DP_PORT_UNKNOWN;
	} else if (!if_indextoname(info->ifindex, name)) {
		return errno == ENXIO ? DP_PORT_GONE : DP_PORT_UNKNOWN;
	}
	running = dp_netdev_is_running(name);
	if (running < 0)
		return DP_PORT_UNKNOWN;
	return running ? DP_PORT_RUNNING : DP_PORT_DOWN;
}

int dp_port_resolve(struct dp_port *port, const struct dp_addr *peer, uint32_t *path_id)
{
	return port->ops->resolve(port, peer, path_id);
}

void dp_port_release(struct dp_port *port, uint32_t path_id)
{
	port->ops->release(port, path_id);
}

int dp_port_refresh(struct dp_port *port, uint32_t path_id)
{
	return port->ops->refresh ? port->ops->refresh(port, path_id) : 0;
}

int dp_port_join(struct dp_port *port, const struct dp_addr *group)
{
	if (dp_addr_is_v4(group) != dp_addr_is_v4(&port->info.addr))
		return -EAFNOSUPPORT;
	return port->ops->join(port, group);
}

void dp_port_leave(struct dp_port *port, const struct dp_addr *group)
{
	port->ops->leave(port, group);
}

int dp_port_rx(struct dp_port *port, struct dp_packet *out, int max)
{
	return port->ops->rx(port, out, max);
}

void dp_port_rx_release(struct dp_port *port, const struct dp_packet *pkts, int n)
{
	port->ops->rx_release(port, pkts, n);
}

int dp_port_tx_reserve(struct dp_port *port, struct dp_packet *out, int max)
{
	return port->ops->tx_reserve(port, out, max);
}

int dp_port_tx_commit(struct dp_port *port, const struct dp_packet *pkts, int n_used, int n)
{
	return port->ops->tx_commit(port, pkts, n_used, n);
}

int dp_port_serve(struct dp_port *port, uint64_t service_id)
{
	return port->ops->serve(port, service_id);
}

void dp_port_unserve(struct dp_port *port, uint64_t service_id)
{
	port->ops->unserve(port, service_id);
}

uint64_t dp_port_held_until(const struct dp_port *port)
{
	return __atomic_load_n(&port->held_ns, __ATOMIC_RELAXED);
}

bool dp_port_has_packets(const struct dp_port *port)
{
	struct pollfd fd = { .fd = port->fd, .events = POLLIN };

	return port->ops->has_packets ? port->ops->has_packets(port) : poll(&fd, 1, 0) > 0;
}

int dp_port_fd(const struct dp_port *port)
{
	return port->fd;
}

void dp_port_watch(struct dp_port *port, bool on)
{
	struct epoll_event in = { .events = EPOLLIN };

	if (!port->watched_fd || on != port->unwatched)
		return;
	if (!epoll_ctl(port->fd, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, port->watched_fd, &in))
		port->unwatched = !on;
}

static void set_segment(struct dp_port_info *info, uint32_t path_mtu)
{
	info->segment_max = dp_segment_of_netdev(info->netdev_mtu, dp_addr_is_v4(&info->addr));
	info->segment = dp_segment_wanted(0, info->path_mtu, path_mtu, info->segment_max);
}

int dp_port_set_path_mtu(struct dp_port_info *info, uint32_t cap, struct dp_error *error)
{
	uint32_t fits = dp_path_mtu_of_netdev(info->netdev_mtu);

	if (!fits)
		return dp_fail(error, -EINVAL,
			       "MTU %u of %s is too small for RoCE (256 + %d): ip link set %s mtu "
			       "1500",
			       info->netdev_mtu, info->netdev, DP_ROCE_HEADERS_MAX, info->netdev);
	info->path_mtu = fits;
	if (fits < DP_PATH_MTU_MAX)
		snprintf(info->path_mtu_reason, sizeof(info->path_mtu_reason),
			 "MTU %u of %s less %d bytes of headers", info->netdev_mtu, info->netdev,
			 DP_ROCE_HEADERS_MAX);
	if (cap && dp_path_mtu_of(cap) < fits) {
		info->path_mtu = dp_path_mtu_of(cap);
		snprintf(info->path_mtu_reason, sizeof(info->path_mtu_reason),
			 "path_mtu=%u was asked for", cap);
	}
	set_segment(info, fits);
	return 0;
}
