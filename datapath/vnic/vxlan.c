// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Frames of the classes without recovery: one VXLAN packet each (RFC 7348), by the kernel's
 * UDP.  Linux's own vxlan device understands them and answers them.
 *
 * VXLAN knows no authentication.  A packet is taken from the address of a host alone, and
 * only if its frame comes from a guest of the tenant on that host (guests_accept()).
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "io/addr.h"
#include "vnic/card.h"
#include "wire/headers.h"

enum {
	VXLAN_PORT = 4789,
	VXLAN_LEN = 8,
	VXLAN_HAS_VNI = 0x08,
	BATCH = 64,
	SOCKET_BUFFER = 4 << 20,
};

static int open_socket(const struct dp_addr *local, uint16_t port)
{
	int family = dp_addr_is_v4(local) ? AF_INET : AF_INET6, on = 1, size = SOCKET_BUFFER;
	int fd = socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int fragment = IP_PMTUDISC_DONT, err;
	union dp_sockaddr name;
	socklen_t len;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_NO_CHECK, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
	/* As Linux's vxlan device does: a guest need not know how short the network's MTU is. */
	if (family == AF_INET)
		setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &fragment, sizeof(fragment));
	len = dp_addr_to_sockaddr(local, port, 0, &name);
	if (bind(fd, &name.sa, len)) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

int vxlan_open(struct card *card, char *why, size_t size)
{
	const struct dp_addr *local = &card->host[card->self].addr;

	card->vxlan_fd = open_socket(local, VXLAN_PORT);
	if (card->vxlan_fd < 0) {
		snprintf(why, size, "cannot have UDP port %d: %s", VXLAN_PORT,
			 strerror(-card->vxlan_fd));
		return card->vxlan_fd;
	}
	/* The source port tells flows apart to the network's switches (RFC 7348, section 5). */
	for (unsigned i = 0; i < PLAIN_PORTS; i++) {
		card->plain_fd[i] = open_socket(local, 0);
		if (card->plain_fd[i] < 0) {
			snprintf(why, size, "cannot have a UDP port: %s",
				 strerror(-card->plain_fd[i]));
			return card->plain_fd[i];
		}
	}
	return 0;
}

void vxlan_close(struct card *card)
{
	if (card->vxlan_fd > 0)
		close(card->vxlan_fd);
	for (unsigned i = 0; i < PLAIN_PORTS; i++)
		if (card->plain_fd[i] > 0)
			close(card->plain_fd[i]);
}

bool vxlan_send(struct card *card, struct host *host, uint32_t vni, uint32_t hash, uint32_t first)
{
	uint8_t header[VXLAN_LEN] = { VXLAN_HAS_VNI };
	struct iovec iov[2 + FRAME_CHUNKS] = { { header, sizeof(header) } };
	union dp_sockaddr to;
	struct msghdr msg = {
		.msg_name = &to,
		.msg_namelen = dp_addr_to_sockaddr(&host->addr, VXLAN_PORT, 0, &to),
		.msg_iov = iov,
		.msg_iovlen = 1,
	};

	dp_put32(header + 4, vni << 8);
	for (uint32_t i = first; i != DP_NO_CHUNK; i = card->chunk[i].raw.next) {
		if (msg.msg_iovlen == 2 + FRAME_CHUNKS)
			return false;
		iov[msg.msg_iovlen++] =
			(struct iovec){ dp_raw_bytes(&card->raw, i), card->chunk[i].raw.len };
	}
	if (sendmsg(card->plain_fd[hash % PLAIN_PORTS], &msg, MSG_DONTWAIT) < 0)
		return false;
	host->counters.tx_plain++;
	return true;
}

void vxlan_send_queued(struct card *card, uint16_t host, uint32_t first)
{
	const struct chunk *c = &card->chunk[first];
	struct guest *g = &card->guest[c->guest];

	if (vxlan_send(card, &card->host[host], c->vni, c->hash, first))
		g->counters.plain++;
	else
		g->counters.not_sent++;
	frame_let_go(card, first);
}

/* Bytes of the packet that was read into header and chunks; -1: none is there. */
static ssize_t read_packet(struct card *card, uint8_t *header, uint32_t first, struct dp_addr *from,
			   int *flags)
{
	struct iovec iov[1 + FRAME_CHUNKS] = { { header, VXLAN_LEN } };
	union dp_sockaddr name;
	struct msghdr msg = {
		.msg_name = &name, .msg_namelen = sizeof(name), .msg_iov = iov, .msg_iovlen = 1
	};
	ssize_t n;

	for (uint32_t i = first; i != DP_NO_CHUNK; i = card->chunk[i].raw.next)
		iov[msg.msg_iovlen++] = (struct iovec){ dp_raw_bytes(&card->raw, i), DP_CHUNK };
	n = recvmsg(card->vxlan_fd, &msg, MSG_DONTWAIT);
	if (n >= 0)
		dp_addr_from_sockaddr(&name.sa, from);
	*flags = msg.msg_flags;
	return n;
}

/* false: no packet waits, or there is no room for one. */
static bool receive_one(struct card *card)
{
	uint8_t header[VXLAN_LEN];
	uint32_t first = frame_get(card);
	struct dp_addr from;
	uint16_t host;
	ssize_t n;
	int flags;

	if (first == DP_NO_CHUNK)
		return false;
	n = read_packet(card, header, first, &from, &flags);
	if (n < 0) {
		dp_raw_put(&card->raw, first);
		return false;
	}
	host = table_host(card, &from);
	if (host == NOBODY || host == card->self) {
		card->counters.unknown_host++;
		dp_raw_put(&card->raw, first);
	} else if (n < VXLAN_LEN + FRAME_MIN || flags & MSG_TRUNC || !(header[0] & VXLAN_HAS_VNI)) {
		card->counters.bad_vxlan++;
		dp_raw_put(&card->raw, first);
	} else {
		card->host[host].counters.rx_plain++;
		guests_accept(card, host, dp_get32(header + 4) >> 8, first,
			      (uint32_t)n - VXLAN_LEN);
	}
	return true;
}

void vxlan_receive(struct card *card)
{
	card->plain_waits = true;
	for (unsigned i = 0; i < BATCH && card->plain_waits; i++)
		card->plain_waits = receive_one(card);
}
