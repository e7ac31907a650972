/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The declarations that the files of the UDP port share.
 *
 *   udp.c        opening, routes, counters
 *   udp_tx.c     sending, with UDP_SEGMENT
 *   udp_rx.c     receiving, with UDP_GRO
 *   udp_group.c  multicast
 *   udp_steer.c  which of several processes at one address a datagram reaches
 */
#ifndef DP_IO_UDP_IMPL_H
#define DP_IO_UDP_IMPL_H

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include "io/addr.h"
#include "io/groups.h"
#include "io/peers.h"
#include "io/port_impl.h"
#include "io/run.h"
#include "io/slot.h"
#include "io/udp.h"
#include "io/udp_steer.h"
#include "io/wall_clock.h"
#include "wire/ext.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif

enum {
	TX_BUFFERS = 512,
	TX_BUFFER = DP_SEGMENT_MAX + 128, /* and longest headers */
	GSO_BYTES_MAX = 65000,		  /* most bytes of one IP packet, with its headers */
	GSO_SEGMENTS_MAX = 64,
	GSO_SEGMENT = 4096, /* if 15 packets of this size leave at once, longer ones gain nothing */
	RX_MESSAGES = 8,
	SOCKET_BUFFER = 32 << 20,
};

struct udp_options {
	uint32_t path_mtu;
	uint32_t gso;
};

union rx_control {
	char bytes[CMSG_SPACE(sizeof(int)) * 2 + CMSG_SPACE(sizeof(struct timespec))];
	struct cmsghdr align;
};

struct udp_route {
	union dp_sockaddr to;
	socklen_t to_len;
};

struct udp_port {
	struct dp_port port;
	int fd;
	bool gso;
	bool polls_out; /* the poll descriptor also waits for room to send */
	struct dp_slot slot;
	struct dp_udp_steer steer;
	struct dp_wall_clock wall_clock;
	uint32_t kernel_drops; /* drops that the counters include already */

	uint32_t n_rx, next_rx, idle_rx, busy_rx, next_other;
	struct dp_run rx[RX_MESSAGES];
	struct mmsghdr rx_msgs[RX_MESSAGES]; /* ready to receive, with what follows */
	struct iovec rx_iov[RX_MESSAGES];
	union dp_sockaddr rx_from[RX_MESSAGES];
	union rx_control rx_control[RX_MESSAGES];

	uint32_t n_free;
	uint16_t free[TX_BUFFERS];
	uint32_t n_pending;
	struct dp_packet pending[TX_BUFFERS];
	uint8_t *buffers; /* RX_MESSAGES receive buffers, then TX_BUFFERS */

	struct dp_groups groups;
	struct dp_peers peers;
	struct udp_route routes[DP_PEERS_MAX]; /* by path_id */
};

/* Options without which a socket of the port does not work. */
int dp_udp_configure(int fd, bool v4);
int dp_udp_join(struct dp_port *, const struct dp_addr *group);
void dp_udp_leave(struct dp_port *, const struct dp_addr *group);
void dp_udp_flush_pending(struct udp_port *);
int dp_udp_tx_reserve(struct dp_port *, struct dp_packet *out, int max);
int dp_udp_tx_commit(struct dp_port *, const struct dp_packet *pkts, int n_used, int n);
/* Prepares message `i` for receiving. */
void dp_udp_rx_prepare(struct udp_port *, int i);
int dp_udp_rx(struct dp_port *, struct dp_packet *out, int max);

#endif
