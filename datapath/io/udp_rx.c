// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <errno.h>
#include <string.h>
#include <time.h>

#include "io/udp_impl.h"

void dp_udp_rx_prepare(struct udp_port *u, int i)
{
	u->rx_iov[i] = (struct iovec){ u->rx[i].data, DP_RUN_MAX };
	u->rx_msgs[i].msg_hdr = (struct msghdr){
		.msg_name = &u->rx_from[i],
		.msg_namelen = sizeof(u->rx_from[i]),
		.msg_iov = &u->rx_iov[i],
		.msg_iovlen = 1,
		.msg_control = &u->rx_control[i],
		.msg_controllen = sizeof(u->rx_control[i]),
	};
}

static uint64_t read_stamp(struct dp_wall_clock *clock, const struct cmsghdr *c)
{
	struct timespec ts;

	memcpy(&ts, CMSG_DATA(c), sizeof(ts));
	return dp_wall_to_monotonic(clock, (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec);
}

static void read_control(struct udp_port *u, struct msghdr *msg, struct dp_run *m)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		int value = 0;

		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
			m->arrived_ns = read_stamp(&u->wall_clock, c);
			continue;
		}
		memcpy(&value, CMSG_DATA(c),
		       c->cmsg_len >= CMSG_LEN(sizeof(value)) ? sizeof(value) : 1);
		if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO)
			m->segment_len = (uint32_t)value;
		else if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) ||
			 (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS))
			m->tos = (uint8_t)value;
	}
}

/* Packets that have come for `dst`: the port's address, or a group. */
static void receive_from_socket(struct udp_port *u, int fd, const struct dp_addr *dst, bool for_us)
{
	int n;

	u->port.stats.rx_wakeups++;
	n = recvmmsg(fd, u->rx_msgs, RX_MESSAGES, MSG_DONTWAIT, NULL);
	for (int i = 0; i < n; i++) {
		struct dp_run *m = &u->rx[i];

		m->len = m->segment_len = u->rx_msgs[i].msg_len;
		m->done = 0;
		m->tos = 0;
		m->arrived_ns = 0;
		m->for_us = for_us;
		m->dst = *dst;
		dp_addr_from_sockaddr(&u->rx_from[i].sa, &m->src);
		m->sport = ntohs(u->rx_from[i].v4.sin_port);
		read_control(u, &u->rx_msgs[i].msg_hdr, m);
		dp_udp_rx_prepare(u, i);
	}
	u->n_rx = n > 0 ? (uint32_t)n : 0;
}

/* Other processes, and groups.  The source after the last one that was looked at is the first of the
 * next call, so that one which always has packets does not keep others waiting. */
static void receive_from_others(struct udp_port *u)
{
	uint32_t sources = 1 + u->groups.n;

	for (uint32_t i = 0; i < sources && !u->n_rx; i++) {
		uint32_t source = u->next_other++ % sources;
		const struct dp_group *group = source ? &u->groups.at[source - 1] : NULL;

		if (group)
			receive_from_socket(u, group->fd, &group->addr, true);
		else
			u->n_rx = dp_run_receive(&u->rx[0], &u->slot);
	}
}

int dp_udp_rx(struct dp_port *port, struct dp_packet *out, int max)
{
	struct udp_port *u = (struct udp_port *)port;
	int n = 0;

	if (u->n_pending)
		dp_udp_flush_pending(u);
	if (u->next_rx == u->n_rx) {
		u->next_rx = u->n_rx = 0;
		/* a system call for something rare: not each time, but also under load */
		if (++u->busy_rx % DP_UDP_RX_BUSY == 0)
			receive_from_others(u);
		if (!u->n_rx)
			receive_from_socket(u, u->fd, &port->info.addr, false);
		if (!u->n_rx && ++u->idle_rx % DP_UDP_RX_TRIES == 0)
			receive_from_others(u);
	}
	while (n < max && u->next_rx < u->n_rx) {
		if (dp_run_next(&u->rx[u->next_rx], &u->slot, &port->stats, &out[n]))
			n++;
		else
			u->next_rx++;
	}
	port->stats.rx_packets += (uint32_t)n;
	return n;
}
