// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <errno.h>
#include <string.h>
#include <time.h>

#include "io/udp_impl.h"
#include "wire/mad.h"

enum { MAD_PACKET = DP_MAD_AT + DP_MAD_LEN + DP_ICRC_LEN };

void dp_udp_rx_prepare(struct udp_port *u, int i)
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

static uint64_t read_stamp(struct dp_wall_clock *clock, const struct cmsghdr *c)
{
	struct timespec ts;

	memcpy(&ts, CMSG_DATA(c), sizeof(ts));
	return dp_wall_to_monotonic(clock, (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec);
}

static void read_control(struct udp_port *u, struct msghdr *msg, struct rx_message *m)
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
		struct rx_message *m = &u->rx[i];

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

/* Takes packets for this process that another process received. */
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
	m->arrived_ns = h.arrived_ns;
	m->for_us = true;
	m->dst = u->port.info.addr;
	m->len = (uint32_t)n;
	m->segment_len = h.segment_len;
	m->done = 0;
	u->n_rx = 1;
}

/* Other processes, and groups. */
static void receive_from_others(struct udp_port *u)
{
	receive_from_slot(u);
	for (uint32_t i = 0; !u->n_rx && i < u->groups.n; i++)
		receive_from_socket(u, u->groups.at[i].fd, &u->groups.at[i].addr, true);
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

/* The next datagrams of this message belong to another process: hands on as many as follow each
 * other.  False: no process wants them.  Then they stay here and count as packets for an unknown
 * QPN. */
static bool hand_on(struct udp_port *u, struct rx_message *m)
{
	struct dp_slot_header h = {
		.src = m->src,
		.sport = m->sport,
		.tos = m->tos,
		.segment_len = m->segment_len,
		.arrived_ns = m->arrived_ns,
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

/* The next datagram is a management datagram, and another process may have the service or the
 * connection that it is for.  True: that process has got it. */
static bool hand_on_mad(struct udp_port *u, struct rx_message *m, uint32_t len)
{
	const uint8_t *packet = m->data + m->done;
	struct dp_slot_header h = {
		.src = m->src,
		.sport = m->sport,
		.tos = m->tos,
		.segment_len = len,
		.arrived_ns = m->arrived_ns,
	};
	struct dp_cm_target target;
	uint32_t owner;
	int err;

	if (len != MAD_PACKET || dp_cm_target(packet + DP_MAD_AT, DP_MAD_LEN, &target))
		return false;
	owner = target.id >> (32 - DP_CM_PREFIX_BITS);
	if (target.is_service ? dp_slot_serves(&u->slot, target.service_id) :
				owner == u->slot.number)
		return false;
	err = target.is_service ?
		      dp_slot_hand_on_request(&u->slot, target.service_id, &h, packet, len) :
		      dp_slot_hand_on(&u->slot, owner, &h, packet, len);
	if (err == -ECONNREFUSED)
		return false;
	if (err)
		u->port.stats.rx_dropped++;
	else
		u->port.stats.rx_misdirected++;
	m->done += len;
	return true;
}

/* Hands the next datagram of a message to `out`; false: none is left for this process. */
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
		if (m->for_us)
			break;
		if (dp_bth_dest_qpn(m->data + m->done) == DP_MAD_QPN) {
			if (!hand_on_mad(u, m, len))
				break;
		} else if (is_for(m, m->done, u->slot.number) || !hand_on(u, m)) {
			break;
		}
	}
	out->src = m->src;
	out->dst = m->dst;
	out->sport = m->sport;
	out->ip_id = 0;
	out->tos = m->tos;
	out->flags = DP_PKT_IP_ID_UNKNOWN;
	out->data = m->data + m->done;
	out->len = len;
	out->frag = NULL;
	out->frag_len = 0;
	out->cookie = 0;
	out->arrived_ns = m->arrived_ns;
	out->late_ns = 0;
	m->done += len;
	u->port.stats.rx_bytes += len;
	u->port.stats.rx_untimed += !out->arrived_ns;
	return true;
}

int dp_udp_rx(struct dp_port *port, struct dp_packet *out, int max)
{
	struct udp_port *u = (struct udp_port *)port;
	int n = 0;

	if (u->n_pending)
		dp_udp_flush_pending(u);
	if (u->next_rx == u->n_rx) {
		u->next_rx = u->n_rx = 0;
		receive_from_socket(u, u->fd, &port->info.addr, false);
		/* a system call for something rare: not each time */
		if (!u->n_rx && ++u->idle_rx % RX_TRIES_PER_SLOT_CHECK == 0)
			receive_from_others(u);
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
