// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Raw AF_XDP.  The program that steers frames to the socket is that of the AF_XDP port, so the
 * difference between this floor and the port is the work of port and engine in user space.
 *
 * A message that does not fit into a chunk takes two, as in the port.
 */
#include "floor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/addr.h"
#include "io/frame.h"
#include "io/netdev.h"
#include "io/route.h"
#include "io/steer.h"
#include "io/xsk.h"

enum {
	CHUNK = 4096,
	RX_CHUNKS = 4096,
	TX_BUFFERS = 1024,
	HEADROOM = 128, /* of a transmit buffer, for the headers of the frame */
	RING = 4096,
	FILL_RING = 2 * RX_CHUNKS, /* a frame is announced before its place is given back */
	SOCKET_BUFFER = 64 << 20,
	RESOLVE_MS = 2000,
	SOURCE_PORT = 49152,
	FLOOR_ERROR = 256, /* room for one line */
	BUSY_WAIT_MS = 500,
	BUSY_STEP_MS = 10,
};

struct floor_xdp {
	struct floor_socket base;
	struct xsk_ring_cons rx, comp;
	struct xsk_ring_prod tx, fill;
	struct xsk_umem *umem;
	struct xsk_socket *xsk;
	struct dp_steer *steer;
	struct dp_port_info info;
	struct dp_frame_template headers;
	uint8_t *area;
	uint32_t size;
	uint32_t next; /* transmit buffer; free-running */
	struct floor_carrier carrier;
};

static const size_t area_size = (size_t)(RX_CHUNKS + 2 * TX_BUFFERS) * CHUNK;

static uint64_t tx_buffer(uint32_t i)
{
	return (uint64_t)(RX_CHUNKS + 2 * (i % TX_BUFFERS)) * CHUNK;
}

/* ---- sending ---------------------------------------------------------------------- */

static uint32_t at_kernel(const struct floor_xdp *x)
{
	return *x->tx.producer - __atomic_load_n(x->tx.consumer, __ATOMIC_ACQUIRE);
}

static void reap(struct floor_xdp *x)
{
	uint32_t idx, n = xsk_ring_cons__peek(&x->comp, RING, &idx);

	if (n)
		xsk_ring_cons__release(&x->comp, n);
}

/* In copy mode each call sends as many frames as the kernel allows. */
static void kick(struct floor_xdp *x)
{
	uint32_t left = at_kernel(x), before;

	while (left && xsk_ring_prod__needs_wakeup(&x->tx)) {
		before = left;
		sendto(x->base.fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
		left = at_kernel(x);
		if (left == before)
			return;
	}
}

static uint32_t push(struct floor_xdp *x, uint32_t idx, const struct floor_message *m)
{
	uint64_t data = tx_buffer(x->next++) + HEADROOM;
	struct xdp_desc *d = xsk_ring_prod__tx_desc(&x->tx, idx);

	memcpy(x->area + data, m, sizeof(*m));
	floor_load(&x->carrier, x->area + data, x->size);
	*d = (struct xdp_desc){ .addr = data - x->headers.len, .len = x->headers.len + x->size };
	if (x->size <= CHUNK - HEADROOM)
		return 1;
	d->len = x->headers.len + CHUNK - HEADROOM;
	d->options = XDP_PKT_CONTD;
	*xsk_ring_prod__tx_desc(&x->tx, idx + 1) = (struct xdp_desc){
		.addr = data - HEADROOM + CHUNK,
		.len = x->size - (CHUNK - HEADROOM),
	};
	return 2;
}

/* A buffer is written again after TX_BUFFERS others, when the kernel has long copied it or, with
 * zero-copy, which completes in order, given it back. */
static int xdp_send(struct floor_socket *s, const struct floor_message *m, int n)
{
	struct floor_xdp *x = (struct floor_xdp *)s;
	uint32_t each = x->size > CHUNK - HEADROOM ? 2 : 1, idx, used = 0;

	reap(x);
	if (at_kernel(x) > TX_BUFFERS - FLOOR_BATCH ||
	    !xsk_ring_prod__reserve(&x->tx, each * (uint32_t)n, &idx)) {
		kick(x);
		return 0;
	}
	for (int i = 0; i < n; i++)
		used += push(x, idx + used, &m[i]);
	xsk_ring_prod__submit(&x->tx, used);
	kick(x);
	return n;
}

/* ---- receiving -------------------------------------------------------------------- */

static void give_back(struct floor_xdp *x, const uint64_t *addrs, uint32_t n)
{
	uint32_t idx;

	if (xsk_ring_prod__reserve(&x->fill, n, &idx) != n)
		floor_fail("the fill ring has no room for chunks that came from it");
	for (uint32_t i = 0; i < n; i++)
		*xsk_ring_prod__fill_addr(&x->fill, idx + i) = addrs[i];
	xsk_ring_prod__submit(&x->fill, n);
}

/* `rest` is the second descriptor of the frame, or NULL; false: it is no message. */
static bool read_message(struct floor_xdp *x, const struct xdp_desc *d, const struct xdp_desc *rest,
			 struct floor_message *m)
{
	uint8_t *at = x->area + d->addr + x->headers.len;

	if (d->len < x->headers.len + sizeof(*m))
		return false;
	memcpy(m, at, sizeof(*m));
	return m->magic == FLOOR_MAGIC &&
	       floor_unload(&x->carrier, at, d->len - x->headers.len,
			    rest ? x->area + rest->addr : NULL, rest ? rest->len : 0);
}

/* Whether the next descriptor is of the same frame. */
static bool goes_on(const struct floor_xdp *x, uint32_t idx)
{
	return xsk_ring_cons__rx_desc(&x->rx, idx)->options & XDP_PKT_CONTD;
}

static int xdp_receive(struct floor_socket *s, struct floor_message *out)
{
	struct floor_xdp *x = (struct floor_xdp *)s;
	uint64_t addrs[FLOOR_BATCH];
	const struct xdp_desc *d, *rest;
	uint32_t idx, n;
	int found = 0;

	n = xsk_ring_cons__peek(&x->rx, FLOOR_BATCH, &idx);
	for (; n && goes_on(x, idx + n - 1); n--)
		xsk_ring_cons__cancel(&x->rx, 1); /* its rest comes with the next call */
	for (uint32_t i = 0; i < n; i++) {
		d = xsk_ring_cons__rx_desc(&x->rx, idx + i);
		rest = goes_on(x, idx + i) ? xsk_ring_cons__rx_desc(&x->rx, idx + i + 1) : NULL;
		addrs[i] = d->addr & ~(uint64_t)(CHUNK - 1);
		for (; goes_on(x, idx + i); i++)
			addrs[i + 1] = xsk_ring_cons__rx_desc(&x->rx, idx + i + 1)->addr &
				       ~(uint64_t)(CHUNK - 1);
		found += read_message(x, d, rest, &out[found]);
	}
	if (n) {
		xsk_ring_cons__release(&x->rx, n);
		give_back(x, addrs, n);
	}
	if (xsk_ring_prod__needs_wakeup(&x->fill))
		recvfrom(x->base.fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
	return found;
}

/* ---- opening and closing ---------------------------------------------------------- */

static void xdp_close(struct floor_socket *s)
{
	struct floor_xdp *x = (struct floor_xdp *)s;

	dp_steer_detach(x->steer);
	xsk_socket__delete(x->xsk);
	xsk_umem__delete(x->umem);
	munmap(x->area, area_size);
	floor_carrier_close(&x->carrier);
	free(x);
}

static int try_bind(struct floor_xdp *x, uint16_t flags)
{
	const struct xsk_umem_config uc = { .fill_size = FILL_RING,
					    .comp_size = RING,
					    .frame_size = CHUNK };
	const struct xsk_socket_config sc = {
		.rx_size = RING,
		.tx_size = RING,
		.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD,
		.bind_flags = flags | XDP_USE_NEED_WAKEUP,
	};
	int err = xsk_umem__create(&x->umem, x->area, area_size, &x->fill, &x->comp, &uc);

	if (err)
		return err;
	err = xsk_socket__create(&x->xsk, x->info.netdev, 0, x->umem, &x->rx, &x->tx, &sc);
	if (err)
		xsk_umem__delete(x->umem);
	return err;
}

/* After a process has ended, the kernel needs a moment to free its queue. */
static int bind_in_time(struct floor_xdp *x, uint16_t flags)
{
	int err = try_bind(x, flags);

	for (int ms = 0; err == -EBUSY && ms < BUSY_WAIT_MS; ms += BUSY_STEP_MS) {
		usleep(BUSY_STEP_MS * 1000);
		err = try_bind(x, flags);
	}
	return err;
}

static void bind_best(struct floor_xdp *x)
{
	uint16_t sg = x->size > CHUNK - HEADROOM ? XDP_USE_SG : 0;
	int err = bind_in_time(x, XDP_ZEROCOPY | sg);

	if (err)
		err = bind_in_time(x, XDP_COPY | sg);
	if (err)
		floor_fail("cannot bind AF_XDP to %s: %s", x->info.netdev, strerror(-err));
}

static void tune(struct floor_xdp *x)
{
	int buffer = SOCKET_BUFFER, budget = RING;

	setsockopt(x->base.fd, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof(buffer));
	setsockopt(x->base.fd, SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &budget, sizeof(budget));
}

/* All frames are equal but for their struct floor_message, so the headers are written once. */
static void write_frames(struct floor_xdp *x)
{
	uint32_t idx;

	for (uint32_t i = 0; i < TX_BUFFERS; i++) {
		struct dp_packet packet = {
			.data = x->area + tx_buffer(i) + HEADROOM,
			.len = x->size,
			.sport = SOURCE_PORT,
		};

		dp_frame_write(&x->headers, &packet);
	}
	if (xsk_ring_prod__reserve(&x->fill, RX_CHUNKS, &idx) != RX_CHUNKS)
		floor_fail("the fill ring is too small");
	for (uint32_t i = 0; i < RX_CHUNKS; i++)
		*xsk_ring_prod__fill_addr(&x->fill, idx + i) = (uint64_t)i * CHUNK;
	xsk_ring_prod__submit(&x->fill, RX_CHUNKS);
}

static void find_peer(struct floor_xdp *x, const struct floor_setup *setup)
{
	char text[FLOOR_ERROR] = "";
	struct dp_error why = { text, sizeof(text) };
	struct dp_addr local, peer;
	uint8_t mac[6];
	int err;

	if (dp_netdev_query(setup->netdev, &x->info, &why))
		floor_fail("%s", text);
	if (dp_addr_parse(setup->local, &local) || dp_addr_parse(setup->peer, &peer))
		floor_fail("%s and %s have to be addresses", setup->local, setup->peer);
	if (dp_netdev_address(setup->netdev, &local, &x->info.addr, &why))
		floor_fail("%s", text);
	for (int waited_ms = 0;; waited_ms++) {
		err = dp_route_resolve(x->info.ifindex, &local, &peer, mac);
		if (err != -EAGAIN || waited_ms == RESOLVE_MS)
			break;
		usleep(1000);
	}
	if (err)
		floor_fail("no way to %s through %s: %s", setup->peer, setup->netdev,
			   strerror(-err));
	dp_frame_template(&x->headers, mac, x->info.mac, &peer, &local);
}

struct floor_socket *floor_xdp_open(const struct floor_setup *setup)
{
	struct floor_xdp *x = calloc(1, sizeof(*x));
	char text[FLOOR_ERROR] = "";
	struct dp_error why = { text, sizeof(text) };
	struct dp_steer_sockets sockets = { .n = 1, .fds = &x->base.fd };

	if (!x)
		floor_fail("out of memory");
	x->base.ops = &floor_xdp_ops;
	x->size = setup->size;
	if (setup->carries && x->size > FLOOR_XDP_CARRIED_MAX)
		floor_fail("a message carried has %d bytes at most", FLOOR_XDP_CARRIED_MAX);
	floor_carrier_open(&x->carrier, setup);
	x->carrier.out.sport = x->carrier.in.sport = SOURCE_PORT;
	find_peer(x, setup);
	x->area = mmap(NULL, area_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (x->area == MAP_FAILED)
		floor_fail("no memory for packet buffers: %s", strerror(errno));
	madvise(x->area, area_size, MADV_HUGEPAGE);
	bind_best(x);
	x->base.fd = xsk_socket__fd(x->xsk);
	tune(x);
	write_frames(x);
	if (dp_steer_attach(&x->info, &sockets, false, &x->steer, &why))
		floor_fail("%s", text);
	return &x->base;
}

const struct floor_ops floor_xdp_ops = {
	.size_max = FLOOR_XDP_SIZE_MAX,
	.send = xdp_send,
	.receive = xdp_receive,
	.close = xdp_close,
};
