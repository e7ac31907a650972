// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "io/raw.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/netdev.h"
#include "posix/clock.h"
#include "xdp/raw.h"

#include "raw.skel.h"
#include "raw_tags.skel.h"

#ifndef BPF_F_XDP_DEV_BOUND_ONLY /* kernel headers older than Linux 6.3 */
#define BPF_F_XDP_DEV_BOUND_ONLY (1U << 6)
#endif

enum { SEND_BUFFER = 256 << 20 };

/* How soon a device that was down is asked again whether it takes what waits for it. */
#define ASK_NS 5000000ull

/* ---- chunks ----------------------------------------------------------------- */

uint32_t dp_raw_get(struct dp_raw *raw)
{
	uint32_t i = raw->free;

	if (i != DP_NO_CHUNK) {
		raw->free = dp_raw_chunk(raw, i)->next;
		raw->n_free--;
	}
	return i;
}

void dp_raw_put(struct dp_raw *raw, uint32_t first)
{
	uint32_t next;

	for (; first != DP_NO_CHUNK; first = next) {
		struct dp_chunk *c = dp_raw_chunk(raw, first);

		next = c->next;
		c->next = raw->free;
		raw->free = first;
		raw->n_free++;
	}
}

void dp_raw_refill(struct dp_raw *raw, struct dp_raw_port *p)
{
	uint32_t want, idx;

	if (p->filled >= p->fill_target)
		return;
	want = p->fill_target - p->filled;
	if (want < p->fill_target / 8)
		return;
	if (want > raw->n_free)
		want = raw->n_free;
	if (!want || !xsk_ring_prod__reserve(&p->fill, want, &idx))
		return;
	for (uint32_t n = 0; n < want; n++)
		*xsk_ring_prod__fill_addr(&p->fill, idx + n) = (uint64_t)dp_raw_get(raw) * DP_CHUNK;
	xsk_ring_prod__submit(&p->fill, want);
	p->filled += want;
}

void dp_raw_reap(struct dp_raw *raw, struct dp_raw_port *p)
{
	uint32_t idx, n = xsk_ring_cons__peek(&p->comp, DP_RAW_RING, &idx);

	for (uint32_t k = 0; k < n; k++) {
		uint32_t i = (uint32_t)(*xsk_ring_cons__comp_addr(&p->comp, idx + k) / DP_CHUNK);

		dp_raw_chunk(raw, i)->next = DP_NO_CHUNK;
		dp_raw_put(raw, i);
	}
	if (n)
		xsk_ring_cons__release(&p->comp, n);
	p->sending -= n;
}

/* ---- out ---------------------------------------------------------------------- */

static uint32_t at_kernel(const struct dp_raw_port *p)
{
	return *p->tx.producer - __atomic_load_n(p->tx.consumer, __ATOMIC_ACQUIRE);
}

/* The system call itself sends, a limited number at a time. */
void dp_raw_kick(struct dp_raw_port *p)
{
	uint32_t left, before;
	int err = 0;
	bool down;

	if (!p->pending && !(p->ask_ns && p->ask_ns <= dp_now_ns()))
		return;
	for (left = at_kernel(p); left; left = at_kernel(p)) {
		before = left;
		err = sendto(p->fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 ? errno : 0;
		if (at_kernel(p) == before)
			break;
		/* It ends the call at a frame that a tap dropped, whose reader is slow. */
		p->dropped += err == EBUSY;
	}
	/* A device that is down or no more takes nothing, and tells nobody when it is up again. */
	down = left && (err == ENETDOWN || err == ENXIO);
	p->pending = left && !down;
	p->ask_ns = down ? dp_now_ns() + ASK_NS : 0;
}

bool dp_raw_send(struct dp_raw *raw, struct dp_raw_port *p, uint32_t first)
{
	uint32_t n = 0, idx, next;

	for (uint32_t i = first; i != DP_NO_CHUNK; i = dp_raw_chunk(raw, i)->next)
		n++;
	if (xsk_ring_prod__reserve(&p->tx, n, &idx) != n)
		return false;
	for (uint32_t i = first; i != DP_NO_CHUNK; i = next) {
		struct xdp_desc *desc = xsk_ring_prod__tx_desc(&p->tx, idx++);
		const struct dp_chunk *c = dp_raw_chunk(raw, i);

		next = c->next;
		desc->addr = c->addr;
		desc->len = c->len;
		desc->options = next == DP_NO_CHUNK ? 0 : XDP_PKT_CONTD;
	}
	xsk_ring_prod__submit(&p->tx, n);
	p->sending += n;
	p->pending = true;
	return true;
}

/* ---- in ----------------------------------------------------------------------- */

static uint64_t arrival(const struct dp_raw *raw, uint64_t addr, uint64_t now)
{
	struct dp_raw_meta *meta = (struct dp_raw_meta *)(raw->area + addr) - 1;
	uint64_t at = meta->arrived_ns;

	meta->arrived_ns = 0;
	return at && at < now ? at : now;
}

/* The chunks of one frame, from ring index idx on; 0: not all there. */
static uint32_t collect(struct dp_raw *raw, struct dp_raw_port *p, uint32_t idx, uint32_t avail,
			uint32_t *first)
{
	uint32_t last = DP_NO_CHUNK, total = 0;

	for (uint32_t n = 0; n < avail; n++) {
		const struct xdp_desc *desc = xsk_ring_cons__rx_desc(&p->rx, idx + n);
		uint32_t i = (uint32_t)(desc->addr / DP_CHUNK);
		struct dp_chunk *c = dp_raw_chunk(raw, i);

		c->addr = desc->addr;
		c->len = desc->len;
		c->next = DP_NO_CHUNK;
		total += desc->len;
		if (last == DP_NO_CHUNK)
			*first = i;
		else
			dp_raw_chunk(raw, last)->next = i;
		last = i;
		if (!(desc->options & XDP_PKT_CONTD)) {
			dp_raw_chunk(raw, *first)->total = total;
			return n + 1;
		}
	}
	return 0;
}

uint32_t dp_raw_receive(struct dp_raw *raw, struct dp_raw_port *p, uint32_t max, uint64_t now,
			dp_raw_take *take, void *user)
{
	uint32_t idx, used = 0, avail, n, first = DP_NO_CHUNK, frames = 0;

	avail = xsk_ring_cons__peek(&p->rx, DP_RAW_RING, &idx);
	while (used < avail && frames < max) {
		n = collect(raw, p, idx + used, avail - used, &first);
		if (!n)
			break;
		used += n;
		frames++;
		take(user, first, arrival(raw, dp_raw_chunk(raw, first)->addr, now));
	}
	xsk_ring_cons__cancel(&p->rx, avail - used);
	if (used)
		xsk_ring_cons__release(&p->rx, used);
	p->filled -= used;
	return frames;
}

/* ---- counters ------------------------------------------------------------------ */

uint64_t dp_raw_drops(const struct dp_raw_port *p)
{
	struct xdp_statistics s = {};
	socklen_t len = sizeof(s);

	if (getsockopt(p->fd, SOL_XDP, XDP_STATISTICS, &s, &len))
		return 0;
	return s.rx_dropped + s.rx_ring_full;
}

uint64_t dp_raw_unstamped(const struct dp_raw_port *p)
{
	const struct dp_raw_counters *c = p->tags ? &p->tags->bss->raw_counters :
						    &p->skel->bss->raw_counters;

	return __atomic_load_n(&c->unstamped, __ATOMIC_RELAXED);
}

/* ---- opening ------------------------------------------------------------------ */

int dp_raw_open(struct dp_raw *raw, void *records, size_t stride, uint32_t n_chunks)
{
	size_t size = (size_t)n_chunks * DP_CHUNK;
	void *area = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (area == MAP_FAILED)
		return -ENOMEM;
	madvise(area, size, MADV_HUGEPAGE);
	raw->area = area;
	raw->records = records;
	raw->stride = stride;
	raw->n_chunks = n_chunks;
	raw->free = DP_NO_CHUNK;
	for (uint32_t i = n_chunks; i--;) {
		dp_raw_chunk(raw, i)->next = DP_NO_CHUNK;
		dp_raw_put(raw, i);
	}
	return 0;
}

void dp_raw_close(struct dp_raw *raw)
{
	if (raw->umem)
		xsk_umem__delete(raw->umem);
	if (raw->area)
		munmap(raw->area, (size_t)raw->n_chunks * DP_CHUNK);
}

/* All sockets share the UMEM; the first one's flags are those of all. */
static int open_socket(struct dp_raw *raw, struct dp_raw_port *p)
{
	const struct xsk_umem_config uc = {
		.fill_size = DP_RAW_FILL_RING,
		.comp_size = DP_RAW_RING,
		.frame_size = DP_CHUNK,
	};
	const struct xsk_socket_config sc = {
		.rx_size = DP_RAW_RING,
		.tx_size = DP_RAW_RING,
		.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD,
		.bind_flags = XDP_COPY | XDP_USE_SG,
	};
	int size = SEND_BUFFER, budget = DP_RAW_RING, err;

	if (!raw->umem) {
		err = xsk_umem__create(&raw->umem, raw->area, (uint64_t)raw->n_chunks * DP_CHUNK,
				       &p->fill, &p->comp, &uc);
		if (err)
			return err;
	}
	err = xsk_socket__create_shared(&p->xsk, p->name, 0, raw->umem, &p->rx, &p->tx, &p->fill,
					&p->comp, &sc);
	if (err)
		return err;
	p->fd = xsk_socket__fd(p->xsk);
	setsockopt(p->fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	setsockopt(p->fd, SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &budget, sizeof(budget));
	return 0;
}

static int attach_program(struct dp_raw_port *p, const struct bpf_program *prog,
			  const struct bpf_map *sockets, uint32_t mode)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts, .flags = mode);
	uint32_t queue = 0;

	if (bpf_map_update_elem(bpf_map__fd(sockets), &queue, &p->fd, BPF_ANY))
		return -errno;
	p->link_fd = bpf_link_create(bpf_program__fd(prog), (int)p->ifindex, BPF_XDP, &opts);
	return p->link_fd < 0 ? -errno : 0;
}

/* An older kernel, or another driver than veth's, may refuse it, which is no error. */
static int attach_with_tags(struct dp_raw_port *p)
{
	libbpf_print_fn_t before = libbpf_set_print(NULL);
	struct raw_tags *tags = raw_tags__open();
	int err = tags ? 0 : -errno;

	if (!err) {
		struct bpf_program *prog = tags->progs.dp_raw_tags;

		bpf_program__set_ifindex(prog, p->ifindex);
		bpf_program__set_flags(prog, bpf_program__flags(prog) | BPF_F_XDP_DEV_BOUND_ONLY);
		err = raw_tags__load(tags);
		if (!err)
			err = attach_program(p, prog, tags->maps.sockets, XDP_FLAGS_DRV_MODE);
	}
	if (err)
		raw_tags__destroy(tags);
	else
		p->tags = tags;
	libbpf_set_print(before);
	return err;
}

static int attach(struct dp_raw_port *p)
{
	int err;

	if (!attach_with_tags(p))
		return 0;
	p->skel = raw__open_and_load();
	if (!p->skel)
		return -errno;
	err = attach_program(p, p->skel->progs.dp_raw, p->skel->maps.sockets, XDP_FLAGS_DRV_MODE);
	if (err)
		err = attach_program(p, p->skel->progs.dp_raw, p->skel->maps.sockets,
				     XDP_FLAGS_SKB_MODE);
	return err;
}

/* Frames on the others would be lost without a word. */
static int refuse_queues(const struct dp_raw_port *p, int queues, char *why, size_t size)
{
	snprintf(why, size,
		 "%s has %d receive queues, of which only the first would be read: give it one "
		 "(ethtool -L)",
		 p->name, queues);
	return -EINVAL;
}

int dp_raw_port_open(struct dp_raw *raw, struct dp_raw_port *p, char *why, size_t size)
{
	int err = 0, queues = dp_netdev_rx_queues(p->name);
	const char *step = "find";

	p->link_fd = -1;
	p->ifindex = if_nametoindex(p->name);
	if (queues > 1)
		return refuse_queues(p, queues, why, size);
	if (!p->ifindex)
		err = -errno;
	if (!err) {
		step = "bind AF_XDP to";
		err = open_socket(raw, p);
	}
	if (!err) {
		dp_raw_refill(raw, p);
		step = "attach XDP to";
		err = attach(p);
	}
	if (err)
		snprintf(why, size, "cannot %s %s: %s", step, p->name, strerror(-err));
	return err;
}

void dp_raw_port_close(struct dp_raw_port *p)
{
	if (p->link_fd > 0)
		close(p->link_fd);
	raw__destroy(p->skel);
	raw_tags__destroy(p->tags);
	if (p->xsk)
		xsk_socket__delete(p->xsk);
}
