// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The sockets of an AF_XDP port.  It tries the modes of the kernel and the driver from the fastest to
 * the slowest, and tells in dp_port_info which mode it got and why.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "io/afxdp.h"
#include "io/netdev.h"
#include "wire/sizes.h"

/* The kernel headers may be older than Linux 5.11. */
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
	XSK_DESCRIPTORS = 4, /* that libxdp opens beside the sockets, for a while */
};

void dp_afxdp_delete_sockets(struct afxdp *a)
{
	for (uint32_t i = 0; i < a->n_queues; i++) {
		if (a->queues[i].xsk)
			xsk_socket__delete(a->queues[i].xsk);
		a->queues[i].xsk = NULL;
	}
	if (a->umem)
		xsk_umem__delete(a->umem);
	a->umem = NULL;
}

/* Makes the UMEM, rings and sockets and binds them, once.  The flags count for the first socket;
 * the kernel gives the others the same mode.  *queue: the one that an error is about. */
static int try_sockets(struct afxdp *a, uint16_t bind_flags, uint32_t *queue)
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
	struct afxdp_queue *q = a->queues;
	int err;

	*queue = a->first_queue;
	err = xsk_umem__create(&a->umem, a->umem_area, a->umem_size, &q->fill, &q->comp, &uc);
	for (uint32_t i = 0; !err && i < a->n_queues; i++) {
		q = &a->queues[i];
		*queue = a->first_queue + i;
		err = xsk_socket__create_shared(&q->xsk, a->port.info.netdev, *queue, a->umem,
						&q->rx, i ? NULL : &a->tx, &q->fill, &q->comp, &sc);
	}
	if (err)
		dp_afxdp_delete_sockets(a);
	return err;
}

/* The same on the first queue that is free, if any queue will do. */
static int try_queues(struct afxdp *a, uint16_t bind_flags, uint32_t *queue)
{
	uint32_t n = a->any_queue ? (uint32_t)dp_netdev_rx_queues(a->port.info.netdev) : 1;
	int err = -EBUSY;

	for (uint32_t i = 0; i < n && err == -EBUSY; i++) {
		if (a->any_queue)
			a->first_queue = i;
		err = try_sockets(a, bind_flags, queue);
	}
	return err;
}

/* Waits for the queue of a process that has ended. */
static int make_sockets(struct afxdp *a, uint16_t bind_flags, uint32_t *queue)
{
	int err = try_queues(a, bind_flags, queue), ms = 0;

	while (err == -EBUSY && dp_holder_wait(a->port.info.ifindex, *queue, &ms))
		err = try_queues(a, bind_flags, queue);
	return err;
}

static int queue_in_use(const struct afxdp *a, uint32_t queue, struct dp_error *error)
{
	const char *others = a->any_queue ? " and so are those before it" : "";
	int pid = dp_holder_pid(a->port.info.ifindex, queue);
	char who[32] = "another AF_XDP socket";

	if (pid)
		snprintf(who, sizeof(who), "process %d", pid);
	return dp_fail(error, -EBUSY,
		       "queue %u of %s is in use by %s%s: end that, or use another device or "
		       "queue=",
		       queue, a->port.info.netdev, who, others);
}

static int bind_failed(const struct afxdp *a, enum afxdp_mode mode, uint32_t queue, int err,
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
		return queue_in_use(a, queue, error);
	case -EINVAL:
		if (queue >= (uint32_t)dp_netdev_rx_queues(dev))
			return dp_fail(error, err, "%s has %d receive queue(s), no queue %u", dev,
				       dp_netdev_rx_queues(dev), queue);
		break;
	case -ENOBUFS:
	case -ENOMEM:
		return dp_fail(error, err,
			       "no memory for %zu MiB of packet buffers: raise ulimit -l",
			       a->umem_size >> 20);
	case -EAFNOSUPPORT:
		return dp_fail(error, err, "this kernel has no AF_XDP: use udp:%s", dev);
	}
	if (mode == MODE_ZEROCOPY)
		return dp_fail(error, err,
			       "%s queue %u cannot do AF_XDP zero-copy (%s): use "
			       "mode=auto",
			       dev, queue, strerror(-err));
	return dp_fail(error, err, "cannot bind AF_XDP to %s queue %u: %s", dev, queue,
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

static int bind_sockets(struct afxdp *a, enum afxdp_mode mode, struct dp_error *error)
{
	bool two_pieces = a->port.info.path_mtu > ONE_CHUNK_PATH_MTU ||
			  a->port.info.segment_max > DP_ONE_CHUNK_SEGMENT;
	int err = -EINVAL, zc_err = 0;
	uint32_t queue = a->first_queue;
	bool sg = false;

	if (mode != MODE_COPY) {
		if (two_pieces)
			err = make_sockets(a, XDP_ZEROCOPY | XDP_USE_SG, &queue);
		sg = !err;
		if (err && (!two_pieces || mode_matters(err)))
			err = make_sockets(a, XDP_ZEROCOPY, &queue);
		zc_err = err;
		a->zero_copy_err = err;
	}
	if (mode == MODE_COPY || (mode == MODE_AUTO && mode_matters(zc_err))) {
		if (two_pieces)
			err = make_sockets(a, XDP_COPY | XDP_USE_SG, &queue);
		sg = two_pieces && !err;
		if (err && (!two_pieces || mode_matters(err)))
			err = make_sockets(a, XDP_COPY, &queue);
	}
	if (err)
		return bind_failed(a, mode, queue, err, error);
	limit_segment(&a->port.info, sg ? DP_TWO_CHUNKS_SEGMENT : DP_ONE_CHUNK_SEGMENT);
	if (a->port.info.path_mtu > ONE_CHUNK_PATH_MTU && !sg) {
		a->port.info.path_mtu = ONE_CHUNK_PATH_MTU;
		snprintf(a->port.info.path_mtu_reason, sizeof(a->port.info.path_mtu_reason),
			 "a packet must fit one %d-byte buffer: no multi-buffer AF_XDP here%s",
			 CHUNK, zc_err ? "" : " in zero-copy mode (mode=copy may have it)");
	}
	return 0;
}

/* Whether the sockets are zero-copy: XDP_OPTIONS tells for certain. */
static void report_mode(struct afxdp *a, enum afxdp_mode mode)
{
	struct xdp_options opts = {};
	socklen_t len = sizeof(opts);
	struct dp_port_info *info = &a->port.info;
	char driver[32];

	if (!getsockopt(a->queues[0].fd, SOL_XDP, XDP_OPTIONS, &opts, &len))
		a->zero_copy = opts.flags & XDP_OPTIONS_ZEROCOPY;
	strcpy(info->mode, a->zero_copy ? "zero-copy" : "copy");
	if (a->zero_copy)
		return;
	if (mode == MODE_COPY) {
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
			 driver[0] ? driver : "of it", a->first_queue);
}

/* Options of a socket that make it faster; none is necessary. */
static void tune_socket(int fd, bool busy_poll)
{
	int one = 1, budget = BUSY_POLL_BUDGET, us = BUSY_POLL_US, size = SOCKET_BUFFER;
	int tx_budget = TX_RING;

	fcntl(fd, F_SETFD, FD_CLOEXEC);
	/* copy mode counts each packet in flight against the send buffer */
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	/* copy mode: packets per system call; 32 before 6.17 */
	setsockopt(fd, SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &tx_budget, sizeof(tx_budget));
	if (!busy_poll)
		return;
	setsockopt(fd, SOL_SOCKET, SO_PREFER_BUSY_POLL, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &us, sizeof(us));
	setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL_BUDGET, &budget, sizeof(budget));
}

int dp_afxdp_make_sockets(struct afxdp *a, enum afxdp_mode mode, struct dp_error *error)
{
	int err = dp_check_descriptors(a->n_queues + XSK_DESCRIPTORS, error);

	if (!err)
		err = bind_sockets(a, mode, error);
	if (err)
		return err;
	for (uint32_t i = 0; i < a->n_queues; i++) {
		a->queues[i].fd = xsk_socket__fd(a->queues[i].xsk);
		tune_socket(a->queues[i].fd, a->busy_poll);
	}
	report_mode(a, mode);
	return 0;
}
