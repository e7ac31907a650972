// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * UDP port: RoCEv2 datagrams through a kernel socket.  Needs no privilege.
 *
 * What makes it fast: extended packets of one length to one peer leave as one
 * UDP_SEGMENT send, and arrive as one UDP_GRO receive, so the stack is passed
 * once for up to 64 of them.  Standard packets leave one by one, because their
 * ICRC covers the IPv4 identification, which segmentation counts up, and which
 * an unconnected socket with IP_PMTUDISC_DO sets to 0.
 *
 * What the socket does not take at once (device queue full) waits in order and
 * is tried again by the next call; the poll descriptor then tells of room, too.
 *
 * Several processes share an address: see udp_slot.h.
 */
#include <errno.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "io/addr.h"
#include "io/netdev.h"
#include "io/peers.h"
#include "io/port_impl.h"
#include "io/udp_slot.h"
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
	GSO_BYTES_MAX = 65000,		  /* one IP packet, with its headers */
	GSO_SEGMENTS_MAX = 64,
	GSO_SEGMENT = 4096, /* longer packets gain nothing where 15 leave at once */
	RX_MESSAGES = 8,
	RX_BUFFER = 65536,
	RX_TRIES_PER_SLOT_CHECK = 8,
	SOCKET_BUFFER = 32 << 20,
};

struct udp_options {
	uint32_t path_mtu;
	uint32_t gso;
};

union rx_control {
	char bytes[CMSG_SPACE(sizeof(int)) * 2];
	struct cmsghdr align;
};

/* A received run of datagrams of segment_len bytes each, the last maybe less. */
struct rx_message {
	struct dp_addr src;
	uint16_t sport;
	uint8_t tos;
	bool handed_on; /* by another process: not to be handed on again */
	uint32_t len, segment_len, done;
	uint8_t *data;
};

struct udp_route {
	union dp_sockaddr to;
	socklen_t to_len;
};

struct udp_port {
	struct dp_port port;
	int fd;
	bool gso;
	bool polls_out; /* the poll descriptor waits for room to send */
	struct dp_slot slot;
	uint32_t kernel_drops; /* those that are in the counters */

	uint32_t n_rx, next_rx, idle_rx;
	struct rx_message rx[RX_MESSAGES];
	struct mmsghdr rx_msgs[RX_MESSAGES]; /* ready to receive, with what follows */
	struct iovec rx_iov[RX_MESSAGES];
	union dp_sockaddr rx_from[RX_MESSAGES];
	union rx_control rx_control[RX_MESSAGES];

	uint32_t n_free;
	uint16_t free[TX_BUFFERS];
	uint32_t n_pending;
	struct dp_packet pending[TX_BUFFERS];
	uint8_t *buffers; /* RX_MESSAGES receive buffers, then TX_BUFFERS */

	struct dp_peers peers;
	struct udp_route routes[DP_PEERS_MAX]; /* by path_id */
};

/* ---- opening --------------------------------------------------------------- */

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

/* Options without which the port does not work. */
static int configure_socket(int fd, bool v4)
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
	/* RoCE has no UDP checksum (annex A17.3.2): the ICRC covers more */
	if (!err && !v4)
		err = set_option(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
	return err;
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
	if (err == -EADDRNOTAVAIL)
		return dp_fail(error, err, "%s is not an address of this network namespace", text);
	return dp_fail(error, err, "cannot bind UDP port %d of %s: %s", DP_ROCE_PORT, text,
		       strerror(-err));
}

static int open_socket(struct udp_port *u, struct dp_error *error)
{
	const struct dp_port_info *info = &u->port.info;
	bool v4 = dp_addr_is_v4(&info->addr);
	union dp_sockaddr local;
	socklen_t len = dp_addr_to_sockaddr(&info->addr, DP_ROCE_PORT, info->ifindex, &local);
	int err;

	u->fd = socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (u->fd < 0)
		return dp_fail(error, -errno, "cannot make a UDP socket: %s", strerror(errno));
	err = configure_socket(u->fd, v4);
	if (err)
		return dp_fail(error, err, "cannot set up a UDP socket: %s", strerror(-err));
	large_buffers(u->fd);
	if (bind(u->fd, &local.sa, len))
		return bind_failed(&info->addr, -errno, error);
	return dp_slot_steer(u->fd, error);
}

static void choose_gso(struct udp_port *u, const struct udp_options *o)
{
	struct dp_port_info *info = &u->port.info;
	int off = 0;
	int err;

	/* the kernel knows the option, and a size of 0 is none */
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

	if (dp_addr_parse(where, &info->addr)) {
		err = dp_netdev_query(where, info, error);
		return err ? err : dp_netdev_address(where, &any, &info->addr, error);
	}
	if (dp_addr_is_unspecified(&info->addr) || dp_addr_is_multicast(&info->addr))
		return dp_fail(error, -EINVAL, "udp:%s: a RoCE device needs one local address",
			       where);
	if (dp_netdev_of_address(&info->addr, netdev, sizeof(netdev)))
		return bind_failed(&info->addr, -EADDRNOTAVAIL, error);
	return dp_netdev_query(netdev, info, error);
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

static void prepare_message(struct udp_port *u, int i)
{
	u->rx_iov[i] = (struct iovec){ u->rx[i].data, RX_BUFFER };
	u->rx_msgs[i].msg_hdr = (struct msghdr){
		.msg_name = &u->rx_from[i],
		.msg_namelen = sizeof(u->rx_from[i]),
		.msg_iov = &u->rx_iov[i],
		.msg_iovlen = 1,
		.msg_control = &u->rx_control[i],
		.msg_controllen = sizeof(u->rx_control[i]),
	};
}

static int make_buffers(struct udp_port *u, struct dp_error *error)
{
	size_t size = (size_t)RX_MESSAGES * RX_BUFFER + (size_t)TX_BUFFERS * TX_BUFFER;

	u->buffers = aligned_alloc(4096, size);
	if (!u->buffers)
		return dp_fail(error, -ENOMEM, "out of memory");
	for (int i = 0; i < RX_MESSAGES; i++) {
		u->rx[i].data = u->buffers + (size_t)i * RX_BUFFER;
		prepare_message(u, i);
	}
	for (uint32_t i = 0; i < TX_BUFFERS; i++)
		u->free[i] = (uint16_t)(TX_BUFFERS - 1 - i);
	u->n_free = TX_BUFFERS;
	return 0;
}

static void udp_close(struct dp_port *port)
{
	struct udp_port *u = (struct udp_port *)port;

	if (u->port.fd >= 0)
		close(u->port.fd);
	if (u->fd >= 0)
		close(u->fd);
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

static int udp_resolve(struct dp_port *port, const struct dp_addr *peer, int timeout_ms,
		       uint32_t *path_id)
{
	struct udp_port *u = (struct udp_port *)port;
	struct udp_route r;
	int err;

	(void)timeout_ms; /* the kernel resolves while it sends */
	if (dp_addr_is_multicast(peer) || dp_addr_is_unspecified(peer))
		return -EINVAL;
	if (dp_addr_is_v4(peer) != dp_addr_is_v4(&port->info.addr))
		return -EAFNOSUPPORT;
	if (dp_peers_find(&u->peers, peer, path_id))
		return 0;
	r.to_len = dp_addr_to_sockaddr(peer, DP_ROCE_PORT, port->info.ifindex, &r.to);
	err = check_route(u, &r);
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

/* ---- transmit ------------------------------------------------------------------ */

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

static bool may_segment(const struct dp_packet *pkt)
{
	return pkt->len > DP_SLOT_BYTE && dp_op_is_ext(dp_bth_opcode(pkt->data));
}

/* How many packets from the first on make one send: all of one length, but a
 * shorter last one, to one path, TOS and process at the peer. */
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

/* The first message of a batch was refused. Returns how many of its packets
 * are done with (dropped): 0 means try again, now or later. */
static int refused(struct udp_port *u, int err, int packets)
{
	if ((err == EINVAL || err == EIO) && packets > 1) {
		/* no checksum offload, IPsec and the like: never again */
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

/* Sends up to DP_PORT_BATCH packets; returns how many are done with, -EAGAIN
 * when none could be sent for now. */
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

/* Sends what it can, frees those buffers, and returns how many packets. */
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

/* The poll descriptor tells of room to send while packets wait for it. */
static void update_poll(struct udp_port *u)
{
	bool want = u->n_pending;
	struct epoll_event e = { .events = want ? EPOLLIN | EPOLLOUT : EPOLLIN };

	if (want != u->polls_out && !epoll_ctl(u->port.fd, EPOLL_CTL_MOD, u->fd, &e))
		u->polls_out = want;
}

static void flush_pending(struct udp_port *u)
{
	uint32_t done = (uint32_t)send_packets(u, u->pending, (int)u->n_pending);

	for (uint32_t i = 0; i < done; i++)
		dp_peers_release(&u->peers, u->pending[i].path_id);
	u->n_pending -= done;
	memmove(u->pending, u->pending + done, u->n_pending * sizeof(u->pending[0]));
	update_poll(u);
}

static int udp_tx_reserve(struct dp_port *port, struct dp_packet *out, int max)
{
	struct udp_port *u = (struct udp_port *)port;
	uint8_t *area = u->buffers + (size_t)RX_MESSAGES * RX_BUFFER;
	int n = 0;

	if (u->n_pending)
		flush_pending(u);
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

static int udp_tx_commit(struct dp_port *port, const struct dp_packet *pkts, int n_used, int n)
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
		flush_pending(u);
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

/* ---- receive ------------------------------------------------------------------- */

static void read_control(struct msghdr *msg, struct rx_message *m)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		int value = 0;

		memcpy(&value, CMSG_DATA(c),
		       c->cmsg_len >= CMSG_LEN(sizeof(value)) ? sizeof(value) : 1);
		if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO)
			m->segment_len = (uint32_t)value;
		else if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) ||
			 (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS))
			m->tos = (uint8_t)value;
	}
}

static void receive_from_socket(struct udp_port *u)
{
	int n;

	u->port.stats.rx_wakeups++;
	n = recvmmsg(u->fd, u->rx_msgs, RX_MESSAGES, MSG_DONTWAIT, NULL);
	for (int i = 0; i < n; i++) {
		struct rx_message *m = &u->rx[i];

		m->len = m->segment_len = u->rx_msgs[i].msg_len;
		m->done = 0;
		m->tos = 0;
		m->handed_on = false;
		dp_addr_from_sockaddr(&u->rx_from[i].sa, &m->src);
		m->sport = ntohs(u->rx_from[i].v4.sin_port);
		read_control(&u->rx_msgs[i].msg_hdr, m);
		prepare_message(u, i);
	}
	u->n_rx = n > 0 ? (uint32_t)n : 0;
}

/* What another process got in our stead. */
static void receive_from_slot(struct udp_port *u)
{
	struct rx_message *m = &u->rx[0];
	struct dp_slot_header h;
	int n = dp_slot_receive(&u->slot, &h, m->data, RX_BUFFER);

	if (n <= 0)
		return;
	m->src = h.src;
	m->sport = h.sport;
	m->tos = h.tos;
	m->handed_on = true;
	m->len = (uint32_t)n;
	m->segment_len = h.segment_len;
	m->done = 0;
	u->n_rx = 1;
}

static inline uint32_t segment_len(const struct rx_message *m)
{
	uint32_t left = m->len - m->done;

	return left < m->segment_len ? left : m->segment_len;
}

static inline bool is_for(const struct rx_message *m, uint32_t at, uint32_t slot)
{
	return m->data[at + DP_SLOT_BYTE] == slot;
}

/* The next datagrams belong to another process: hands on all that follow one
 * another in this message.  False if nobody wants them; then they are ours, to
 * be counted as for an unknown QPN. */
static bool hand_on(struct udp_port *u, struct rx_message *m)
{
	struct dp_slot_header h = {
		.src = m->src,
		.sport = m->sport,
		.tos = m->tos,
		.segment_len = m->segment_len,
	};
	uint32_t owner = m->data[m->done + DP_SLOT_BYTE], end = m->done;
	uint64_t packets = 0;
	int err;

	while (end + DP_BTH_LEN <= m->len && is_for(m, end, owner)) {
		end += m->segment_len < m->len - end ? m->segment_len : m->len - end;
		packets++;
	}
	err = dp_slot_hand_on(&u->slot, owner, &h, m->data + m->done, end - m->done);
	if (err == -ECONNREFUSED)
		return false;
	if (err)
		u->port.stats.rx_dropped += packets;
	else
		u->port.stats.rx_misdirected += packets;
	m->done = end;
	return true;
}

/* The next datagram of a message to `out`; false: there is none for us. */
static bool next_packet(struct udp_port *u, struct rx_message *m, struct dp_packet *out)
{
	uint32_t len;

	for (;;) {
		len = segment_len(m);
		if (!len)
			return false;
		if (len < DP_BTH_LEN) {
			u->port.stats.rx_malformed++;
			m->done += len;
			continue;
		}
		if (m->handed_on || is_for(m, m->done, u->slot.number) || !hand_on(u, m))
			break;
	}
	out->src = m->src;
	out->dst = u->port.info.addr;
	out->sport = m->sport;
	out->ip_id = 0;
	out->tos = m->tos;
	out->flags = DP_PKT_IP_ID_UNKNOWN;
	out->data = m->data + m->done;
	out->len = len;
	out->frag = NULL;
	out->frag_len = 0;
	out->cookie = 0;
	m->done += len;
	u->port.stats.rx_bytes += len;
	return true;
}

static int udp_rx(struct dp_port *port, struct dp_packet *out, int max)
{
	struct udp_port *u = (struct udp_port *)port;
	int n = 0;

	if (u->n_pending)
		flush_pending(u);
	if (u->next_rx == u->n_rx) {
		u->next_rx = u->n_rx = 0;
		receive_from_socket(u);
		/* rare, and a system call: not each time */
		if (!u->n_rx && ++u->idle_rx % RX_TRIES_PER_SLOT_CHECK == 0)
			receive_from_slot(u);
	}
	while (n < max && u->next_rx < u->n_rx) {
		if (next_packet(u, &u->rx[u->next_rx], &out[n]))
			n++;
		else
			u->next_rx++;
	}
	port->stats.rx_packets += (uint32_t)n;
	return n;
}

/* Buffers are used again by the next udp_rx() that finds all packets taken. */
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
	.rx = udp_rx,
	.rx_release = udp_rx_release,
	.tx_reserve = udp_tx_reserve,
	.tx_commit = udp_tx_commit,
};
