// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "io/udp_impl.h"

union tx_control {
	char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(uint16_t))];
	struct cmsghdr align;
};

struct tx_batch {
	struct mmsghdr msgs[DP_PORT_BATCH];
	struct iovec iov[DP_PORT_BATCH];
	union tx_control control[DP_PORT_BATCH];
	int n_msgs;
};

/* A standard peer gets offers, and must find their ICRC right: see udp.c. */
static bool may_segment(const struct dp_packet *pkt)
{
	uint8_t opcode = pkt->len > DP_SLOT_BYTE ? dp_bth_opcode(pkt->data) : 0;

	return dp_op_is_ext(opcode) && opcode != DP_OP_HELLO;
}

/* How many packets, from the first on, one send can take: all have the same path, TOS and process
 * at the peer, and the same length, but the last may be shorter. */
static int run_length(const struct udp_port *u, const struct dp_packet *pkts, int n)
{
	const struct dp_packet *first = pkts;
	uint32_t bytes = first->len;
	int k = 1;

	if (!u->gso || !may_segment(first))
		return 1;
	while (k < n && k < GSO_SEGMENTS_MAX) {
		const struct dp_packet *p = &pkts[k];

		bytes += p->len;
		if (p->path_id != first->path_id || p->tos != first->tos || p->len > first->len ||
		    bytes > GSO_BYTES_MAX || !may_segment(p) ||
		    p->data[DP_SLOT_BYTE] != first->data[DP_SLOT_BYTE])
			break;
		k++;
		if (p->len < first->len)
			break;
	}
	return k;
}

static void add_control(struct msghdr *msg, int level, int type, const void *value, size_t len)
{
	struct cmsghdr *c = (void *)((char *)msg->msg_control + msg->msg_controllen);

	memset(c, 0, CMSG_SPACE(len)); /* the kernel copies the padding, too */
	c->cmsg_level = level;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(len);
	memcpy(CMSG_DATA(c), value, len);
	msg->msg_controllen += CMSG_SPACE(len);
}

/* One send of k packets; its control messages and iovecs lie at index i. */
static void make_message(struct udp_port *u, struct tx_batch *b, int i,
			 const struct dp_packet *pkts, int k)
{
	const struct udp_route *r = &u->routes[pkts->path_id];
	struct msghdr *msg = &b->msgs[b->n_msgs].msg_hdr;
	uint16_t segment = (uint16_t)pkts->len;
	int tos = pkts->tos;

	*msg = (struct msghdr){
		.msg_name = (void *)&r->to,
		.msg_namelen = r->to_len,
		.msg_iov = &b->iov[i],
		.msg_iovlen = (size_t)k,
		.msg_control = &b->control[b->n_msgs],
	};
	for (int j = 0; j < k; j++) {
		b->iov[i + j].iov_base = pkts[j].data;
		b->iov[i + j].iov_len = pkts[j].len;
	}
	if (r->to.sa.sa_family == AF_INET)
		add_control(msg, IPPROTO_IP, IP_TOS, &tos, sizeof(tos));
	else
		add_control(msg, IPPROTO_IPV6, IPV6_TCLASS, &tos, sizeof(tos));
	if (k > 1)
		add_control(msg, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof(segment));
	b->n_msgs++;
}

/* The kernel refused the first message of a batch.  Returns how many of its packets are done with
 * (dropped); 0: try again, now or later. */
static int refused(struct udp_port *u, int err, int packets)
{
	if ((err == EINVAL || err == EIO) && packets > 1) {
		/* no checksum offload, IPsec and so on: do not try again */
		u->gso = false;
		strcpy(u->port.info.mode, "plain");
		snprintf(u->port.info.mode_reason, sizeof(u->port.info.mode_reason),
			 "the kernel refused UDP segmentation on this path (%s)", strerror(err));
		return 0;
	}
	u->port.stats.tx_dropped += (uint32_t)packets;
	return packets;
}

static bool send_later(int err)
{
	return err == EAGAIN || err == ENOBUFS || err == ENOMEM;
}

/* Sends up to DP_PORT_BATCH packets.  Returns how many are done with; -EAGAIN: none could be sent
 * now. */
static int send_batch(struct udp_port *u, const struct dp_packet *pkts, int n)
{
	struct tx_batch b; /* large: only what is used is written */
	int done = 0, sent;

	b.n_msgs = 0;
	if (n > DP_PORT_BATCH)
		n = DP_PORT_BATCH;
	for (int i = 0, k; i < n; i += k) {
		k = run_length(u, pkts + i, n - i);
		make_message(u, &b, i, pkts + i, k);
	}
	u->port.stats.tx_wakeups++;
	do
		sent = sendmmsg(u->fd, b.msgs, (unsigned int)b.n_msgs, MSG_DONTWAIT);
	while (sent < 0 && errno == EINTR);
	if (sent < 0 && send_later(errno))
		return -EAGAIN;
	if (sent < 0)
		return refused(u, errno, (int)b.msgs[0].msg_hdr.msg_iovlen);
	for (int i = 0; i < sent; i++)
		done += (int)b.msgs[i].msg_hdr.msg_iovlen;
	return done;
}

static void give_back(struct udp_port *u, const struct dp_packet *pkts, int n)
{
	for (int i = n - 1; i >= 0; i--)
		u->free[u->n_free++] = (uint16_t)pkts[i].cookie;
}

/* Sends as many packets as possible and frees their buffers; returns how many. */
static int send_packets(struct udp_port *u, const struct dp_packet *pkts, int n)
{
	int done = 0;

	while (done < n) {
		int k = send_batch(u, pkts + done, n - done);

		if (k < 0)
			break;
		done += k;
	}
	give_back(u, pkts, done);
	return done;
}

/* While packets wait, the poll descriptor also tells when there is room to send. */
static void update_poll(struct udp_port *u)
{
	bool want = u->n_pending;
	struct epoll_event e = { .events = want ? EPOLLIN | EPOLLOUT : EPOLLIN };

	if (want != u->polls_out && !epoll_ctl(u->port.fd, EPOLL_CTL_MOD, u->fd, &e))
		u->polls_out = want;
}

void dp_udp_flush_pending(struct udp_port *u)
{
	uint32_t done = (uint32_t)send_packets(u, u->pending, (int)u->n_pending);

	for (uint32_t i = 0; i < done; i++)
		dp_peers_release(&u->peers, u->pending[i].path_id);
	u->n_pending -= done;
	memmove(u->pending, u->pending + done, u->n_pending * sizeof(u->pending[0]));
	update_poll(u);
}

int dp_udp_tx_reserve(struct dp_port *port, struct dp_packet *out, int max)
{
	struct udp_port *u = (struct udp_port *)port;
	uint8_t *area = u->buffers + (size_t)RX_MESSAGES * DP_RUN_MAX;
	int n = 0;

	if (u->n_pending)
		dp_udp_flush_pending(u);
	while (n < max && u->n_free) {
		out[n].cookie = u->free[--u->n_free];
		out[n].data = area + out[n].cookie * TX_BUFFER;
		out[n].cap = TX_BUFFER;
		n++;
	}
	if (!n)
		u->port.stats.tx_full++;
	return n;
}

int dp_udp_tx_commit(struct dp_port *port, const struct dp_packet *pkts, int n_used, int n)
{
	struct udp_port *u = (struct udp_port *)port;
	int done = 0;

	give_back(u, pkts + n_used, n - n_used);
	for (int i = 0; i < n_used; i++) {
		assert(dp_peers_has(&u->peers, pkts[i].path_id) && pkts[i].len <= pkts[i].cap);
		u->port.stats.tx_bytes += pkts[i].len;
	}
	u->port.stats.tx_packets += (uint32_t)n_used;
	if (u->n_pending)
		dp_udp_flush_pending(u);
	if (!u->n_pending)
		done = send_packets(u, pkts, n_used);
	if (done < n_used) {
		for (int i = done; i < n_used; i++)
			dp_peers_hold(&u->peers, pkts[i].path_id);
		memcpy(u->pending + u->n_pending, pkts + done,
		       (size_t)(n_used - done) * sizeof(*pkts));
		u->n_pending += (uint32_t)(n_used - done);
		update_poll(u);
	}
	return 0;
}
