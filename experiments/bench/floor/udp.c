// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Raw UDP: one call sends a batch of messages (UDP_SEGMENT), and one receives what the kernel has
 * put together (UDP_GRO). */
#include "floor.h"

#include <errno.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/addr.h"
#include "wire/ipv4.h"
#include "wire/packet.h"

enum {
	PORT = 4791,
	BYTES_MAX = 65000, /* of one call */
	RX_BYTES = 65536,
	SOCKET_BUFFER = 64 << 20,
};

struct floor_udp {
	struct floor_socket base;
	uint32_t size;
	uint32_t at, len, segment; /* of what is in rx: read, received, one message */
	struct floor_carrier carrier;
	uint8_t tx[BYTES_MAX];
	uint8_t rx[RX_BYTES];
};

union control {
	char bytes[CMSG_SPACE(sizeof(int))];
	struct cmsghdr align;
};

static int udp_send(struct floor_socket *s, const struct floor_message *m, int n)
{
	struct floor_udp *u = (struct floor_udp *)s;
	uint16_t segment = (uint16_t)u->size;
	union control control = {};
	struct iovec iov = { .iov_base = u->tx };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n > (int)(BYTES_MAX / u->size))
		n = (int)(BYTES_MAX / u->size);
	for (int i = 0; i < n; i++) {
		memcpy(u->tx + (uint32_t)i * u->size, &m[i], sizeof(m[i]));
		floor_load(&u->carrier, u->tx + (uint32_t)i * u->size, u->size);
	}
	iov.iov_len = (uint32_t)n * u->size;
	if (n > 1) {
		struct cmsghdr *c = &control.align;

		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(sizeof(segment));
		c->cmsg_level = IPPROTO_UDP;
		c->cmsg_type = UDP_SEGMENT;
		c->cmsg_len = CMSG_LEN(sizeof(segment));
		memcpy(CMSG_DATA(c), &segment, sizeof(segment));
	}
	if (sendmsg(s->fd, &msg, MSG_DONTWAIT) >= 0)
		return n;
	/* ECONNREFUSED: the peer's answer to an earlier message, before it had its socket. */
	if (errno == EAGAIN || errno == ENOBUFS || errno == ECONNREFUSED || errno == EINTR)
		return 0;
	floor_fail("cannot send %d messages of %u bytes: %s", n, u->size, strerror(errno));
}

/* Receives into rx what the kernel has put together; 0: nothing is there. */
static uint32_t receive_more(struct floor_udp *u)
{
	union control control;
	struct iovec iov = { .iov_base = u->rx, .iov_len = sizeof(u->rx) };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n = recvmsg(u->base.fd, &msg, MSG_DONTWAIT);
	int segment;

	u->at = 0;
	u->len = n > 0 ? (uint32_t)n : 0;
	u->segment = u->len;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); n > 0 && c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level != IPPROTO_UDP || c->cmsg_type != UDP_GRO)
			continue;
		memcpy(&segment, CMSG_DATA(c), sizeof(segment));
		u->segment = (uint32_t)segment;
	}
	return u->len;
}

static int udp_receive(struct floor_socket *s, struct floor_message *out)
{
	struct floor_udp *u = (struct floor_udp *)s;
	uint32_t left;
	int found = 0;

	if (u->at >= u->len && !receive_more(u))
		return 0;
	while (u->at < u->len && found < FLOOR_BATCH) {
		left = u->len - u->at < u->segment ? u->len - u->at : u->segment;
		if (left >= sizeof(*out)) {
			memcpy(&out[found], u->rx + u->at, sizeof(*out));
			found += out[found].magic == FLOOR_MAGIC &&
				 floor_unload(&u->carrier, u->rx + u->at, left, NULL, 0);
		}
		u->at += u->segment;
	}
	return found;
}

static void udp_close(struct floor_socket *s)
{
	floor_carrier_close(&((struct floor_udp *)s)->carrier);
	close(s->fd);
	free(s);
}

static void make_address(const char *text, union dp_sockaddr *out, socklen_t *len)
{
	struct dp_addr addr;

	if (dp_addr_parse(text, &addr))
		floor_fail("%s is no address", text);
	*len = dp_addr_to_sockaddr(&addr, PORT, 0, out);
}

struct floor_socket *floor_udp_open(const struct floor_setup *setup)
{
	struct floor_udp *u = calloc(1, sizeof(*u));
	int one = 1, buffer = SOCKET_BUFFER, fd;
	union dp_sockaddr local, peer;
	socklen_t local_len, peer_len;

	if (!u)
		floor_fail("out of memory");
	make_address(setup->local, &local, &local_len);
	make_address(setup->peer, &peer, &peer_len);
	fd = socket(local.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, &local.sa, local_len) || connect(fd, &peer.sa, peer_len))
		floor_fail("cannot make a UDP socket from %s to %s, port %d: %s", setup->local,
			   setup->peer, PORT, strerror(errno));
	setsockopt(fd, IPPROTO_UDP, UDP_GRO, &one, sizeof(one));
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof(buffer)))
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
	u->base.ops = &floor_udp_ops;
	u->base.fd = fd;
	u->size = setup->size;
	floor_carrier_open(&u->carrier, setup);
	u->carrier.out.sport = u->carrier.in.sport = PORT;
	return &u->base;
}

const struct floor_ops floor_udp_ops = {
	.size_max = FLOOR_UDP_SIZE_MAX,
	.send = udp_send,
	.receive = udp_receive,
	.close = udp_close,
};
