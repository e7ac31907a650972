// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Routes of the AF_XDP port, its packets to the network and those to itself; afxdp.h tells how its
 * memory is laid out. */
#include "io/afxdp.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/addr.h"
#include "io/route.h"
#include "io/udp.h"

/* ---- routes --------------------------------------------------------------- */

static int find_link_address(const struct afxdp *a, const struct afxdp_route *r,
			     const struct dp_addr *peer, uint8_t mac[6])
{
	const struct dp_port_info *info = &a->port.info;

	memset(mac, 0, 6);
	if (r->group)
		dp_group_mac(peer, mac);
	return r->self || r->group ? 0 : dp_route_resolve(info->ifindex, &info->addr, peer, mac);
}

static int afxdp_resolve(struct dp_port *port, const struct dp_addr *peer, uint32_t *path_id)
{
	struct afxdp *a = (struct afxdp *)port;
	const struct dp_port_info *info = &port->info;
	struct afxdp_route r = {
		.self = dp_addr_equal(peer, &info->addr),
		.group = dp_addr_is_group(peer),
	};
	uint8_t mac[6];
	int err;

	if (!dp_addr_is_peer(peer))
		return -EINVAL;
	if (dp_addr_is_v4(peer) != dp_addr_is_v4(&info->addr))
		return -EAFNOSUPPORT;
	/* A peer's link address is kept as long as a QP or an address handle uses the peer, unless
	 * afxdp_refresh() finds another one. */
	if (dp_peers_find(&a->peers, peer, path_id))
		return 0;
	if (dp_addr_is_loopback(peer) && !r.self)
		return -ENETUNREACH;
	err = find_link_address(a, &r, peer, mac);
	if (!err)
		err = dp_peers_add(&a->peers, peer, path_id);
	if (err)
		return err;
	dp_frame_template(&r.frame, mac, info->mac, peer, &info->addr);
	a->routes[*path_id] = r;
	return 0;
}

static void afxdp_release(struct dp_port *port, uint32_t path_id)
{
	dp_peers_release(&((struct afxdp *)port)->peers, path_id);
}

static int afxdp_refresh(struct dp_port *port, uint32_t path_id)
{
	struct afxdp *a = (struct afxdp *)port;
	const struct dp_addr *peer = &a->peers.at[path_id].addr;
	struct afxdp_route *r = &a->routes[path_id];
	uint8_t mac[6];
	int err = find_link_address(a, r, peer, mac);

	if (!err)
		dp_frame_template(&r->frame, mac, port->info.mac, peer, &port->info.addr);
	return err;
}

static int afxdp_join(struct dp_port *port, const struct dp_addr *group)
{
	struct afxdp *a = (struct afxdp *)port;

	/* The steering program takes the packets, so the socket only says that we want them. */
	return dp_groups_join(&a->groups, group, port->info.ifindex, dp_group_socket, NULL);
}

static void afxdp_leave(struct dp_port *port, const struct dp_addr *group)
{
	dp_groups_leave(&((struct afxdp *)port)->groups, group);
}

/* If the port has all queues, all requests come here, and the name only keeps others from the
 * service. */
static int afxdp_serve(struct dp_port *port, uint64_t service_id)
{
	struct afxdp *a = (struct afxdp *)port;

	if (a->aside)
		return dp_port_serve(a->aside, service_id);
	a->names.addr = port->info.addr;
	return dp_slot_serve(&a->names, service_id);
}

static void afxdp_unserve(struct dp_port *port, uint64_t service_id)
{
	struct afxdp *a = (struct afxdp *)port;

	if (a->aside)
		dp_port_unserve(a->aside, service_id);
	else
		dp_slot_unserve(&a->names, service_id);
}

/* ---- waking ---------------------------------------------------------------- */

/* Makes the poll descriptor readable while rx() has work that no arriving packet announces: packets
 * to ourselves wait, or a kick must be tried again. */
static void update_wake(struct afxdp *a)
{
	bool want = a->loop_head != a->loop_tail || (a->tx_pending && !a->tx_down);
	uint64_t count = 1;
	ssize_t n;

	if (want == a->wake_set)
		return;
	n = want ? write(a->wake_fd, &count, sizeof(count)) :
		   read(a->wake_fd, &count, sizeof(count));
	if (n == sizeof(count))
		a->wake_set = want;
}

static inline uint32_t tx_at_kernel(const struct afxdp *a)
{
	return *a->tx.producer - __atomic_load_n(a->tx.consumer, __ATOMIC_ACQUIRE);
}

/*
 * Makes the kernel send the packets in the ring.  In copy mode the call itself does
 * the work, for a limited number of packets; it is repeated while it makes
 * progress.  The next call of rx(), reserve() or commit() tries the remaining
 * packets again (no buffer, device busy or down).
 */
static void kick(struct afxdp *a)
{
	uint32_t left = tx_at_kernel(a), before;

	a->tx_pending = a->tx_down = false;
	while (left && xsk_ring_prod__needs_wakeup(&a->tx)) {
		before = left;
		a->port.stats.tx_wakeups++;
		if (sendto(a->queues[0].fd, NULL, 0, MSG_DONTWAIT, NULL, 0) >= 0) {
			if (a->zero_copy)
				return;
		} else if (errno == ENETDOWN || errno == ENXIO) {
			a->tx_down = true;
		}
		left = tx_at_kernel(a);
		if (left == before)
			break;
	}
	a->tx_pending = left && xsk_ring_prod__needs_wakeup(&a->tx);
}

static void retry_kick(struct afxdp *a)
{
	kick(a);
	update_wake(a);
}

/* ---- receive --------------------------------------------------------------- */

/* Takes packets to ourselves: they lie in transmit buffers and crossed no network. */
static int rx_loop(struct afxdp *a, struct dp_packet *out, int max)
{
	int n = 0;

	while (n < max && a->loop_head != a->loop_tail) {
		out[n] = a->loop[a->loop_head++ % TX_BUFFERS];
		if (a->aside && dp_afxdp_hand_on(a, &out[n]))
			dp_afxdp_rx_release(&a->port, &out[n], 1);
		else
			n++;
	}
	a->port.stats.rx_packets += (uint32_t)n;
	for (int i = 0; i < n; i++)
		a->port.stats.rx_bytes += out[i].len;
	return n;
}

static int afxdp_rx(struct dp_port *port, struct dp_packet *out, int max)
{
	struct afxdp *a = (struct afxdp *)port;
	int n = 0;

	if (a->tx_pending)
		retry_kick(a);
	/* a system call for something rare: not each time, but also under load */
	if (a->aside && ++a->busy_rx % DP_UDP_RX_BUSY == 0)
		n = dp_afxdp_rx_aside(a, out, max);
	if (a->loop_head != a->loop_tail) {
		n += rx_loop(a, out + n, max - n);
		update_wake(a);
	}
	n += dp_afxdp_rx_queues(a, out + n, max - n);
	if (n || !a->aside || (!a->aside_has_more && ++a->idle_rx % DP_UDP_RX_TRIES))
		return n;
	return dp_afxdp_rx_aside(a, out, max);
}

/* ---- transmit --------------------------------------------------------------- */

static void reap_completions(struct afxdp *a)
{
	struct xsk_ring_cons *comp = &a->queues[0].comp;
	uint32_t idx, n = xsk_ring_cons__peek(comp, COMP_RING, &idx);

	for (uint32_t i = 0; i < n; i++) {
		uint64_t addr = *xsk_ring_cons__comp_addr(comp, idx + i);
		uint32_t buffer = (uint32_t)(addr / TX_BUFFER);

		assert(buffer < TX_BUFFERS && a->tx_parts[buffer]);
		if (!--a->tx_parts[buffer])
			a->free[a->n_free++] = (uint16_t)buffer;
	}
	if (n)
		xsk_ring_cons__release(comp, n);
}

static int afxdp_tx_reserve(struct dp_port *port, struct dp_packet *out, int max)
{
	struct afxdp *a = (struct afxdp *)port;
	int n = 0;

	if (a->n_free < (uint32_t)max && a->tx_pending)
		retry_kick(a);
	/* Done each time, even if buffers are left: the buffer that was just sent is still in the
	 * cache. */
	reap_completions(a);
	while (n < max && a->n_free) {
		uint32_t buffer = a->free[--a->n_free];

		out[n].data = a->umem_area + tx_buffer_addr(buffer) + TX_HEADROOM;
		out[n].cap = TX_BUFFER - TX_HEADROOM;
		out[n].cookie = buffer;
		n++;
	}
	if (!n)
		a->port.stats.tx_full++;
	return n;
}

static void loop_packet(struct afxdp *a, const struct dp_packet *pkt)
{
	struct dp_packet *to = &a->loop[a->loop_tail++ % TX_BUFFERS];

	*to = *pkt;
	to->src = a->port.info.addr;
	to->dst = a->peers.at[pkt->path_id].addr;
	to->ip_id = 0;
	to->flags = 0;
	to->frag = NULL;
	to->frag_len = 0;
	to->cookie |= COOKIE_LOOP;
	to->arrived_ns = 0;
	to->late_ns = 0;
}

/* A packet to a group that this host is in: it leaves, and a copy stays. */
static void loop_copy(struct afxdp *a, const struct dp_packet *pkt)
{
	struct dp_packet copy = *pkt;

	if (!dp_groups_find(&a->groups, &a->peers.at[pkt->path_id].addr))
		return;
	if (!a->n_free) {
		a->port.stats.tx_full++;
		return;
	}
	copy.cookie = a->free[--a->n_free];
	copy.data = a->umem_area + tx_buffer_addr((uint32_t)copy.cookie) + TX_HEADROOM;
	memcpy(copy.data, pkt->data, pkt->len);
	loop_packet(a, &copy);
}

static inline bool crosses_chunk(const struct dp_packet *pkt)
{
	return pkt->len > CHUNK - TX_HEADROOM;
}

/* Writes the one or two descriptors of a packet at ring index idx. */
static void push_packet(struct afxdp *a, uint32_t idx, const struct dp_packet *pkt)
{
	const struct dp_frame_template *t = &a->routes[pkt->path_id].frame;
	struct xdp_desc *d = xsk_ring_prod__tx_desc(&a->tx, idx);
	uint32_t buffer = (uint32_t)pkt->cookie, total = t->len + pkt->len;

	dp_frame_write(t, pkt);
	a->tx_parts[buffer] = 1;
	d->addr = tx_buffer_addr(buffer) + TX_HEADROOM - t->len;
	d->len = total;
	d->options = 0;
	if (!crosses_chunk(pkt))
		return;
	a->tx_parts[buffer] = 2;
	d->len = CHUNK - TX_HEADROOM + t->len;
	d->options = XDP_PKT_CONTD;
	total -= d->len;
	d = xsk_ring_prod__tx_desc(&a->tx, idx + 1);
	d->addr = tx_buffer_addr(buffer) + CHUNK;
	d->len = total;
	d->options = 0;
}

/* Writes packets to the ring, and packets to ourselves to the loop. */
static void push_packets(struct afxdp *a, const struct dp_packet *pkts, int n)
{
	uint32_t idx = 0, descs = 0;

	for (int i = 0; i < n; i++) {
		assert(dp_peers_has(&a->peers, pkts[i].path_id) && pkts[i].len <= pkts[i].cap);
		a->port.stats.tx_bytes += pkts[i].len;
		if (a->routes[pkts[i].path_id].self) {
			loop_packet(a, &pkts[i]);
			continue;
		}
		descs += 1 + crosses_chunk(&pkts[i]);
		if (a->routes[pkts[i].path_id].group)
			loop_copy(a, &pkts[i]);
	}
	a->port.stats.tx_packets += (uint32_t)n;
	if (!descs)
		return;
	/* the ring has more places than buffers have chunks */
	if (!xsk_ring_prod__reserve(&a->tx, descs, &idx))
		assert(!"transmit ring is full");
	for (int i = 0; i < n; i++) {
		if (a->routes[pkts[i].path_id].self)
			continue;
		push_packet(a, idx, &pkts[i]);
		idx += 1 + crosses_chunk(&pkts[i]);
	}
	xsk_ring_prod__submit(&a->tx, descs);
	a->tx_pending = true;
}

static int afxdp_tx_commit(struct dp_port *port, const struct dp_packet *pkts, int n_used, int n)
{
	struct afxdp *a = (struct afxdp *)port;

	for (int i = n - 1; i >= n_used; i--)
		a->free[a->n_free++] = (uint16_t)pkts[i].cookie;
	push_packets(a, pkts, n_used);
	if (a->tx_pending)
		kick(a);
	update_wake(a);
	return 0;
}

const struct dp_port_ops dp_afxdp_ops = {
	.kind = "afxdp",
	.open = dp_afxdp_open,
	.close = dp_afxdp_close,
	.stats = dp_afxdp_stats,
	.resolve = afxdp_resolve,
	.release = afxdp_release,
	.refresh = afxdp_refresh,
	.join = afxdp_join,
	.leave = afxdp_leave,
	.has_packets = dp_afxdp_has_packets,
	.rx = afxdp_rx,
	.rx_release = dp_afxdp_rx_release,
	.tx_reserve = afxdp_tx_reserve,
	.tx_commit = afxdp_tx_commit,
	.serve = afxdp_serve,
	.unserve = afxdp_unserve,
};
