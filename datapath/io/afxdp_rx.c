// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The AF_XDP port receives: the queues of the device take turns. */
#include "io/afxdp.h"

#include <sys/socket.h>

#include "posix/clock.h"

static void recycle(struct afxdp_queue *q, const uint64_t *addrs, uint32_t n)
{
	uint32_t idx;

	if (!n)
		return;
	/* the ring has more places than there are chunks */
	if (!xsk_ring_prod__reserve(&q->fill, n, &idx))
		assert(!"fill ring is full");
	for (uint32_t i = 0; i < n; i++)
		*xsk_ring_prod__fill_addr(&q->fill, idx + i) = addrs[i];
	xsk_ring_prod__submit(&q->fill, n);
}

/* The descriptors of one packet, from ring index idx on; 0: not all there. */
static uint32_t count_descs(const struct afxdp_queue *q, uint32_t idx, uint32_t avail,
			    uint32_t *bytes)
{
	*bytes = 0;
	for (uint32_t i = 0; i < avail; i++) {
		const struct xdp_desc *d = xsk_ring_cons__rx_desc(&q->rx, idx + i);

		*bytes += d->len;
		if (!(d->options & XDP_PKT_CONTD))
			return i + 1;
	}
	return 0;
}

static uint8_t *frame_of(const struct afxdp *a, const struct afxdp_queue *q, uint32_t idx)
{
	return a->umem_area + xsk_ring_cons__rx_desc(&q->rx, idx)->addr;
}

/* Hands a packet of n descriptors and `total` bytes to `out`; false: the packet is not for the
 * engine. */
static bool take_packet(const struct afxdp *a, const struct afxdp_queue *q, uint32_t idx,
			uint32_t n, uint32_t total, struct dp_packet *out)
{
	const struct xdp_desc *d = xsk_ring_cons__rx_desc(&q->rx, idx), *d2;
	uint8_t *frame = frame_of(a, q, idx);
	uint32_t in_first;

	if (n > 2 || (n == 2 && d->len < RX_FIRST_MIN))
		return false;
	if (dp_frame_read(frame, d->len, total, out))
		return false;
	out->flags = 0;
	out->frag = NULL;
	out->frag_len = 0;
	out->cookie = d->addr / CHUNK;
	dp_steer_times(a->steer, frame, out);
	in_first = d->len - (uint32_t)(out->data - frame);
	if (n == 1)
		return true;
	d2 = xsk_ring_cons__rx_desc(&q->rx, idx + 1);
	out->cookie |= (d2->addr / CHUNK + 1) << 32;
	if (out->len > in_first) {
		out->frag = a->umem_area + d2->addr;
		out->frag_len = out->len - in_first;
		out->len = in_first;
	}
	return true;
}

static void drop_packet(struct afxdp *a, struct afxdp_queue *q, uint32_t idx, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t addr = xsk_ring_cons__rx_desc(&q->rx, idx + i)->addr;

		addr &= ~(uint64_t)(CHUNK - 1);
		recycle(q, &addr, 1);
	}
	a->port.stats.rx_malformed++;
}

/*
 * The kernel uses chunks in the order of the fill ring.  So the place of a packet is known before
 * its descriptor is read, and its time and headers can come from the other core's cache together
 * with the descriptor, not after it.  This is only a hint: with a driver that uses another order it
 * is useless, but does no harm.
 */
static inline void prefetch_packet(const struct afxdp *a, const struct afxdp_queue *q, uint32_t idx)
{
	const uint64_t *addrs = q->fill.ring;
	const uint8_t *frame = a->umem_area + addrs[idx & q->fill.mask] + XDP_PACKET_HEADROOM;

	for (int at = -CACHE_LINE; at < RX_HEADERS; at += CACHE_LINE)
		__builtin_prefetch(frame + at);
}

/* A frame that came before its date (xdp/steer.h) stays in the ring until then. */
static bool is_early(struct afxdp *a, const struct dp_packet *p)
{
	uint64_t held_ns = a->port.held_ns;

	if (!a->dated || p->arrived_ns <= a->seen_ns)
		return false;
	a->seen_ns = dp_now_ns();
	if (p->arrived_ns <= a->seen_ns)
		return false;
	a->port.stats.rx_early++;
	if (!held_ns || p->arrived_ns < held_ns)
		__atomic_store_n(&a->port.held_ns, p->arrived_ns, __ATOMIC_RELAXED);
	return true;
}

static int rx_ring(struct afxdp *a, struct afxdp_queue *q, struct dp_packet *out, int max)
{
	uint32_t idx, used = 0, avail, total;
	int n = 0;

	avail = xsk_ring_cons__peek(&q->rx, 2 * (uint32_t)max + RX_DESCS_MAX, &idx);
	if (avail)
		prefetch_packet(a, q, idx);
	while (used < avail && n < max) {
		uint32_t descs = count_descs(q, idx + used, avail - used, &total);

		if (!descs)
			break;
		if (take_packet(a, q, idx + used, descs, total, &out[n])) {
			if (is_early(a, &out[n]))
				break;
			dp_steer_forget_times(frame_of(a, q, idx + used));
			a->port.stats.rx_bytes += out[n].len + out[n].frag_len;
			a->port.stats.rx_untimed += !out[n].arrived_ns;
			n++;
		} else {
			drop_packet(a, q, idx + used, descs);
		}
		used += descs;
	}
	xsk_ring_cons__cancel(&q->rx, avail - used);
	if (used)
		xsk_ring_cons__release(&q->rx, used);
	a->port.stats.rx_packets += (uint32_t)n;
	return n;
}

/* Runs the driver in this thread when the driver waits for a sign that the fill ring has chunks
 * again, or when busy polling is on and the queue is empty. */
static void rx_wakeup(struct afxdp *a, const struct afxdp_queue *q)
{
	a->port.stats.rx_wakeups++;
	recvfrom(q->fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
}

static int rx_queue(struct afxdp *a, struct afxdp_queue *q, struct dp_packet *out, int max)
{
	int n = rx_ring(a, q, out, max);

	if (xsk_ring_prod__needs_wakeup(&q->fill)) {
		rx_wakeup(a, q);
	} else if (!n && a->busy_poll) {
		rx_wakeup(a, q);
		n = rx_ring(a, q, out, max);
	}
	return n;
}

/* The queue after the last one that was looked at is the first of the next call, so that a full
 * queue does not keep others waiting. */
int dp_afxdp_rx_queues(struct afxdp *a, struct dp_packet *out, int max)
{
	int n = 0;

	if (a->port.held_ns) {
		a->seen_ns = dp_now_ns();
		if (a->seen_ns < a->port.held_ns)
			return 0;
		__atomic_store_n(&a->port.held_ns, 0, __ATOMIC_RELAXED);
	}
	for (uint32_t i = 0; i < a->n_queues && n < max; i++) {
		n += rx_queue(a, &a->queues[a->next_queue], out + n, max - n);
		if (++a->next_queue == a->n_queues)
			a->next_queue = 0;
	}
	return n;
}

/* The consumers are moved by whoever has the lock. */
bool dp_afxdp_has_packets(const struct dp_port *port)
{
	const struct afxdp *a = (const struct afxdp *)port;
	uint64_t held_ns = dp_port_held_until(port);

	if (held_ns && dp_now_ns() < held_ns)
		return false;
	for (uint32_t i = 0; i < a->n_queues; i++) {
		const struct xsk_ring_cons *rx = &a->queues[i].rx;

		if (__atomic_load_n(rx->producer, __ATOMIC_ACQUIRE) !=
		    __atomic_load_n(rx->consumer, __ATOMIC_RELAXED))
			return true;
	}
	return false;
}

/* Packets of one queue in a row go back together. */
void dp_afxdp_rx_release(struct dp_port *port, const struct dp_packet *pkts, int n)
{
	struct afxdp *a = (struct afxdp *)port;
	struct afxdp_queue *q = &a->queues[0];
	uint64_t addrs[2 * DP_PORT_BATCH];
	uint32_t used = 0;

	for (int i = 0; i < n; i++) {
		uint64_t cookie = pkts[i].cookie;
		struct afxdp_queue *of;

		if (cookie & COOKIE_LOOP) {
			a->free[a->n_free++] = (uint16_t)cookie;
			continue;
		}
		if (cookie & COOKIE_ASIDE)
			continue;
		of = queue_of_chunk(a, (uint32_t)cookie);
		if (of != q || used >= 2 * DP_PORT_BATCH - 1) {
			recycle(q, addrs, used);
			used = 0;
			q = of;
		}
		addrs[used++] = (cookie & UINT32_MAX) * CHUNK;
		if (cookie >> 32)
			addrs[used++] = ((cookie >> 32) - 1) * CHUNK;
	}
	recycle(q, addrs, used);
}
