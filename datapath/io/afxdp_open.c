// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Opens an AF_XDP port.  It tries the modes of the kernel and the driver from the fastest to the
 * slowest, and tells in dp_port_info which mode it got and why.
 */
#include <errno.h>
#include <fcntl.h>
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
#include "wire/sizes.h"

/* The kernel headers may be older than Linux 6.17 and 5.11. */
#ifndef XDP_MAX_TX_SKB_BUDGET
#define XDP_MAX_TX_SKB_BUDGET 9
#endif
#ifndef SO_PREFER_BUSY_POLL
#define SO_PREFER_BUSY_POLL 69
#define SO_BUSY_POLL_BUDGET 70
#endif

enum {
	/* largest path MTU whose packets fit one receive chunk of 3840 bytes */
	ONE_CHUNK_PATH_MTU = 2048,
	BUSY_POLL_US = 20,
	BUSY_POLL_BUDGET = 64,
	SOCKET_BUFFER = 64 << 20,
};

enum afxdp_mode { MODE_AUTO, MODE_COPY, MODE_ZEROCOPY };

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
	static const struct dp_option table[] = {
		{ "queue", DP_OPT_NUMBER, offsetof(struct afxdp_options, queue), 0, 1023, NULL },
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

static void delete_socket(struct afxdp *a)
{
	if (a->xsk)
		xsk_socket__delete(a->xsk);
	if (a->umem)
		xsk_umem__delete(a->umem);
	a->xsk = NULL;
	a->umem = NULL;
}

/* Makes UMEM and rings and binds them, once, with these flags. */
static int try_socket(struct afxdp *a, uint32_t queue, uint16_t bind_flags)
{
	const struct xsk_umem_config uc = {
		.fill_size = FILL_RING,
		.comp_size = COMP_RING,
		.frame_size = CHUNK,
	};
	const struct xsk_socket_config sc = {
		.rx_size = RX_RING,
		.tx_size = TX_RING,
		.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD,
		.bind_flags = bind_flags | XDP_USE_NEED_WAKEUP,
	};
	int err;

	err = xsk_umem__create(&a->umem, a->umem_area, umem_size, &a->fill, &a->comp, &uc);
	if (!err)
		err = xsk_socket__create(&a->xsk, a->port.info.netdev, queue, a->umem, &a->rx,
					 &a->tx, &sc);
	if (err)
		delete_socket(a);
	return err;
}

/* Waits for the queue of a process that has ended. */
static int make_socket(struct afxdp *a, uint32_t queue, uint16_t bind_flags)
{
	int err = try_socket(a, queue, bind_flags), ms = 0;

	while (err == -EBUSY && dp_holder_wait(a->port.info.ifindex, &ms))
		err = try_socket(a, queue, bind_flags);
	return err;
}

static int queue_in_use(const struct afxdp *a, uint32_t queue, struct dp_error *error)
{
	const char *dev = a->port.info.netdev;
	int pid = dp_holder_pid(a->port.info.ifindex);

	if (pid)
		return dp_fail(error, -EBUSY,
			       "queue %u of %s is in use by process %d: end it, or use another "
			       "device",
			       queue, dev, pid);
	return dp_fail(error, -EBUSY,
		       "queue %u of %s is in use by another AF_XDP socket: end that process, or "
		       "use another device or queue=",
		       queue, dev);
}

static int bind_failed(const struct afxdp *a, const struct afxdp_options *o, int err,
		       struct dp_error *error)
{
	const char *dev = a->port.info.netdev;

	switch (err) {
	case -EPERM:
		return dp_fail(error, err,
			       "AF_XDP on %s needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF: run as "
			       "root, or use udp:%s",
			       dev, dev);
	case -EBUSY:
		return queue_in_use(a, o->queue, error);
	case -EINVAL:
		if (o->queue >= (uint32_t)dp_netdev_rx_queues(dev))
			return dp_fail(error, err, "%s has %d receive queue(s), no queue %u", dev,
				       dp_netdev_rx_queues(dev), o->queue);
		break;
	case -ENOBUFS:
	case -ENOMEM:
		return dp_fail(error, err,
			       "no memory for %zu MiB of packet buffers: raise ulimit -l",
			       umem_size >> 20);
	case -EAFNOSUPPORT:
		return dp_fail(error, err, "this kernel has no AF_XDP: use udp:%s", dev);
	}
	if (o->mode == MODE_ZEROCOPY)
		return dp_fail(error, err,
			       "%s queue %u cannot do AF_XDP zero-copy (%s): use "
			       "mode=auto",
			       dev, o->queue, strerror(-err));
	return dp_fail(error, err, "cannot bind AF_XDP to %s queue %u: %s", dev, o->queue,
		       strerror(-err));
}

/* Whether bind() may succeed in another mode after this error. */
static bool mode_matters(int err)
{
	return err == -EOPNOTSUPP || err == -EINVAL || err == -EPROTONOSUPPORT;
}

static void limit_segment(struct dp_port_info *info, uint32_t most)
{
	if (info->segment_max > most)
		info->segment_max = most;
	if (info->segment > most)
		info->segment = most;
}

/* Tries the modes from the fastest to the slowest; tells in info which one it got. */
static int open_socket(struct afxdp *a, const struct afxdp_options *o, struct dp_error *error)
{
	bool two_pieces = a->port.info.path_mtu > ONE_CHUNK_PATH_MTU ||
			  a->port.info.segment_max > DP_ONE_CHUNK_SEGMENT;
	int err = -EINVAL, zc_err = 0;
	bool sg = false;

	if (o->mode != MODE_COPY) {
		if (two_pieces)
			err = make_socket(a, o->queue, XDP_ZEROCOPY | XDP_USE_SG);
		sg = !err;
		if (err && (!two_pieces || mode_matters(err)))
			err = make_socket(a, o->queue, XDP_ZEROCOPY);
		zc_err = err;
		a->zero_copy_err = err;
	}
	if (o->mode == MODE_COPY || (o->mode == MODE_AUTO && mode_matters(zc_err))) {
		if (two_pieces)
			err = make_socket(a, o->queue, XDP_COPY | XDP_USE_SG);
		sg = two_pieces && !err;
		if (err && (!two_pieces || mode_matters(err)))
			err = make_socket(a, o->queue, XDP_COPY);
	}
	if (err)
		return bind_failed(a, o, err, error);
	limit_segment(&a->port.info, sg ? DP_TWO_CHUNKS_SEGMENT : DP_ONE_CHUNK_SEGMENT);
	if (a->port.info.path_mtu > ONE_CHUNK_PATH_MTU && !sg) {
		a->port.info.path_mtu = ONE_CHUNK_PATH_MTU;
		snprintf(a->port.info.path_mtu_reason, sizeof(a->port.info.path_mtu_reason),
			 "a packet must fit one %d-byte buffer: no multi-buffer AF_XDP here%s",
			 CHUNK, zc_err ? "" : " in zero-copy mode (mode=copy may have it)");
	}
	return 0;
}

/* Whether the socket is zero-copy: XDP_OPTIONS tells for certain. */
static void report_mode(struct afxdp *a, const struct afxdp_options *o)
{
	struct xdp_options opts = {};
	socklen_t len = sizeof(opts);
	struct dp_port_info *info = &a->port.info;
	char driver[32];

	if (!getsockopt(a->xsk_fd, SOL_XDP, XDP_OPTIONS, &opts, &len))
		a->zero_copy = opts.flags & XDP_OPTIONS_ZEROCOPY;
	strcpy(info->mode, a->zero_copy ? "zero-copy" : "copy");
	if (a->zero_copy)
		return;
	if (o->mode == MODE_COPY) {
		strcpy(info->mode_reason, "mode=copy was asked for");
		return;
	}
	dp_netdev_driver(info->netdev, driver, sizeof(driver));
	/* EINVAL: the driver has zero-copy, but not with this size of packets or buffers. */
	if (a->zero_copy_err == -EINVAL)
		snprintf(
			info->mode_reason, sizeof(info->mode_reason),
			"driver %s refuses zero-copy as it is set up, MTU %u; a smaller one may do",
			driver, info->netdev_mtu);
	else
		snprintf(info->mode_reason, sizeof(info->mode_reason),
			 "driver %s has no AF_XDP zero-copy for queue %u",
			 driver[0] ? driver : "of it", o->queue);
}

/* Options of the socket that make it faster; none is necessary. */
static void tune_socket(struct afxdp *a)
{
	int one = 1, budget = BUSY_POLL_BUDGET, us = BUSY_POLL_US, size = SOCKET_BUFFER;
	int tx_budget = TX_RING;

	fcntl(a->xsk_fd, F_SETFD, FD_CLOEXEC);
	/* copy mode counts each packet in flight against the send buffer */
	setsockopt(a->xsk_fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	/* copy mode: packets per system call; 32 before 6.17 */
	setsockopt(a->xsk_fd, SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &tx_budget, sizeof(tx_budget));
	if (!a->busy_poll)
		return;
	setsockopt(a->xsk_fd, SOL_SOCKET, SO_PREFER_BUSY_POLL, &one, sizeof(one));
	setsockopt(a->xsk_fd, SOL_SOCKET, SO_BUSY_POLL, &us, sizeof(us));
	setsockopt(a->xsk_fd, SOL_SOCKET, SO_BUSY_POLL_BUDGET, &budget, sizeof(budget));
}

static int open_poll_fd(struct afxdp *a, struct dp_error *error)
{
	struct epoll_event in = { .events = EPOLLIN };

	a->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	a->port.fd = epoll_create1(EPOLL_CLOEXEC);
	if (a->wake_fd < 0 || a->port.fd < 0 ||
	    epoll_ctl(a->port.fd, EPOLL_CTL_ADD, a->wake_fd, &in) ||
	    epoll_ctl(a->port.fd, EPOLL_CTL_ADD, a->xsk_fd, &in))
		return dp_fail(error, -errno, "cannot make a poll descriptor: %s", strerror(errno));
	a->port.watched_fd = a->xsk_fd;
	return 0;
}

static int map_umem(struct afxdp *a, struct dp_error *error)
{
	void *area =
		mmap(NULL, umem_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (area == MAP_FAILED)
		return dp_fail(error, -errno, "no memory for packet buffers: %s", strerror(errno));
	/* A fork must not copy pages that the kernel has pinned. */
	madvise(area, umem_size, MADV_DONTFORK);
	madvise(area, umem_size, MADV_HUGEPAGE);
	a->umem_area = area;
	return 0;
}

static void fill_rings(struct afxdp *a)
{
	uint32_t idx = 0;

	xsk_ring_prod__reserve(&a->fill, RX_CHUNKS, &idx);
	for (uint32_t i = 0; i < RX_CHUNKS; i++)
		*xsk_ring_prod__fill_addr(&a->fill, idx + i) = (uint64_t)i * CHUNK;
	xsk_ring_prod__submit(&a->fill, RX_CHUNKS);
	for (uint32_t i = 0; i < TX_BUFFERS; i++)
		a->free[i] = (uint16_t)(TX_BUFFERS - 1 - i);
	a->n_free = TX_BUFFERS;
}

void dp_afxdp_stats(struct dp_port *port)
{
	struct afxdp *a = (struct afxdp *)port;
	struct xdp_statistics s = {};
	socklen_t len = sizeof(s);

	if (!getsockopt(a->xsk_fd, SOL_XDP, XDP_STATISTICS, &s, &len)) {
		port->stats.rx_dropped = s.rx_dropped + s.rx_ring_full;
		port->stats.tx_dropped = s.tx_invalid_descs;
	}
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
	delete_socket(a);
	if (a->umem_area)
		munmap(a->umem_area, umem_size);
	free(a);
}

static int open_device(struct afxdp *a, const struct dp_spec *spec, struct dp_error *error)
{
	struct afxdp_options o = {};
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
	if (!err)
		err = map_umem(a, error);
	if (!err)
		err = open_socket(a, &o, error);
	if (err)
		return err;
	a->xsk_fd = xsk_socket__fd(a->xsk);
	a->busy_poll = o.busy_poll;
	tune_socket(a);
	report_mode(a, &o);
	fill_rings(a);
	err = open_poll_fd(a, error);
	if (!err)
		err = dp_steer_attach(info, o.queue, a->xsk_fd, o.dated, &a->steer, error);
	if (err)
		return err;
	a->holder_fd = dp_holder_tell(info->ifindex);
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
	a->port.fd = a->wake_fd = a->holder_fd = -1;
	dp_slot_init(&a->names);
	strcpy(a->port.info.kind, dp_afxdp_ops.kind);
	err = open_device(a, spec, error);
	if (err)
		dp_afxdp_close(&a->port);
	else
		*out = &a->port;
	return err;
}
