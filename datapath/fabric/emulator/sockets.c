// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/emulator/emulator.h"
#include "xdp/fabric.h"

#include "fabric.skel.h"

/* The kernel headers may be older than Linux 6.17 and 6.6. */
#ifndef XDP_MAX_TX_SKB_BUDGET
#define XDP_MAX_TX_SKB_BUDGET 9
#endif
#ifndef XDP_USE_SG
#define XDP_USE_SG (1 << 4)
#endif

enum { SEND_BUFFER = 256 << 20 };

/* ---- chunks ----------------------------------------------------------------- */

uint32_t chunk_get(struct emulator *e)
{
	uint32_t i = e->free;

	if (i != NO_CHUNK) {
		e->free = e->chunk[i].next;
		e->n_free--;
	}
	return i;
}

void chunks_put(struct emulator *e, uint32_t first)
{
	uint32_t next;

	for (; first != NO_CHUNK; first = next) {
		next = e->chunk[first].next;
		e->chunk[first].next = e->free;
		e->free = first;
		e->n_free++;
	}
}

static void refill(struct emulator *e, struct port *p)
{
	uint32_t want = e->fill_target - p->filled, idx, i;

	if (want < e->fill_target / 8)
		return;
	if (want > e->n_free)
		want = e->n_free;
	if (!want || !xsk_ring_prod__reserve(&p->fill, want, &idx))
		return;
	for (uint32_t n = 0; n < want; n++) {
		i = chunk_get(e);
		*xsk_ring_prod__fill_addr(&p->fill, idx + n) = (uint64_t)i * CHUNK;
	}
	xsk_ring_prod__submit(&p->fill, want);
	p->filled += want;
}

static void reap(struct emulator *e, struct port *p)
{
	uint32_t idx, n = xsk_ring_cons__peek(&p->comp, RING, &idx);

	for (uint32_t k = 0; k < n; k++) {
		uint32_t i = (uint32_t)(*xsk_ring_cons__comp_addr(&p->comp, idx + k) / CHUNK);

		e->chunk[i].next = NO_CHUNK;
		chunks_put(e, i);
	}
	if (n)
		xsk_ring_cons__release(&p->comp, n);
}

void sockets_reclaim(struct emulator *e)
{
	for (uint32_t i = 0; i < e->n_ports; i++)
		reap(e, &e->port[i]);
	for (uint32_t i = 0; i < e->n_ports; i++)
		refill(e, &e->port[i]);
}

static uint32_t at_kernel(const struct port *p)
{
	return *p->tx.producer - __atomic_load_n(p->tx.consumer, __ATOMIC_ACQUIRE);
}

/* The system call sends a limited number of frames itself.  The rest is tried again in the next
 * round. */
void sockets_kick(struct emulator *e)
{
	for (uint32_t i = 0; i < e->n_ports; i++) {
		struct port *p = &e->port[i];
		uint32_t left, before;

		if (!p->pending)
			continue;
		for (left = at_kernel(p); left; left = at_kernel(p)) {
			before = left;
			sendto(p->fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
			if (at_kernel(p) == before)
				break;
		}
		p->pending = left;
	}
}

uint64_t port_ring_drops(const struct port *p)
{
	struct xdp_statistics s = {};
	socklen_t len = sizeof(s);

	if (getsockopt(p->fd, SOL_XDP, XDP_STATISTICS, &s, &len))
		return 0;
	return s.rx_dropped + s.rx_ring_full;
}

uint64_t port_unstamped(const struct port *p)
{
	return __atomic_load_n(&p->skel->bss->fabric_counters.unstamped, __ATOMIC_RELAXED);
}

/* ---- opening ------------------------------------------------------------------ */

static int map_memory(struct emulator *e)
{
	size_t size = (size_t)CHUNKS * CHUNK;
	void *area = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (area == MAP_FAILED)
		return -ENOMEM;
	madvise(area, size, MADV_HUGEPAGE);
	e->area = area;
	e->chunk = calloc(CHUNKS, sizeof(*e->chunk));
	if (!e->chunk)
		return -ENOMEM;
	e->free = NO_CHUNK;
	for (uint32_t i = CHUNKS; i--;) {
		e->chunk[i].next = NO_CHUNK;
		chunks_put(e, i);
	}
	return 0;
}

/* All sockets share the UMEM; the flags of the first one hold for all. */
static int open_socket(struct emulator *e, struct port *p)
{
	const struct xsk_umem_config uc = {
		.fill_size = FILL_RING,
		.comp_size = RING,
		.frame_size = CHUNK,
	};
	const struct xsk_socket_config sc = {
		.rx_size = RING,
		.tx_size = RING,
		.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD,
		.bind_flags = XDP_COPY | XDP_USE_SG,
	};
	int size = SEND_BUFFER, budget = RING, err;

	if (p == e->port) {
		err = xsk_umem__create(&e->umem, e->area, (uint64_t)CHUNKS * CHUNK, &p->fill,
				       &p->comp, &uc);
		if (err)
			return err;
	}
	err = xsk_socket__create_shared(&p->xsk, p->name, 0, e->umem, &p->rx, &p->tx, &p->fill,
					&p->comp, &sc);
	if (err)
		return err;
	p->fd = xsk_socket__fd(p->xsk);
	setsockopt(p->fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	setsockopt(p->fd, SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &budget, sizeof(budget));
	return 0;
}

static int attach(struct port *p)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts, .flags = XDP_FLAGS_DRV_MODE);
	uint32_t queue = 0;
	int prog;

	p->skel = fabric__open_and_load();
	if (!p->skel)
		return -errno;
	if (bpf_map_update_elem(bpf_map__fd(p->skel->maps.sockets), &queue, &p->fd, BPF_ANY))
		return -errno;
	prog = bpf_program__fd(p->skel->progs.dp_fabric);
	p->link_fd = bpf_link_create(prog, (int)p->ifindex, BPF_XDP, &opts);
	if (p->link_fd >= 0)
		return 0;
	opts.flags = XDP_FLAGS_SKB_MODE;
	p->link_fd = bpf_link_create(prog, (int)p->ifindex, BPF_XDP, &opts);
	return p->link_fd < 0 ? -errno : 0;
}

static int open_port(struct emulator *e, struct port *p, char *why, size_t size)
{
	const char *step = "find";
	int err = 0;

	p->ifindex = if_nametoindex(p->name);
	if (!p->ifindex)
		err = -errno;
	if (!err) {
		step = "bind AF_XDP to";
		err = open_socket(e, p);
	}
	if (!err) {
		refill(e, p);
		step = "attach XDP to";
		err = attach(p);
	}
	if (err)
		snprintf(why, size, "cannot %s %s: %s", step, p->name, strerror(-err));
	return err;
}

int sockets_open(struct emulator *e, char *why, size_t size)
{
	int err = map_memory(e);

	if (err) {
		snprintf(why, size, "no memory for %d chunks", CHUNKS);
		return err;
	}
	/* Half of the chunks are for receiving, the other half for frames on the links. */
	e->fill_target = CHUNKS / 2 / e->n_ports;
	if (e->fill_target > RING)
		e->fill_target = RING;
	for (uint32_t i = 0; i < e->n_ports && !err; i++)
		err = open_port(e, &e->port[i], why, size);
	return err;
}

void sockets_close(struct emulator *e)
{
	for (uint32_t i = 0; i < e->n_ports; i++) {
		struct port *p = &e->port[i];

		if (p->link_fd >= 0)
			close(p->link_fd);
		if (p->skel)
			fabric__destroy(p->skel);
		if (p->xsk)
			xsk_socket__delete(p->xsk);
	}
	if (e->umem)
		xsk_umem__delete(e->umem);
	free(e->chunk);
	if (e->area)
		munmap(e->area, (size_t)CHUNKS * CHUNK);
}
