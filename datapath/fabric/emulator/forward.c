// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <string.h>

#include "fabric/emulator/emulator.h"

enum { BATCH = 64, MAC_LEN = 6 };

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static uint32_t first_of(const struct emulator *e, const struct dp_frame *f)
{
	return (uint32_t)(container_of(f, struct chunk, frame) - e->chunk);
}

/* ---- the link's user ------------------------------------------------------------ */

static void on_drop(void *user, struct dp_frame *f, enum dp_drop why)
{
	struct direction *d = user;

	(void)why;
	dp_raw_put(&d->emulator->raw, first_of(d->emulator, f));
}

/* Copies a frame into chunks of its own; NULL: too few chunks are free. */
static struct dp_frame *on_clone(void *user, const struct dp_frame *f)
{
	struct direction *d = user;
	struct emulator *e = d->emulator;
	uint32_t from = first_of(e, f), to, head = DP_NO_CHUNK, last = DP_NO_CHUNK;

	for (; from != DP_NO_CHUNK; from = e->chunk[from].raw.next) {
		to = dp_raw_get(&e->raw);
		if (to == DP_NO_CHUNK) {
			dp_raw_put(&e->raw, head);
			d->counts.starved++;
			return NULL;
		}
		e->chunk[to] = e->chunk[from];
		e->chunk[to].raw.addr =
			(uint64_t)to * DP_CHUNK + e->chunk[from].raw.addr % DP_CHUNK;
		e->chunk[to].raw.next = DP_NO_CHUNK;
		e->chunk[to].frame.hop = &e->chunk[to].hop;
		memcpy(dp_raw_bytes(&e->raw, to), dp_raw_bytes(&e->raw, from),
		       e->chunk[from].raw.len);
		if (last == DP_NO_CHUNK)
			head = to;
		else
			e->chunk[last].raw.next = to;
		last = to;
	}
	return &e->chunk[head].frame;
}

const struct dp_link_ops forward_ops = { .drop = on_drop, .clone = on_clone };

/* ---- out ------------------------------------------------------------------------ */

/* Hands the frame to the device, or drops it. */
static bool transmit(struct emulator *e, struct port *p, uint32_t first)
{
	if (dp_raw_send(&e->raw, &p->raw, first))
		return true;
	dp_raw_put(&e->raw, first);
	return false;
}

/* Applies the link's decision about a frame to its bytes. */
static void finish(struct direction *d, struct dp_frame *f, uint32_t first)
{
	struct chunk *c = &d->emulator->chunk[first];

	if (f->n_hops && c->bth)
		stamp_telemetry(dp_raw_bytes(&d->emulator->raw, first), c);
	if (f->flags & DP_FRAME_TRIMMED) {
		trim_payload(dp_raw_bytes(&d->emulator->raw, first), c);
		dp_raw_put(&d->emulator->raw, c->raw.next);
		c->raw.next = DP_NO_CHUNK;
	}
	if (f->ecn == DP_ECN_CE)
		mark_ce(dp_raw_bytes(&d->emulator->raw, first), c);
	if (f->flags & DP_FRAME_CORRUPT)
		flip_bit(d->emulator, first, dp_random32(&d->mark_rng));
}

static uint32_t send_direction(struct emulator *e, struct direction *d, uint64_t now)
{
	struct dp_frame *frame[BATCH];
	uint64_t at[BATCH], sent;
	uint32_t n = 0, first;

	while (n < BATCH && (frame[n] = dp_link_take(d->link, now))) {
		first = first_of(e, frame[n]);
		at[n] = frame[n]->at_ns;
		finish(d, frame[n], first);
		if (!transmit(e, &e->port[e->chunk[first].out], first))
			d->counts.starved++;
		n++;
	}
	if (!n)
		return 0;
	kick_ports(e);
	sent = dp_now_ns();
	if (e->woke)
		dp_late_add(&e->turn_late, sent - at[0]);
	e->woke = false;
	for (uint32_t i = 0; i < n; i++)
		dp_late_add(&d->late, sent - at[i]);
	return n;
}

uint32_t forward_send(struct emulator *e, uint64_t now)
{
	uint32_t sum = 0, n;

	for (unsigned side = 0; side < DIRECTIONS; side++) {
		struct direction *d = &e->direction[side];

		if (!d->link)
			continue;
		do {
			n = send_direction(e, d, now);
			sum += n;
		} while (n == BATCH);
	}
	return sum;
}

/* ---- in -------------------------------------------------------------------------- */

/* The port of a side that has a link address; NO_PORT: unknown. */
static uint16_t port_of(const struct emulator *e, unsigned side, const uint8_t *mac)
{
	for (uint32_t i = 0; i < e->n_ports; i++)
		if (e->port[i].side == side && e->port[i].has_mac &&
		    !memcmp(e->port[i].mac, mac, MAC_LEN))
			return (uint16_t)i;
	return NO_PORT;
}

/* The port on the other side.  With two ports it needs no address: frames of one leave by the
 * other. */
static uint16_t far_port(const struct emulator *e, const struct port *p, const uint8_t *mac)
{
	if (e->n_ports == 2)
		return p == e->port;
	return port_of(e, !p->side, mac);
}

static void mark_at_random(struct direction *d, struct dp_frame *f)
{
	bool capable = f->ecn == DP_ECN_ECT0 || f->ecn == DP_ECN_ECT1;

	if (!d->ecn_mark || !capable || dp_random32(&d->mark_rng) >= d->ecn_mark)
		return;
	f->ecn = DP_ECN_CE;
	d->counts.marked++;
}

static void offer(struct direction *d, struct chunk *c, const uint8_t *bytes, uint64_t at)
{
	uint32_t left;

	c->frame.bytes = c->raw.total + DP_LINK_HEADROOM;
	c->frame.header_bytes = 0;
	c->frame.class = d->trims;
	if (d->trims && (left = trimmed_len(bytes, c)))
		c->frame.header_bytes = (uint16_t)(left + DP_LINK_HEADROOM);
	if (d->hashes)
		c->frame.flow_hash = hash_flow(bytes, c);
	c->frame.flags = 0;
	c->frame.n_hops = 0;
	c->frame.hop = &c->hop;
	mark_at_random(d, &c->frame);
	if (at < d->last_ns)
		at = d->last_ns;
	d->last_ns = at;
	dp_link_offer(d->link, &c->frame, at);
}

static void send_now(struct emulator *e, struct direction *d, uint16_t out, uint32_t first)
{
	if (!transmit(e, &e->port[out], first))
		d->counts.starved++;
}

static void route(struct emulator *e, struct port *p, uint32_t first, uint64_t at)
{
	struct direction *d = &e->direction[p->side];
	struct chunk *c = &e->chunk[first];
	const uint8_t *bytes = dp_raw_bytes(&e->raw, first);
	uint16_t near = e->n_ports == 2 ? NO_PORT : port_of(e, p->side, bytes);

	if (near != NO_PORT) { /* hosts of one side reach each other without the link */
		send_now(e, d, near, first);
		return;
	}
	c->out = far_port(e, p, bytes);
	if (c->out == NO_PORT) {
		d->counts.unrouted++;
		dp_raw_put(&e->raw, first);
	} else if (!parse_frame(bytes, c) || !d->link) {
		d->counts.exempt++;
		send_now(e, d, c->out, first);
	} else {
		offer(d, c, bytes, at);
	}
}

struct arrivals {
	struct emulator *emulator;
	struct port *port;
};

static void take(void *user, uint32_t first, uint64_t arrived_ns)
{
	struct arrivals *a = user;

	route(a->emulator, a->port, first, arrived_ns);
}

uint32_t forward_receive(struct emulator *e)
{
	struct arrivals from = { .emulator = e };
	uint32_t sum = 0;

	e->drained_ns = dp_now_ns();
	for (uint32_t i = 0; i < e->n_ports; i++) {
		from.port = &e->port[i];
		sum += dp_raw_receive(&e->raw, &from.port->raw, UINT32_MAX, dp_now_ns(), take,
				      &from);
	}
	kick_ports(e);
	return sum;
}
