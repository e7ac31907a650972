/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "channel.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "wire/random.h"
#include "wire/trim.h"

enum {
	FRAME = 9216,
	BATCH = 16,
	IP_UDP_ETHERNET = 66, /* bytes around a datagram, for the rate */
};

uint64_t X_random(uint64_t *state)
{
	return dp_random64(state);
}

struct dp_addr X_address(int ipv6, int index)
{
	struct dp_addr a = { { 0 } };

	if (ipv6) {
		a.b[0] = 0xfd;
	} else {
		a.b[10] = a.b[11] = 0xff;
		a.b[12] = 10;
	}
	a.b[15] = (uint8_t)(1 + index);
	return a;
}

void X_channel_init(struct X_channel *c, const struct X_soak *p)
{
	*c = (struct X_channel){ .p = p, .rng = ~p->seed };
	X_adversary_init(&c->adversary[0], p, p->seed ^ 0xa0);
	X_adversary_init(&c->adversary[1], p, p->seed ^ 0xa1);
}

void X_channel_free(struct X_channel *c)
{
	while (c->n)
		free(c->heap[--c->n]);
	free(c->heap);
	c->heap = NULL;
}

static bool earlier(const struct X_flight *a, const struct X_flight *b)
{
	return a->at < b->at || (a->at == b->at && a->order < b->order);
}

static void swap(struct X_flight **a, struct X_flight **b)
{
	struct X_flight *t = *a;

	*a = *b;
	*b = t;
}

static void push(struct X_channel *c, struct X_flight *f)
{
	uint32_t i = c->n;

	if (c->n == c->cap) {
		c->cap = c->cap ? 2 * c->cap : 64;
		c->heap = realloc(c->heap, c->cap * sizeof(*c->heap));
		if (!c->heap)
			abort();
	}
	f->order = c->order++;
	c->heap[c->n++] = f;
	for (; i && earlier(c->heap[i], c->heap[(i - 1) / 2]); i = (i - 1) / 2)
		swap(&c->heap[i], &c->heap[(i - 1) / 2]);
}

struct X_flight *X_channel_take(struct X_channel *c, uint64_t now)
{
	struct X_flight *first;
	uint32_t i = 0, child;

	if (!c->n || c->heap[0]->at > now)
		return NULL;
	first = c->heap[0];
	c->heap[0] = c->heap[--c->n];
	while ((child = 2 * i + 1) < c->n) {
		if (child + 1 < c->n && earlier(c->heap[child + 1], c->heap[child]))
			child++;
		if (!earlier(c->heap[child], c->heap[i]))
			break;
		swap(&c->heap[i], &c->heap[child]);
		i = child;
	}
	return first;
}

uint64_t X_channel_next(const struct X_channel *c)
{
	return c->n ? c->heap[0]->at : DP_NEVER;
}

static bool chance(struct X_channel *c, uint32_t ppm)
{
	return X_random(&c->rng) % 1000000 < ppm;
}

static void trace(struct X_channel *c, const struct dp_packet *p, uint64_t now)
{
	uint64_t h = c->trace ^ now;
	uint32_t i;

	for (i = 0; i < p->len; i++)
		h = (h ^ p->data[i]) * 0x100000001b3;
	c->trace = h;
}

static struct X_flight *copy(const struct dp_packet *p, int to, uint64_t at)
{
	struct X_flight *f = malloc(sizeof(*f) + p->len);

	if (!f)
		abort();
	*f = (struct X_flight){ .at = at, .to = to, .packet = *p };
	memcpy(f->bytes, p->data, p->len);
	f->packet.data = f->bytes;
	f->packet.cap = 0;
	f->packet.path_id = 0;
	f->packet.arrived_ns = at;
	return f;
}

/* A few switches, as many as it likes. */
static void stamp(struct X_channel *c, const struct dp_packet *p, uint64_t now)
{
	uint64_t n = X_random(&c->rng) % 10;

	while (n--)
		dp_telemetry_stamp(p->data, p->len,
				   &(struct dp_telemetry){ .ts_ns = now, .tx_bytes = c->packets });
}

/* Of the extended mode: what takes several paths. */
static bool is_request(const struct dp_packet *p)
{
	uint32_t mask = dp_opcodes[dp_bth_opcode(p->data)].mask;

	return mask & DP_IS_REQUEST && mask & DP_HAS_XDH;
}

static void depart(struct X_channel *c, const struct dp_packet *p, const struct dp_qp *from, int to,
		   uint64_t now)
{
	const struct X_soak *s = c->p;
	uint64_t at = now > c->free_at[to] ? now : c->free_at[to];
	uint32_t path = s->paths && is_request(p) ? p->sport % s->paths : s->dead_paths;
	int copies = chance(c, s->duplicate_ppm) ? 2 : 1;

	trace(c, p, now);
	c->packets++;
	if (s->telemetry)
		stamp(c, p, now);
	if (s->rate_bps) {
		at += (uint64_t)(p->len + IP_UDP_ETHERNET) * 8 * 1000000000 / s->rate_bps;
		c->free_at[to] = at;
	}
	if (chance(c, s->loss_ppm) || (s->limit_bytes && p->len > s->limit_bytes) ||
	    path < s->dead_paths || X_adversary_drops(&c->adversary[to], p, from, now)) {
		c->lost++;
		return;
	}
	while (copies--) {
		bool late = s->jitter_ns && (copies || chance(c, s->delay_ppm));
		uint64_t extra = late ? X_random(&c->rng) % s->jitter_ns : 0;
		struct X_flight *f;

		if (s->paths)
			extra += p->sport % s->paths * s->path_skew_ns;
		f = copy(p, to, at + s->latency_ns + extra);
		if (chance(c, s->trim_ppm))
			dp_trim(&f->packet);

		if (chance(c, s->corrupt_ppm)) {
			uint64_t bit = X_random(&c->rng) % (8 * (uint64_t)p->len);

			f->bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
		if ((p->tos & DP_ECN_MASK) && chance(c, s->mark_ppm))
			f->packet.tos |= DP_ECN_CE;
		push(c, f);
	}
}

void X_channel_collect(struct X_channel *c, struct dp_engine *e, const struct dp_qp *from, int to,
		       uint64_t now)
{
	static _Thread_local uint8_t buffers[BATCH][FRAME];
	struct dp_packet out[BATCH];
	int n, i;

	do {
		memset(out, 0, sizeof(out));
		for (i = 0; i < BATCH; i++) {
			out[i].data = buffers[i];
			out[i].cap = FRAME;
		}
		n = dp_engine_tx(e, out, BATCH, now);
		for (i = 0; i < n; i++)
			depart(c, &out[i], from, to, now);
	} while (n == BATCH);
}

void X_flight_give(struct X_flight *f, struct dp_engine *e, uint64_t now)
{
	dp_engine_rx(e, &f->packet, now);
}
