// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Opens and closes an AF_XDP port; afxdp_socket.c makes its sockets.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/addr.h"
#include "io/afxdp.h"
#include "io/netdev.h"

enum { ANY_QUEUE = 1024 }; /* for queue: the first one that is free */

struct afxdp_options {
	uint32_t queue;
	uint32_t path_mtu;
	uint32_t mode; /* enum afxdp_mode */
	uint32_t busy_poll;
	uint32_t dated;
	struct dp_addr ip;
};

static int parse_options(const struct dp_spec *spec, struct afxdp_options *o,
			 struct dp_error *error)
{
	static const char *const modes[] = { "auto", "copy", "zerocopy", NULL };
	static const char *const any[] = { "any", NULL };
	static const struct dp_option table[] = {
		{ "queue", DP_OPT_NUMBER, offsetof(struct afxdp_options, queue), 0, ANY_QUEUE - 1,
		  any },
		{ "path_mtu", DP_OPT_NUMBER, offsetof(struct afxdp_options, path_mtu), 256, 4096,
		  NULL },
		{ "mode", DP_OPT_CHOICE, offsetof(struct afxdp_options, mode), 0, 0, modes },
		{ "ip", DP_OPT_ADDR, offsetof(struct afxdp_options, ip), 0, 0, NULL },
		{ "busy_poll", DP_OPT_NUMBER, offsetof(struct afxdp_options, busy_poll), 0, 1,
		  NULL },
		{ "dated", DP_OPT_NUMBER, offsetof(struct afxdp_options, dated), 0, 1, NULL },
	};

	return dp_spec_apply(spec, table, sizeof(table) / sizeof(table[0]), o, error);
}

/* Which queues the port serves, and memory for them: the more queues, the fewer chunks for each. */
static void plan_queues(struct afxdp *a, uint32_t queue)
{
	uint32_t n = (uint32_t)dp_netdev_rx_queues(a->port.info.netdev);

	a->one_queue = queue != DP_ALL_QUEUES;
	a->any_queue = queue == ANY_QUEUE;
	if (a->one_queue) {
		a->first_queue = a->any_queue ? 0 : queue;
		n = 1;
	}
	a->n_queues = n < QUEUES_MAX ? n : QUEUES_MAX;
	a->rx_shift = (uint32_t)(RX_SHIFT_MAX - (n > 1) - (n > 4) - (n > 16));
	a->umem_size = (size_t)first_chunk(a, a->n_queues) * CHUNK;
	a->port.info.n_queues = a->n_queues;
}

static bool watch(int epoll_fd, int fd)
{
	struct epoll_event in = { .events = EPOLLIN };

	return !epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &in);
}

/* A descriptor that is readable when one of the sockets is; -1: error. */
static int open_queues_fd(struct afxdp *a)
{
	if (a->n_queues == 1)
		return a->queues[0].fd;
	a->queues_fd = epoll_create1(EPOLL_CLOEXEC);
	for (uint32_t i = 0; a->queues_fd >= 0 && i < a->n_queues; i++)
		if (!watch(a->queues_fd, a->queues[i].fd))
			return -1;
	return a->queues_fd;
}

static bool open_poll_fds(struct afxdp *a)
{
	a->port.watched_fd = open_queues_fd(a);
	if (a->port.watched_fd < 0)
		return false;
	a->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (a->wake_fd < 0)
		return false;
	a->port.fd = epoll_create1(EPOLL_CLOEXEC);
	return a->port.fd >= 0 && watch(a->port.fd, a->wake_fd) &&
	       watch(a->port.fd, a->port.watched_fd) &&
	       (!a->aside || watch(a->port.fd, a->aside->fd));
}

static int open_poll_fd(struct afxdp *a, struct dp_error *error)
{
	if (open_poll_fds(a))
		return 0;
	return dp_fail(error, -errno, "cannot make a poll descriptor: %s", strerror(errno));
}

static int map_umem(struct afxdp *a, struct dp_error *error)
{
	void *area = mmap(NULL, a->umem_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);

	if (area == MAP_FAILED)
		return dp_fail(error, -errno, "no memory for packet buffers: %s", strerror(errno));
	/* A fork must not copy pages that the kernel has pinned. */
	madvise(area, a->umem_size, MADV_DONTFORK);
	madvise(area, a->umem_size, MADV_HUGEPAGE);
	a->umem_area = area;
	return 0;
}

static void fill_ring(struct afxdp *a, uint32_t queue)
{
	struct xsk_ring_prod *fill = &a->queues[queue].fill;
	uint32_t idx = 0;

	xsk_ring_prod__reserve(fill, rx_chunks(a), &idx);
	for (uint32_t i = 0; i < rx_chunks(a); i++)
		*xsk_ring_prod__fill_addr(fill, idx + i) =
			(uint64_t)(first_chunk(a, queue) + i) * CHUNK;
	xsk_ring_prod__submit(fill, rx_chunks(a));
}

static void hand_out_chunks(struct afxdp *a)
{
	for (uint32_t queue = 0; queue < a->n_queues; queue++)
		fill_ring(a, queue);
	for (uint32_t i = 0; i < TX_BUFFERS; i++)
		a->free[i] = (uint16_t)(TX_BUFFERS - 1 - i);
	a->n_free = TX_BUFFERS;
}

void dp_afxdp_stats(struct dp_port *port)
{
	struct afxdp *a = (struct afxdp *)port;
	struct dp_port_stats aside = {};
	uint64_t rx_dropped = 0;

	for (uint32_t i = 0; i < a->n_queues; i++) {
		struct xdp_statistics s = {};
		socklen_t len = sizeof(s);

		if (getsockopt(a->queues[i].fd, SOL_XDP, XDP_STATISTICS, &s, &len))
			continue;
		rx_dropped += s.rx_dropped + s.rx_ring_full;
		if (!i)
			port->stats.tx_dropped = s.tx_invalid_descs;
	}
	if (a->aside)
		dp_port_stats(a->aside, &aside);
	port->stats.rx_dropped = rx_dropped + aside.rx_dropped;
	port->stats.rx_misdirected = aside.rx_misdirected;
	port->stats.rx_other_queue = dp_steer_other_queue(a->steer);
	if (!a->zero_copy)
		port->stats.copies = port->stats.rx_packets + port->stats.tx_packets;
}

void dp_afxdp_close(struct dp_port *port)
{
	struct afxdp *a = (struct afxdp *)port;

	dp_steer_detach(a->steer);
	dp_groups_close(&a->groups);
	dp_slot_release(&a->names);
	if (a->port.fd >= 0)
		close(a->port.fd);
	if (a->wake_fd >= 0)
		close(a->wake_fd);
	if (a->holder_fd >= 0)
		close(a->holder_fd);
	if (a->queues_fd >= 0)
		close(a->queues_fd);
	dp_afxdp_delete_sockets(a);
	if (a->umem_area)
		munmap(a->umem_area, a->umem_size);
	dp_port_close(a->aside);
	free(a);
}

static int attach(struct afxdp *a, bool dated, struct dp_error *error)
{
	int fds[QUEUES_MAX];
	struct dp_steer_sockets sockets = {
		.first_queue = a->first_queue,
		.n = a->n_queues,
		.fds = fds,
		.shared = a->one_queue,
		.slot = a->port.info.qpn_prefix,
	};

	for (uint32_t i = 0; i < a->n_queues; i++)
		fds[i] = a->queues[i].fd;
	return dp_steer_attach(&a->port.info, &sockets, dated, &a->steer, error);
}

static int open_device(struct afxdp *a, const struct dp_spec *spec, struct dp_error *error)
{
	struct afxdp_options o = { .queue = DP_ALL_QUEUES };
	struct dp_port_info *info = &a->port.info;
	int err;

	err = parse_options(spec, &o, error);
	if (!err)
		err = dp_netdev_query(spec->where, info, error);
	if (!err && !dp_netdev_is_up(info->netdev))
		err = dp_fail(error, -ENETDOWN, "%s is down: ip link set %s up", info->netdev,
			      info->netdev);
	if (!err)
		err = dp_netdev_address(info->netdev, &o.ip, &info->addr, error);
	if (!err)
		err = dp_port_set_path_mtu(info, o.path_mtu, error);
	if (err)
		return err;
	plan_queues(a, o.queue);
	a->busy_poll = o.busy_poll;
	err = map_umem(a, error);
	if (!err)
		err = dp_afxdp_make_sockets(a, o.mode, error);
	if (err)
		return err;
	hand_out_chunks(a);
	err = a->one_queue ? dp_afxdp_share(a, error) : 0;
	if (!err)
		err = open_poll_fd(a, error);
	if (!err)
		err = attach(a, o.dated, error);
	if (err)
		return err;
	a->dated = o.dated;
	a->holder_fd = dp_holder_tell(info->ifindex, a->one_queue ? a->first_queue : o.queue);
	if (!a->zero_copy)
		dp_netdev_renew_buffers(info->netdev);
	return 0;
}

int dp_afxdp_open(const struct dp_spec *spec, struct dp_port **out, struct dp_error *error)
{
	struct afxdp *a = calloc(1, sizeof(*a));
	int err;

	if (!a)
		return dp_fail(error, -ENOMEM, "out of memory");
	a->port.ops = &dp_afxdp_ops;
	a->port.fd = a->wake_fd = a->queues_fd = a->holder_fd = -1;
	dp_slot_init(&a->names);
	strcpy(a->port.info.kind, dp_afxdp_ops.kind);
	err = open_device(a, spec, error);
	if (err)
		dp_afxdp_close(&a->port);
	else
		*out = &a->port;
	return err;
}
